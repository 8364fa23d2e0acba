//! The rows of the bank, on volumes of GlusterFS. No time is held against anything.

use std::path::Path;

use super::{measured, of};

pub fn a_volume_is_read_with_the_bank_and_without() {
    let translators = "/usr/lib/x86_64-linux-gnu/glusterfs/10.3/xlator/user/cmcache.so";
    if !Path::new(translators).exists() || !Path::new("/usr/sbin/glusterfsd").exists() {
        println!("skipped: no GlusterFS, or no {translators} (make -C adapters/gluster install)");
        return;
    }
    for (row, quantity) in [
        ("bank.stat", "time of all files"),
        ("bank.latency", "time of a read"),
        ("bank.throughput", "time of all readers"),
        ("bank.sharing", "time of all readers"),
    ] {
        let findings = measured(row, 5);
        for cache in ["plain", "imca, 1 daemon", "strong, 1 daemon"] {
            let its = of(&findings, quantity, &[cache]);
            assert!(!its.is_empty() && its.iter().all(|one| one.spread.min > 0.0), "{row}: {cache}: {its:?}");
        }
    }
}
