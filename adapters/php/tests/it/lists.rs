//! Pages of PHP behind the proxy and the relay.

use crate::site::{Site, put};

/// How statements are sent.
const WAYS: [&str; 4] = ["mysqli", "prepared", "pdo", "pdo-prepared"];

fn note(site: &Site, text: &str) -> String {
    let of = site.proxy.to_string();
    put(&std::env::temp_dir(), &format!("note-{of}"), text);
    format!("what=note&id=1&of={of}")
}

#[test]
fn a_page_that_is_proved_has_a_list_and_its_statements_are_tagged() {
    let Some(site) = Site::start(false, None) else { return };
    let asked = site.statements(|| {
        for way in WAYS {
            assert!(site.warm(&format!("what={way}&id=1")).contains("tea"), "{way}");
        }
    });
    let tagged: Vec<&str> = asked.lines().filter(|line| line.contains("FROM products")).collect();
    assert!(tagged.len() >= WAYS.len(), "{asked}");
    for line in &tagged {
        let is_execution_of_prepared = line.contains("Execute\t");
        assert!(line.contains("/* verbena_fill='") || is_execution_of_prepared, "{line}");
    }
    for way in WAYS {
        site.warm(&format!("what={way}&id=1"));
        site.warm(&format!("what={way}&id=2"));
    }
    // The application testified to the proxy, and not to its clients.
    assert!(!site.get("what=mysqli&id=1").head.contains("verbena-complete"));
    // A row changes: the pages that show it are no hits, and those of others are.
    site.write("UPDATE products SET price = 11 WHERE id = 1");
    for way in WAYS {
        let changed = site.get(&format!("what={way}&id=1"));
        assert!(!changed.is_hit() && changed.body.contains("11"), "{way}: {changed:?}");
        assert!(site.get(&format!("what={way}&id=2")).is_hit(), "{way}");
    }
}

#[test]
fn a_page_that_is_not_proved_depends_on_everything() {
    let Some(site) = Site::start(false, None) else { return };
    let page = note(&site, "before");
    site.warm(&page);
    site.write("UPDATE products SET price = 21 WHERE id = 2");
    assert!(!site.get(&page).is_hit(), "a row that it does not show");
    let _ = std::fs::remove_file(std::env::temp_dir().join(format!("note-{}", site.proxy)));
    // Nothing is proved where nothing is known to be the program.
    let Some(site) = Site::start(false, Some("/nowhere")) else { return };
    site.warm("what=mysqli&id=1");
    site.write("UPDATE products SET price = 22 WHERE id = 2");
    assert!(!site.get("what=mysqli&id=1").is_hit());
    // What is promised needs no proof.
    let Some(site) = Site::start(true, Some("/nowhere")) else { return };
    site.warm("what=mysqli&id=1");
    site.write("UPDATE products SET price = 23 WHERE id = 2");
    assert!(site.get("what=mysqli&id=1").is_hit());
}
