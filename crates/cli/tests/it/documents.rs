//! What the documents link to and name is there, and what they tell a reader to type does what they say.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use verbena_testkit::programs::path;

/// Folders with nothing of ours, or with what is made.
const ELSEWHERE: [&str; 4] = ["target", ".git", "node_modules", "corpus"];
/// Files in which a document may be named.
const TEXTS: [&str; 12] = ["md", "rs", "toml", "py", "sh", "js", "c", "h", "html", "json", "service", "yml"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The files of the repository with one of these endings, and those without any, relative to its root.
fn files(endings: &[&str]) -> Vec<PathBuf> {
    let mut found = vec![];
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_symlink() || ELSEWHERE.contains(&name) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_none_or(|ending| endings.iter().any(|one| ending == *one)) {
                found.push(path.strip_prefix(root()).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

fn documents() -> BTreeMap<PathBuf, String> {
    let is_document = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "md");
    let read = |path: PathBuf| (path.clone(), std::fs::read_to_string(root().join(path)).unwrap());
    files(&["md"]).into_iter().filter(is_document).map(read).collect()
}

/// Lines outside of blocks between fences.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        is_code ^= line.starts_with("```");
        !is_code
    })
}

/// `folder` and a relative path as one, without `..`.
fn joined(folder: &Path, relative: &str) -> PathBuf {
    let mut whole = folder.to_owned();
    for component in Path::new(relative).components() {
        match component {
            Component::ParentDir => _ = whole.pop(),
            Component::Normal(name) => whole.push(name),
            _ => {}
        }
    }
    whole
}

/// The targets of the links of a line: `](TARGET)`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|part| part.split(')').next()).filter(|target| !target.contains(' '))
}

/// How a heading is linked to.
fn anchor(heading: &str) -> String {
    // A link in a heading counts by its text.
    let mut text = String::new();
    for (number, part) in heading.trim_matches(['#', ' ']).split("](").enumerate() {
        text += if number == 0 { part } else { part.split_once(')').map_or(part, |(_, behind)| behind) };
    }
    let kept =
        text.to_lowercase().chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c)).collect::<String>();
    kept.replace(' ', "-")
}

fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for heading in prose(text).filter(|line| line.starts_with('#')) {
        let first = anchor(heading);
        let next = (1..).map(|number| format!("{first}-{number}"));
        let free = std::iter::once(first.clone()).chain(next).find(|name| !found.contains(name));
        found.extend(free);
    }
    found
}

#[test]
fn every_link_leads_somewhere() {
    let documents = documents();
    let mut broken = vec![];
    let mut checked = 0;
    for (path, text) in &documents {
        for target in prose(text).flat_map(links).filter(|target| !target.contains(':')) {
            checked += 1;
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { path.clone() } else { joined(path.parent().unwrap(), file) };
            let has_heading =
                || heading.is_empty() || documents.get(&file).is_none_or(|text| anchors(text).contains(heading));
            if !root().join(&file).exists() || !has_heading() {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
    assert!(checked > 300, "{checked} links were looked at");
}

/// In messages, help, comments and scripts too: `docs/...`.
#[test]
fn every_document_that_is_named_is_there() {
    let mut missing = vec![];
    let mut checked = 0;
    for path in files(&TEXTS) {
        let Ok(text) = std::fs::read_to_string(root().join(&path)) else { continue };
        for part in text.split("docs/").skip(1) {
            let end = part.find(|c: char| !c.is_ascii_alphanumeric() && !['/', '.', '-', '_'].contains(&c));
            let named = part[..end.unwrap_or(part.len())].trim_end_matches('.');
            if [".md", ".json", ".svg"].iter().any(|ending| named.ends_with(ending)) {
                checked += 1;
                if !root().join("docs").join(named).exists() {
                    missing.push(format!("{}: docs/{named}", path.display()));
                }
            }
        }
    }
    assert!(missing.is_empty(), "documents that are not there:\n{}", missing.join("\n"));
    assert!(checked > 100, "{checked} documents were looked for");
}

/// A reader finds each document from the list of all.
#[test]
fn every_document_is_in_the_list() {
    let documents = documents();
    let list = Path::new("docs/README.md");
    let listed: BTreeSet<PathBuf> =
        prose(&documents[list]).flat_map(links).map(|target| joined(Path::new("docs"), target)).collect();
    let missing: Vec<&PathBuf> =
        documents.keys().filter(|path| path.starts_with("docs") && *path != list && !listed.contains(*path)).collect();
    assert!(missing.is_empty(), "not in docs/README.md: {missing:?}");
}

/// The pages whose examples are run, and by which of the tests below; those that need a package of Python or Node are run by its script.
const STARTING: [&str; 1] = ["start.md"];
const LOCKING: [&str; 2] = ["locks.md", "howto/lock-a-cron-job.md"];
const EMULATING: [&str; 2] = ["wan.md", "howto/emulate-a-wan.md"];
const FRAMEWORKS: [&str; 6] = [
    "howto/django.md",
    "howto/express.md",
    "howto/flask.md",
    "howto/laravel.md",
    "howto/rails.md",
    "howto/wordpress.md",
];
const PURGING: [&str; 1] = ["howto/purge-from-jobs.md"];
const MACHINES: [&str; 1] = ["howto/several-machines.md"];
const KEPT_BY_ETCD: [&str; 1] = ["howto/etcd.md"];
const BY_SCRIPTS: [(&str, &str); 1] = [("howto/lock-from-python.md", "scripts/test-python.sh")];

fn run(pages: &[&str]) {
    let mut command = Command::new("python3");
    command.arg(root().join("scripts/run-page.py")).env("VERBENA", path("verbena"));
    let output = command.args(pages.iter().map(|page| root().join("docs").join(page))).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complaint}");
    for line in said.lines().filter(|line| line.starts_with("skipped: ")) {
        println!("{line}");
    }
}

#[test]
fn the_first_ten_minutes_go_as_they_are_told() {
    run(&STARTING);
}

#[test]
fn jobs_are_locked_as_it_is_told() {
    run(&LOCKING);
}

#[test]
fn a_wan_is_emulated_as_it_is_told() {
    run(&EMULATING);
}

#[test]
fn frameworks_are_configured_as_it_is_told() {
    run(&FRAMEWORKS);
}

#[test]
fn pages_are_purged_as_it_is_told() {
    run(&PURGING);
}

#[test]
fn machines_are_joined_as_it_is_told() {
    run(&MACHINES);
}

#[test]
fn etcd_keeps_a_cluster_as_it_is_told() {
    run(&KEPT_BY_ETCD);
}

#[test]
fn every_page_with_examples_is_run() {
    let for_readers = |path: &PathBuf| path.parent() == Some(Path::new("docs")) || path.starts_with("docs/howto");
    let with_examples = documents().into_iter().filter(|(path, text)| for_readers(path) && text.contains("\n```sh\n"));
    let found: BTreeSet<String> =
        with_examples.map(|(path, _)| path.strip_prefix("docs").unwrap().to_str().unwrap().to_owned()).collect();
    let by_scripts = BY_SCRIPTS.map(|(page, script)| {
        let text = std::fs::read_to_string(root().join(script)).unwrap();
        assert!(text.contains(&format!("docs/{page}")), "{script} does not run {page}");
        page
    });
    let lists: [&[&str]; 8] =
        [&STARTING, &LOCKING, &EMULATING, &FRAMEWORKS, &PURGING, &MACHINES, &KEPT_BY_ETCD, &by_scripts];
    let run: BTreeSet<String> = lists.concat().into_iter().map(str::to_owned).collect();
    assert_eq!(found, run, "left: pages with blocks of `sh`; right: those that are run");
}
