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
