//! Rows of the HTTP cache. What is counted is held against what is promised, and no time is.

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
