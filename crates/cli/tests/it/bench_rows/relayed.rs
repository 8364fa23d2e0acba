//! The row of the relay. No rate is held against anything.

use std::path::Path;

use super::{measured, of};

pub fn the_relay_is_measured_beside_direct_connections() {
    if !Path::new("/usr/lib/postgresql").exists() {
        println!("skipped: no PostgreSQL server in /usr/lib/postgresql");
        return;
    }
    let findings = measured("database.relay", 2);
    let is_there = |name: &str| findings.fabrics.iter().any(|found| found.name == name && found.measured);
    assert!(is_there("direct") && is_there("relay"), "{:?}", findings.fabrics);
    for way in ["direct", "relay", "HAProxy", "PgBouncer"].into_iter().filter(|way| is_there(way)) {
        let rates = of(&findings, "transactions", &[way]);
        assert_eq!(rates.len(), 3, "{way}");
        assert!(
            rates.iter().all(|one| one.rounds.iter().all(|round| round.count >= 80 && round.median > 0.0)),
            "{rates:?}"
        );
    }
    let over_direct = findings.ratios.iter().filter(|ratio| ratio.what.ends_with("over direct"));
    assert_eq!(over_direct.count(), 3, "{:?}", findings.ratios);
}
