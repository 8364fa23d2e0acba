//! Mounts that seal what they store, beside one that does not.

use std::fs;

use verbena_mount::MountOptions;

use crate::banked::{Bank, byte, cached};
use crate::setup::{Pair, eventually};

#[test]
fn mounts_that_encrypt_share_blocks_with_each_other_and_with_no_other() {
    let Some(bank) = Bank::new(2) else { return };
    let secret = tempfile::NamedTempFile::new().unwrap();
    fs::write(secret.path(), "7".repeat(64)).unwrap();
    let set = |options: &mut MountOptions, encrypt: bool| {
        options.bank = bank.list.parse().unwrap();
        options.secret = Some(secret.path().to_owned());
        options.volume = Some("v".to_owned());
        options.encrypt = encrypt;
        options.deadline = std::time::Duration::from_secs(10);
    };
    let Some(one) = Pair::new(|options| set(options, true)) else { return };
    assert!(one.mounted.as_ref().unwrap().notes().iter().any(|note| note.contains("sealed in the bank")));
    let content: Vec<u8> = (0..300_000_u32).map(|at| (at / 7) as u8).collect();
    fs::write(one.slow.join("f"), &content).unwrap();
    drop(cached(&one, "f"));
    assert_eq!(fs::read(one.fast.join("f")).unwrap(), content);
    eventually("the bank has all", || one.count("bank_stored") == 5);
    let beside = |encrypt: bool| {
        Pair::new(|options| {
            set(options, encrypt);
            options.below = one.slow.clone();
        })
        .unwrap()
    };
    let (clear, two) = (beside(false), beside(true));
    assert_eq!(fs::read(clear.fast.join("f")).unwrap(), content);
    eventually("the bank has all twice", || clear.count("bank_stored") == 5);
    assert_eq!((clear.count("bank_hits"), clear.count("bank_absent")), (0, 5));
    assert_eq!(fs::read(two.fast.join("f")).unwrap(), content);
    assert_eq!((two.count("filled_bytes"), two.count("bank_hits"), two.count("bank_wrong_seal")), (0, 5, 0));
    assert_eq!(byte(&cached(&two, "f")), content[0]);
}
