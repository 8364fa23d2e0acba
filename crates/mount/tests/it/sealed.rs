//! The promise `sealed`: a file is what it was when it was closed.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::thread::sleep;
use std::time::Duration;

use crate::mounts::{Mounts, walk};
use crate::setup::Pair;

/// A listing that was taken while a file was written has its attributes from before it was closed, so none is used.
#[test]
fn a_sealed_tree_takes_no_names_from_the_bank_and_shows_new_files_at_once() {
    let Some(mounts) = Mounts::new("sealed") else { return };
    let Some(one) = mounts.mount(None) else { return };
    fs::create_dir(one.slow.join("d")).unwrap();
    fs::write(one.slow.join("d/a"), b"x").unwrap();
    let mut writer = File::create(one.slow.join("d/b")).unwrap();
    sleep(Duration::from_millis(50));
    walk(&one.fast);
    writer.write_all(b"all of it").unwrap();
    drop(writer);
    let two = mounts.mount(Some(&one.slow)).unwrap();
    assert_eq!(walk(&two.fast), walk(&one.slow));
    let has_names = |mount: &Pair| mount.mounted.as_ref().unwrap().status().contains("name_hits");
    assert!(!has_names(&one) && !has_names(&two));
    assert!(!two.fast.join("d/c").exists());
    fs::write(one.slow.join("d/c"), b"x").unwrap();
    assert!(two.fast.join("d/c").exists());
}

/// The kernel believes for an hour what it was told while the file was written.
#[test]
fn a_file_that_was_looked_at_while_it_was_written_is_read_whole_after_it_was_closed() {
    let Some(mounts) = Mounts::new("sealed") else { return };
    let Some(pair) = mounts.mount(None) else { return };
    let (slow, fast) = (pair.slow.join("f"), pair.fast.join("f"));
    let mut writer = File::create(&slow).unwrap();
    writer.write_all(b"a part").unwrap();
    sleep(Duration::from_millis(50));
    // Its pages too.
    assert_eq!(fs::read(&fast).unwrap(), b"a part");
    assert_eq!(fs::metadata(&fast).unwrap().len(), 6);
    let whole = [b"a part".to_vec(), vec![7; 100_000]].concat();
    writer.write_all(&whole[6..]).unwrap();
    drop(writer);
    sleep(Duration::from_millis(50));
    for round in 0..3 {
        let mut file = File::open(&fast).unwrap();
        assert_eq!(file.metadata().unwrap().len(), whole.len() as u64, "{round}");
        let mut found = vec![];
        file.read_to_end(&mut found).unwrap();
        assert!(found == whole, "{round}: {} bytes", found.len());
    }
    assert!(pair.count("bank_hits") + pair.count("bank_stored") > 0);
}
