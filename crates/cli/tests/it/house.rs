//! The rules of the house that can be checked: floors, what a `lib.rs` holds, file lengths, reasons for dependencies, where tests stand.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

/// The floors of docs/internals/ARCHITECTURE.md. A crate imports only from floors below its own.
const FLOORS: [(i32, &[&str]); 8] = [
    (-1, &["terms"]),
    (0, &["fabric", "cluster", "ipc", "listening", "metrics", "namespaces", "protocol"]),
    (1, &["client", "etcd", "memcache", "service"]),
    (2, &["lock", "memory", "monitor", "reads", "sqlite", "wan", "transfer"]),
    (3, &["content", "caching", "statements", "coop", "relay", "bank"]),
    (4, &["node", "pool", "proxy", "database", "bench", "ftp", "mount"]),
    (5, &["cli"]),
    // Above all, so that no program can import it.
    (6, &["testkit"]),
];

/// Before a file passes about 500 lines ask what second thing it has begun to do; here the asking ends.
const LONG: usize = 550;

/// For tests alone.
const TESTKIT: &str = "verbena-testkit";

/// Test programs beside a crate's `it`, and why.
const PROGRAMS_BESIDE: [(&str, &str, &str); 0] = [];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn floor(package: &str) -> Option<i32> {
    let name = package.strip_prefix("verbena-")?;
    FLOORS.iter().find(|(_, crates)| crates.contains(&name)).map(|(floor, _)| *floor)
}

fn dependencies(package: &Value) -> impl Iterator<Item = (&str, bool)> {
    let list = package["dependencies"].as_array().unwrap();
    list.iter().map(|dependency| (dependency["name"].as_str().unwrap(), dependency["kind"] == "dev"))
}

#[test]
fn a_crate_imports_only_from_floors_below_its_own() {
    let mut checked = 0;
    for package in &packages() {
        let name = package["name"].as_str().unwrap();
        if !package["manifest_path"].as_str().unwrap().starts_with(root().join("crates").to_str().unwrap()) {
            continue;
        }
        let own =
            floor(name).unwrap_or_else(|| panic!("{name} has no floor in docs/internals/ARCHITECTURE.md and here"));
        for (dependency, _) in dependencies(package).filter(|(name, is_dev)| name.starts_with("verbena-") && !is_dev) {
            let below = floor(dependency).unwrap_or_else(|| panic!("{name} imports {dependency}, which has no floor"));
            assert!(below < own, "{name} (floor {own}) imports {dependency} (floor {below})");
            checked += 1;
        }
    }
    assert!(checked > 20, "only {checked} imports were looked at");
}

/// The client alone; tests have their kit besides, the package for Python a WAN in a box, the extension for SQLite its file system, the library for C what an HTTP cache may store, and the translators of GlusterFS daemons of memcached.
#[test]
fn an_adapter_imports_the_client_alone() {
    let mut checked = 0;
    for package in &packages() {
        let name = package["name"].as_str().unwrap();
        if !package["manifest_path"].as_str().unwrap().starts_with(root().join("adapters").to_str().unwrap()) {
            continue;
        }
        let is_kit = |(name, is_dev): &(&str, bool)| *is_dev && *name == TESTKIT;
        let imports = dependencies(package).filter(|import| import.0.starts_with("verbena-") && !is_kit(import));
        for (dependency, _) in imports {
            let others = [
                ("verbena-python", "verbena-wan"),
                ("verbena-sqlite-extension", "verbena-sqlite"),
                ("verbena-capi", "verbena-caching"),
                ("verbena-capi", "verbena-terms"),
                ("verbena-httpd", "verbena-capi"),
                ("verbena-gluster", "verbena-bank"),
            ];
            assert!(
                dependency == "verbena-client" || others.contains(&(name, dependency)),
                "{dependency} is imported by {name}"
            );
            checked += 1;
        }
    }
    assert!(checked > 0, "no adapter was looked at");
}

#[test]
fn every_dependency_has_its_reason() {
    let reasons = std::fs::read_to_string(root().join("docs/internals/DEPENDENCIES.md")).unwrap();
    let explained: BTreeSet<&str> = reasons
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next())
        .flat_map(|cell| cell.split(", "))
        .map(|name| name.split(' ').next().unwrap())
        .collect();
    let mut missing = BTreeSet::new();
    let mut used = BTreeSet::new();
    for package in &packages() {
        for (dependency, _) in dependencies(package).filter(|(name, _)| !name.starts_with("verbena-")) {
            used.insert(dependency.to_owned());
            if !explained.contains(dependency) {
                missing.insert(dependency.to_owned());
            }
        }
    }
    assert!(missing.is_empty(), "no line in docs/internals/DEPENDENCIES.md says why: {missing:?}");
    let stale: Vec<&&str> =
        explained.iter().filter(|name| !used.contains(**name) && !["crate", "libfuzzer-sys"].contains(name)).collect();
    assert!(stale.is_empty(), "docs/internals/DEPENDENCIES.md explains what is not used: {stale:?}");
}

/// Of each row of a table in docs/internals/CONFORMANCE.md the last cell names tests.
#[test]
fn each_test_that_conformance_names_exists() {
    let text = std::fs::read_to_string(root().join("docs/internals/CONFORMANCE.md")).unwrap();
    let rows = text.split("\n## ").filter(|part| part.contains("| test |"));
    let rows = rows.flat_map(str::lines).filter(|line| line.starts_with("| ") && !line.starts_with("| section"));
    let code: String =
        rust_files(&["crates"]).iter().map(|file| std::fs::read_to_string(file).unwrap_or_default()).collect();
    let mut checked = 0;
    for row in rows {
        let tests = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test: {row}");
        for name in names {
            assert!(code.contains(&format!("fn {name}(")), "there is no test {name}: {row}");
            checked += 1;
        }
    }
    assert!(checked > 80, "{checked} tests were looked for");
}

#[test]
fn a_lib_file_says_what_the_crate_is_and_names_it() {
    let folders = ["crates", "adapters"].map(|folder| std::fs::read_dir(root().join(folder)).unwrap());
    for entry in folders.into_iter().flatten() {
        let path = entry.unwrap().path().join("src/lib.rs");
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        assert!(text.starts_with("//! "), "{} does not open with the idea", path.display());
        for line in text.lines() {
            let line = line.trim_start();
            for item in ["fn ", "pub fn ", "struct ", "pub struct ", "enum ", "pub enum ", "impl ", "trait "] {
                assert!(!line.starts_with(item), "{}: {line}: lib.rs only re-exports", path.display());
            }
        }
    }
}

/// Every `Format::new` outside tests: magic, version.
fn formats() -> BTreeMap<String, u16> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() && !path.ends_with("tests") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let code = text.split("\nmod tests {").next().unwrap();
                for one in code.split("Format::new(*b\"").skip(1) {
                    let (magic, rest) = one.split_once("\", ").unwrap();
                    let version = rest.split(')').next().unwrap().parse().unwrap();
                    assert_eq!(found.insert(magic.to_owned(), version), None, "two formats are marked {magic}");
                }
            }
        }
    }
    found
}

#[test]
fn every_format_is_listed_with_its_version_and_stands_behind_the_door() {
    let text = std::fs::read_to_string(root().join("docs/internals/ARCHITECTURE.md")).unwrap();
    let code = formats();
    assert!(code.len() > 20, "only {code:?}");
    // Rows are: | `VCNT` 1 | what it is | between whom |
    let row = |line: &str| -> Option<(String, (u16, bool))> {
        let mut cells = line.strip_prefix("| `")?.split(" |");
        let (magic, version) = cells.next()?.split_once("` ")?;
        let is_between_nodes = cells.nth(1)?.trim_start_matches(['|', ' ']).starts_with("nodes");
        Some((magic.to_owned(), (version.parse().ok()?, is_between_nodes)))
    };
    let listed: BTreeMap<String, (u16, bool)> = text.lines().filter_map(row).collect();
    let versions: BTreeMap<String, u16> =
        listed.iter().map(|(magic, (version, _))| (magic.clone(), *version)).collect();
    assert_eq!(versions, code, "the formats of docs/internals/ARCHITECTURE.md and those of the code");
    let door = code["VCLU"];
    let behind = listed.iter().filter(|(magic, (_, between))| *between && *magic != "VCLU");
    let behind = behind.map(|(magic, (version, _))| format!("{magic} {version}")).collect::<Vec<_>>().join(", ");
    let line = format!("`VCLU` {door} stands for {behind}.");
    let why =
        "whoever changes what is between nodes raises VCLU as well, or a node that others cannot speak with is let in";
    assert!(text.contains(&line), "docs/internals/ARCHITECTURE.md does not say: {line}\n{why}");
}

/// The Rust files below these folders.
fn rust_files(folders: &[&str]) -> Vec<PathBuf> {
    let mut found = vec![];
    let mut folders: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    assert!(found.len() > 100, "only {} files were found", found.len());
    found
}

#[test]
fn no_file_has_grown_long() {
    let mut long = BTreeMap::new();
    for path in rust_files(&["crates", "examples", "adapters", "fuzz"]) {
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        if lines > LONG {
            long.insert(path.strip_prefix(root()).unwrap().to_owned(), lines);
        }
    }
    assert!(long.is_empty(), "these files have begun to do a second thing: {long:?}");
}

#[test]
fn no_module_is_in_the_folder_of_another_crate() {
    for path in rust_files(&["crates", "examples", "adapters"]) {
        let own: PathBuf = path.strip_prefix(root()).unwrap().components().take(2).collect();
        let text = std::fs::read_to_string(&path).unwrap();
        for line in text.lines() {
            let Some(module) = line.trim_start().strip_prefix("#[path = \"") else { continue };
            let mut leads_to = path.parent().unwrap().to_owned();
            for part in module.split('"').next().unwrap().split('/') {
                if part == ".." { _ = leads_to.pop() } else { leads_to.push(part) }
            }
            let path = path.display();
            assert!(leads_to.starts_with(root().join(&own)), "{path}: what crates share is in crates/testkit: {line}");
        }
    }
}

/// Every program is linked anew with each change, and waits for the one before it.
#[test]
fn the_tests_of_a_crate_are_one_program() {
    let mut checked = 0;
    for package in &packages() {
        let name = package["name"].as_str().unwrap();
        let targets = package["targets"].as_array().unwrap().iter();
        for target in targets.filter(|target| target["kind"] == json!(["test"])) {
            let program = target["name"].as_str().unwrap();
            let is_allowed = PROGRAMS_BESIDE.iter().any(|(package, beside, _)| (*package, *beside) == (name, program));
            assert!(program == "it" || is_allowed, "{name}: the tests of {program} belong into tests/it");
            checked += 1;
        }
    }
    assert!(checked > 10, "only {checked} programs were looked at");
}

#[test]
fn what_tests_share_is_in_no_program() {
    let mut checked = 0;
    for package in &packages() {
        for (_, is_dev) in dependencies(package).filter(|(name, _)| *name == TESTKIT) {
            assert!(is_dev, "{}: {TESTKIT} is for [dev-dependencies]", package["name"]);
            checked += 1;
        }
    }
    assert!(checked > 3, "only {checked} imports were looked at");
}
