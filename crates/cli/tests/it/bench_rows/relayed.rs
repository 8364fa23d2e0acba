//! The rows of the relay. No rate is held against anything; that no answer of ours is stale is.

use std::path::Path;

use verbena_bench::Measurement;

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

pub fn sites_are_read_while_they_are_edited() {
    for (program, package) in [
        ("/usr/sbin/php-fpm8.2", "php8.2-fpm"),
        ("/usr/sbin/mariadbd", "mariadb-server"),
        ("/usr/sbin/apache2", "apache2-bin"),
    ] {
        if !Path::new(program).exists() {
            println!("skipped: {package} is not installed (scripts/setup-debian.sh site)");
            return;
        }
    }
    let sites: Vec<&str> =
        [("mediawiki", "/var/lib/mediawiki/index.php"), ("wordpress", "/usr/share/wordpress/wp-load.php")]
            .into_iter()
            .filter(|(_, file)| Path::new(file).exists())
            .map(|(site, _)| site)
            .collect();
    if sites.is_empty() {
        println!("skipped: neither mediawiki nor wordpress is installed (scripts/setup-debian.sh site)");
        return;
    }
    let findings = measured("database.site", 24);
    println!("{:#?}", findings.notes);
    let of_arm = |quantity: &str, arm: &str| -> Vec<&Measurement> {
        let is_its = |one: &&Measurement| one.quantity == quantity && one.labels[0].1 == arm;
        findings.measurements.iter().filter(is_its).collect()
    };
    for site in sites {
        for arm in ["invalidate all", "relay", "relay, tags", "relay, proofs"] {
            let what = format!("{site}: answers that are not stale, {arm}");
            let ratio = findings.ratios.iter().find(|ratio| ratio.what == what);
            assert!(ratio.is_some_and(|ratio| ratio.claim.is_some() && ratio.spread.min == 1.0), "{what}: {ratio:?}");
            let hits = of_arm("hits", &format!("{site}, {arm}"));
            assert!(hits.iter().any(|one| one.spread.max > 0.0), "{hits:?}");
        }
        let own = findings.fabrics.iter().find(|found| found.name == format!("{site}, own page cache"));
        assert_eq!(own.map(|own| own.measured), Some(site == "mediawiki"), "{own:?}");
        for arm in findings.fabrics.iter().filter(|found| found.measured && found.name.starts_with(site)) {
            for quantity in ["requests", "hits", "stale answers", "edits"] {
                assert_eq!(of_arm(quantity, &arm.name).len(), 3, "{quantity}: {arm:?}");
            }
        }
    }
}
