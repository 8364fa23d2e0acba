//! What is posted to be gathered goes in one frame, and nothing of it waits longer than it may; what a node posts to itself goes in none.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use verbena_fabric::tcp::TcpConfig;
use verbena_fabric::xdp::{XdpConfig, XdpFabric};
use verbena_fabric::{Batch, Class, Fabric, Operation, Rights, XdpMode};
use verbena_terms::{Incarnation, ViewNumber};
use verbena_testkit::namespaces;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 82, 0, 1));
const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn reads_of_one_turn_share_a_frame() {
    let Some(_own) = namespaces::own(HERE) else { return };
    let [owner, caller] = [1, 2].map(|rank| {
        let tcp = TcpConfig { listen: SocketAddr::new(HERE, 0), insecure: true, ..TcpConfig::default() };
        let config = XdpConfig { tcp, interfaces: vec!["lo".into()], mode: XdpMode::Auto };
        XdpFabric::open(Incarnation::new(rank, 1), config).unwrap()
    });
    let region = owner.register(4096, ViewNumber(1)).unwrap();
    [&owner, &caller].iter().for_each(|fabric| fabric.set_view(ViewNumber(1)));
    (0..8).for_each(|word| region.store(8 * word, word).unwrap());
    let deadline = || caller.clock().now() + PATIENCE;
    let peer = caller.connect(owner.identity(), &owner.address()).unwrap();
    let remote = peer.open(&region.key(Rights::Read), deadline()).unwrap();

    let sent = |act: &dyn Fn()| {
        let before = caller.frames().sent;
        act();
        caller.frames().sent - before
    };
    let together = sent(&|| {
        let post = |word: u64| remote.post_gathered(Batch::read_words(&[8 * word]), Class::Control, deadline());
        let all: Vec<_> = (0..8).map(post).collect();
        for (word, pending) in (0..).zip(all) {
            assert_eq!(pending.wait().unwrap()[0].word(), Some(word));
        }
    });
    let one_by_one = sent(&|| {
        let post = |word: u64| remote.post(Batch::read_words(&[8 * word]), Class::Control, deadline());
        (0..8).for_each(|word| assert_eq!(post(word).wait().unwrap()[0].word(), Some(word)));
    });
    assert!(together <= 2 && one_by_one >= 8, "{together} frames, {one_by_one} without");

    let own = owner.connect(owner.identity(), &owner.address()).unwrap();
    let own = own.open(&region.key(Rights::Change), deadline()).unwrap();
    let mut add = own.post(Batch::one(Operation::FetchAdd { at: 56, addend: 1 }), Class::Control, deadline());
    assert_eq!(add.poll_now().expect("it is there at once").unwrap()[0].word(), Some(7));
    assert_eq!(owner.frames().sent, 0, "its own words a node reaches without a frame");
}
