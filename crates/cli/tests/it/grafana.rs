//! The metrics of a running proxy, what docs/reference/METRICS.md says of them, and what the dashboard for Grafana asks for: the same.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use verbena_testkit::programs::verbena;

use crate::common::traffic::started;

fn file(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap()
}

/// Name, kind, and whether it is written without labels, of every metric that docs/reference/METRICS.md has a line for.
fn documented() -> Vec<(String, String, Vec<String>)> {
    let page = file("docs/reference/METRICS.md");
    let lines = page.lines().filter_map(|line| line.strip_prefix("| `verbena_"));
    let metric = |line: &str| {
        let (name, rest) = line.split_once('`').unwrap();
        let (name, labels) = name.split_once('{').unwrap_or((name, ""));
        let labels = labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty());
        let kind = rest.split('|').nth(1).unwrap().split(',').next().unwrap().trim();
        (format!("verbena_{name}"), kind.to_owned(), labels.map(str::to_owned).collect())
    };
    lines.map(metric).collect()
}

/// Of a proxy that runs with all that has metrics: names and kinds. No database answers its relay.
fn registered() -> Vec<(String, String)> {
    let directory = tempfile::tempdir().unwrap();
    let arguments =
        ["proxy", "--json", "--listen", "127.0.0.1:0", "--origin", "http://127.0.0.1:9", "--node-api", "127.0.0.1:0"];
    let relay = [
        "--database",
        "mysql://user@127.0.0.1:9",
        "--database-listen",
        "127.0.0.1:0",
        "--database-capture",
        "true",
        "--database-scheme",
        "serialised",
    ];
    let places = ["--node-runtime", "run", "--node-state", "state"];
    let mut command = verbena(&[&arguments[..], &relay, &places].concat());
    let command = command.current_dir(directory.path()).stdin(Stdio::null()).stderr(Stdio::null());
    let (_proxy, line) = started(command, |line| line.contains(r#""event":"serving""#));
    let serving: Value = serde_json::from_str(&line).unwrap();
    let overview = format!("http://{}/overview", serving["api"].as_str().unwrap());
    let output = Command::new("curl").args(["-sS", "--max-time", "20", &overview]).output().unwrap();
    let overview: Value = serde_json::from_slice(&output.stdout).unwrap();
    let metrics = overview["metrics"]["metrics"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    metrics.iter().map(|metric| (text(&metric["name"]), text(&metric["kind"]))).collect()
}

#[test]
fn every_metric_is_documented_and_every_documented_one_is_there() {
    let kind = |kind: &str| if kind == "latency" { "histogram".to_owned() } else { kind.to_owned() };
    let found: BTreeSet<_> = registered().into_iter().map(|(name, found)| (name, kind(&found))).collect();
    let said: BTreeSet<_> = documented().into_iter().map(|(name, kind, _)| (name, kind)).collect();
    assert!(found.len() > 35, "only {} metrics", found.len());
    assert_eq!(found, said, "left: of a running proxy; right: docs/reference/METRICS.md");
}

fn panels(dashboard: &Value) -> &[Value] {
    dashboard["panels"].as_array().unwrap()
}

fn targets(panel: &Value) -> &[Value] {
    panel["targets"].as_array().map_or(&[], Vec::as_slice)
}

/// The words of an expression.
fn words(expression: &str) -> impl Iterator<Item = &str> {
    expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}

#[test]
fn the_dashboard_asks_for_what_there_is() {
    let metrics = documented();
    let dashboard: Value = serde_json::from_str(&file("docs/grafana/verbena.json")).unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let of_variables = variables.iter().filter_map(|variable| variable["definition"].as_str());
    let of_panels = panels(&dashboard).iter().flat_map(targets).map(|target| target["expr"].as_str().unwrap());
    let (mut asked, mut used) = (0, BTreeSet::new());
    for expression in of_panels.chain(of_variables) {
        for name in words(expression).filter(|word| word.starts_with("verbena_")) {
            let of_histogram = name.strip_suffix("_bucket");
            let metric = metrics.iter().find(|(known, kind, _)| match of_histogram {
                Some(base) => known == base && kind == "histogram",
                None => known == name && kind != "histogram",
            });
            let (name, kind, labels) = metric.unwrap_or_else(|| panic!("{name} is no metric: {expression}"));
            let is_rate = expression.contains(&format!("rate({name}"));
            assert_eq!(is_rate, kind != "gauge", "a {kind} in {expression}");
            let by = expression.split(" by (").skip(1).flat_map(|rest| rest.split(')').next().unwrap().split(", "));
            for label in by {
                let is_known = labels.iter().any(|known| known == label)
                    || label == "instance"
                    || (label == "le" && kind == "histogram");
                assert!(is_known, "{name} has no label {label}: {expression}");
            }
            used.insert(name.clone());
            asked += 1;
        }
    }
    assert!(asked > 40, "only {asked} metrics are asked for");
    let unseen: Vec<_> = metrics.iter().map(|(name, ..)| name).filter(|name| !used.contains(*name)).collect();
    let expected = [
        "verbena_ipc_requests_total",
        "verbena_ipc_mode_clients",
        "verbena_ipc_mode_requests_total",
        "verbena_ipc_dead_clients_total",
        "verbena_ipc_swept_queues_total",
    ];
    assert_eq!(unseen, expected, "are in no panel");
}

#[test]
fn the_dashboard_is_sound() {
    let dashboard: Value = serde_json::from_str(&file("docs/grafana/verbena.json")).unwrap();
    assert!(
        dashboard["schemaVersion"].as_u64().unwrap() >= 36
            && dashboard["uid"] == "verbena"
            && dashboard["title"] == "Verbena"
    );
    assert!(dashboard.get("id").is_none(), "an id belongs to one Grafana");
    let variables: Vec<_> = dashboard["templating"]["list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| variable["name"].as_str().unwrap())
        .collect();
    assert_eq!(variables, ["datasource", "job", "instance"]);
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its id is another's");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(w > 0 && h > 0 && x + w <= 24, "{title}: beyond the grid");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(cell), "{title} covers another at {cell:?}");
        }
        if panel["type"] == "row" {
            continue;
        }
        assert!(!panel["description"].as_str().unwrap().is_empty() && !targets(panel).is_empty(), "{title}");
        let mut references = BTreeSet::new();
        for part in targets(panel).iter().chain([panel]) {
            assert_eq!(part["datasource"]["uid"], "${datasource}", "{title}: of a certain Grafana");
        }
        for target in targets(panel) {
            assert!(references.insert(target["refId"].as_str().unwrap()), "{title}");
            let expression = target["expr"].as_str().unwrap();
            for pair in ["()", "{}", "[]"] {
                let [open, close] = [0, 1].map(|at| expression.matches(&pair[at..=at]).count());
                assert_eq!(open, close, "{pair} in {expression}");
            }
            assert!(expression.contains("instance=~\"$instance\""), "{title}: of all nodes: {expression}");
        }
    }
    assert!(ids.len() > 20, "only {} panels", ids.len());
}
