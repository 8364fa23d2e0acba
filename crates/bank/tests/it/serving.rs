//! What a bank gives back while its daemons are well.

use verbena_bank::{
    Answer, Bank, BlockSize, Blocks, Daemons, Introduction, Memcached, Options, Placement, Request, Rules, Secret,
    StartOptions, Store, start,
};

use crate::daemon::{Daemon, blocks, content, is_installed, keys, memcached};

#[test]
fn blocks_come_back_from_several_daemons_at_once() {
    if !is_installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let daemons = [0, 1, 2].map(|at| Daemon::start(folder.path(), &format!("{at}")));
    let bank = blocks(&[&daemons[0], &daemons[1], &daemons[2]], 20_000);
    let keys = keys("1", 100);
    assert!(bank.fetch(&keys).iter().all(Option::is_none));
    // More bytes than any socket buffer holds, both ways.
    let bytes = |block| content("1", block, 65_536);
    let stored: Vec<_> = keys.iter().map(|key| (key.clone(), bytes(key.block()))).collect();
    bank.store(&stored);
    let found = bank.fetch(&keys);
    for (key, found) in keys.iter().zip(found) {
        assert_eq!(found, Some(bytes(key.block())), "block {}", key.block());
    }
    let counts = bank.counters().read();
    assert_eq!((counts.hits, counts.absent, counts.stored, counts.daemon_down), (100, 100, 100, 0));
    // Each daemon alone has some, and not all.
    for daemon in &daemons {
        let names: Vec<_> = keys
            .iter()
            .map(|key| (0, Request::Get { name: key.name(&Secret::new([5; 32])).bytes().to_vec() }))
            .collect();
        let answers = memcached(&[daemon], 20_000).exchange(&names);
        let count = answers.iter().filter(|answer| matches!(answer, Some(Answer::Item(_)))).count();
        assert!((10..60).contains(&count), "{count} of 100 at one of three");
    }
}

#[test]
fn what_an_encrypted_volume_stores_only_its_clients_read() {
    if !is_installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), "m");
    let bank = |secret: Secret| {
        Blocks::new(secret, Bank::Memcached(memcached(&[&daemon], 20_000), Placement::Rendezvous), Rules::default())
    };
    let secret = || Secret::new([5; 32]).encrypted("v");
    let (one, two, clear) = (bank(secret()), bank(secret()), bank(Secret::new([5; 32]).of_volume("v")));
    let keys = keys("1", 3);
    let stored: Vec<_> = keys.iter().map(|key| (key.clone(), content("1", key.block(), 1000))).collect();
    one.store(&stored);
    assert_eq!(two.fetch(&keys), stored.iter().map(|(_, bytes)| Some(bytes.clone())).collect::<Vec<_>>());
    assert_eq!(clear.fetch(&keys), [None, None, None]);
    assert_eq!((clear.counters().read().absent, two.counters().read().hits), (3, 3));
    clear.store(&stored);
    assert_eq!(two.fetch(&keys), stored.iter().map(|(_, bytes)| Some(bytes.clone())).collect::<Vec<_>>());
    // Another program turns a bit, puts another block of the volume in its place, and writes something else.
    let names: Vec<Vec<u8>> = keys.iter().map(|key| two.name(key).bytes().to_vec()).collect();
    let other = memcached(&[&daemon], 20_000);
    let item = |at: usize| match &other.exchange(&[(0, Request::Get { name: names[at].clone() })])[..] {
        [Some(Answer::Item(item))] => item.clone(),
        answers => panic!("{answers:?}"),
    };
    let mut turned = item(0);
    assert!(!turned.windows(20).any(|part| stored[0].1.windows(20).any(|clear| clear == part)));
    turned[500] ^= 1;
    for (name, item) in names.iter().zip([turned, item(2), b"of another program".to_vec()]) {
        let set = Request::Set { name: name.clone(), item, store: Store::Replace, seconds: 0 };
        assert_eq!(other.exchange(&[(0, set)]), [Some(Answer::Done)]);
    }
    assert_eq!(two.fetch(&keys), [None, None, None]);
    let counts = two.counters().read();
    assert_eq!((counts.wrong_seal, counts.wrong_key, counts.wrong_format, counts.hits), (1, 1, 1, 6));
    // Both kinds of clients may use one volume's daemons.
    let agreed = [Introduction::Agreed];
    assert_eq!(one.introduce("v", BlockSize::default()), agreed);
    assert_eq!(clear.introduce("v", BlockSize::default()), agreed);
    assert_eq!(
        bank(Secret::new([6; 32]).encrypted("v")).introduce("v", BlockSize::default()),
        [Introduction::OtherSecret]
    );
}

/// Rule B2: a daemon is open to every user of its machine.
#[test]
fn items_that_another_program_wrote_are_misses_by_their_fault() {
    if !is_installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), "m");
    let bank = blocks(&[&daemon], 20_000);
    let keys = keys("1", 4);
    let stored: Vec<_> = keys.iter().map(|key| (key.clone(), content("1", key.block(), 1000))).collect();
    bank.store(&stored);
    let names: Vec<Vec<u8>> = keys.iter().map(|key| key.name(&Secret::new([5; 32])).bytes().to_vec()).collect();
    let other = memcached(&[&daemon], 20_000);
    let item = |at: usize| match &other.exchange(&[(0, Request::Get { name: names[at].clone() })])[..] {
        [Some(Answer::Item(item))] => item.clone(),
        answers => panic!("{answers:?}"),
    };
    let mut turned = item(0);
    *turned.last_mut().unwrap() ^= 1;
    let items = [turned, item(2)[..500].to_vec(), item(3), b"{\"session\": \"of another program\"}".to_vec()];
    for (name, item) in names.iter().zip(items) {
        let set = Request::Set { name: name.clone(), item, store: Store::Replace, seconds: 0 };
        assert_eq!(other.exchange(&[(0, set)]), [Some(Answer::Done)]);
    }
    assert_eq!(bank.fetch(&keys), [None, None, None, None]);
    let counts = bank.counters().read();
    assert_eq!((counts.wrong_checksum, counts.wrong_length, counts.wrong_key, counts.wrong_format), (1, 1, 1, 1));
    assert_eq!(counts.hits, 0);
    // Without the rule, what stands there is believed: the block of another number among it.
    let believes = Blocks::new(
        Secret::new([5; 32]),
        Bank::Memcached(memcached(&[&daemon], 20_000), Placement::Rendezvous),
        Rules { envelope: false, ..Rules::default() },
    );
    assert_eq!(believes.fetch(&keys)[2], Some(content("1", 3, 1000)));
}

#[test]
fn a_second_client_with_another_secret_list_or_block_is_told() {
    if !is_installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (Daemon::start(folder.path(), "1"), Daemon::start(folder.path(), "2"));
    let client = |secret: u8, daemons: &[&Daemon], placement| {
        Blocks::new(Secret::new([secret; 32]), Bank::Memcached(memcached(daemons, 20_000), placement), Rules::default())
    };
    let size = BlockSize::default();
    use Introduction::{Agreed, OtherList, OtherSecret, TooSmall};
    use Placement::{Modulo, Rendezvous};
    assert_eq!(client(1, &[&one, &two], Rendezvous).introduce("vol", size), [Agreed, Agreed]);
    assert_eq!(client(1, &[&two, &one], Rendezvous).introduce("vol", size), [Agreed, Agreed]);
    assert_eq!(client(1, &[&one], Rendezvous).introduce("vol", size), [OtherList]);
    assert_eq!(client(1, &[&one, &two], Modulo).introduce("vol", size), [OtherList, OtherList]);
    assert_eq!(client(2, &[&one, &two], Rendezvous).introduce("vol", size), [OtherSecret, OtherSecret]);
    assert_eq!(client(2, &[&one, &two], Modulo).introduce("another", size), [Agreed, Agreed]);
    assert_eq!(client(2, &[&two, &one], Modulo).introduce("another", size), [OtherList, OtherList]);
    let large = BlockSize::new(1 << 20).unwrap();
    assert_eq!(client(1, &[&one, &two], Rendezvous).introduce("vol", large), [TooSmall, TooSmall]);
}

#[test]
fn daemons_that_we_start_take_the_largest_block_by_tcp_and_by_sockets() {
    if !is_installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for sockets in [None, Some(folder.path().to_owned())] {
        let running =
            start(&StartOptions { daemons: 2, memory: 128 << 20, sockets, ..StartOptions::default() }).unwrap();
        assert_eq!(running.pids().len(), 2);
        let options = Options { deadline: std::time::Duration::from_secs(20), idle: 4 };
        let list = Daemons::parse(&running.daemons.to_string()).unwrap();
        let memcached = Memcached::new(list, options).unwrap();
        let bank = Blocks::new(Secret::new([5; 32]), Bank::Memcached(memcached, Placement::Crc32), Rules::default());
        let large = BlockSize::new(1 << 20).unwrap();
        assert_eq!(bank.introduce("vol", large), [Introduction::Agreed, Introduction::Agreed]);
        let keys = keys("1", 8);
        let stored: Vec<_> = keys.iter().map(|key| (key.clone(), content("1", key.block(), 1 << 20))).collect();
        bank.store(&stored);
        let found = bank.fetch(&keys);
        assert!(found.iter().zip(&stored).all(|(found, stored)| found.as_ref() == Some(&stored.1)));
        running.end();
    }
    let missing = StartOptions { program: "/no/memcached".into(), ..StartOptions::default() };
    assert!(start(&missing).unwrap_err().to_string().contains("apt-get install memcached"));
}
