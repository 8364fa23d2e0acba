//! Rows of the HTTP cache. What is counted is held against what is promised, and no time is.

use std::path::Path;

use super::{measured, of};

pub fn many_clients_ask_for_one_page_at_once() {
    let findings = measured("http.herd", 2);
    for cache in ["coherent", "standard"] {
        let asked = of(&findings, "requests at the application", &[cache]);
        let rounds = asked.iter().flat_map(|one| &one.rounds);
        assert!(rounds.clone().all(|round| round.count == 1_000 && round.median >= 1.0), "{asked:?}");
        // Connections that reach the proxy after the page has come have it from the store.
        assert!(asked.iter().all(|one| one.spread.median == 1.0), "{asked:?}");
        let unkept = of(&findings, "last answer that may not be kept over the time of one", &[cache]);
        assert!(unkept.iter().all(|one| one.rounds.iter().all(|round| round.count == 100)), "{unkept:?}");
    }
    let claims = findings.ratios.iter().filter(|ratio| ratio.claim.is_some());
    assert_eq!(claims.count(), 6, "{:?}", findings.ratios);
}

pub fn hits_are_counted_beside_other_caches() {
    if !Path::new("/usr/bin/h2load").exists() {
        println!("skipped: h2load is not installed (scripts/setup-debian.sh compare)");
        return;
    }
    let findings = measured("http.hits", 12);
    for cache in ["coherent", "standard"] {
        let rates = of(&findings, "hits", &[cache]);
        assert!(rates.len() >= 3 && rates.iter().all(|one| one.spread.min > 0.0), "{rates:?}");
    }
}

pub fn what_was_purged_is_not_answered_again() {
    // A kill and a pause of each arm at the least.
    let findings = measured("http.purge", 20);
    for cache in ["shm", "tcp"] {
        for quantity in ["answers no older than acknowledged purges", "hits", "acknowledged purges beside no fault"] {
            let what = format!("{quantity}, {cache}");
            let ratio = findings.ratios.iter().find(|ratio| ratio.what == what).unwrap();
            assert!(ratio.claim.as_ref().is_some() && !ratio.under.contains(" 0 "), "{ratio:?}");
            assert!(
                quantity.starts_with("answers").then_some(ratio.spread.min).is_none_or(|share| share == 1.0),
                "{ratio:?}"
            );
        }
        let purged = of(&findings, "acknowledged purges", &[cache]);
        let purged: f64 = purged.iter().flat_map(|one| &one.rounds).map(|round| round.median).sum();
        assert!(purged >= 100.0, "{purged} purges");
    }
}

pub fn the_module_for_apache_asks_before_each_hit() {
    let module = "/usr/lib/apache2/modules/mod_verbena.so";
    if !Path::new(module).exists() {
        println!("skipped: there is no {module} (make -C adapters/httpd install)");
        return;
    }
    let findings = measured("httpd.verify", 4);
    let rates = |variant| of(&findings, "throughput", &["single", variant]);
    for variant in ["no cache", "checks nothing", "mod_verbena"] {
        assert_eq!(rates(variant).len(), 3, "{variant}");
        assert!(rates(variant).iter().all(|one| one.spread.min > 0.0), "{variant}");
    }
    assert_eq!(of(&findings, "read of a word", &["IPC-Verify"]).len(), 3);
    assert_eq!(findings.ratios.iter().filter(|ratio| ratio.what == "IPC-Verify, of a hit").count(), 3);
}
