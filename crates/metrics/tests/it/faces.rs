//! One registry, several faces: they must say the same.

use std::time::Duration;

use verbena_metrics::{Counter, Latency, Registry, Snapshot};
use verbena_terms::Time;

fn shop() -> Snapshot {
    let registry = Registry::new();
    let requests =
        registry.family::<Counter, 2>("verbena_proxy_requests_total", "Requests", ["cache", "route"], 2).unwrap();
    requests.with(["hit", "/"]).add(3);
    requests.with(["miss", "a\"b\\c\nd"]).add(4);
    requests.with(["miss", "/more"]).add(5);
    registry.gauge("verbena_proxy_open_connections", "Connections that are open").unwrap().set(-2);
    registry.counter_from("verbena_fabric_sent_bytes_total", "Bytes sent", || 1 << 40).unwrap();
    registry.gauge_from("verbena_cluster_lease_left_seconds", "Lease left", || 0.25).unwrap();
    let latency =
        registry.family::<Latency, 1>("verbena_lock_acquire_seconds", "Time to acquire", ["mode"], 4).unwrap();
    for micros in [1, 10, 100, 1_000] {
        latency.with(["shared"]).record(Duration::from_micros(micros));
    }
    registry.snapshot(Time::from_nanos(42))
}

#[test]
fn the_text_is_openmetrics() {
    let text = shop().openmetrics();
    for line in [
        "# HELP verbena_proxy_requests Requests",
        "# TYPE verbena_proxy_requests counter",
        "verbena_proxy_requests_total{cache=\"hit\",route=\"/\"} 3",
        "verbena_proxy_requests_total{cache=\"miss\",route=\"a\\\"b\\\\c\\nd\"} 4",
        "verbena_proxy_requests_total{cache=\"other\",route=\"other\"} 5",
        "verbena_metrics_folded_total{metric=\"verbena_proxy_requests_total\"} 1",
        "verbena_proxy_open_connections -2.0",
        "verbena_fabric_sent_bytes_total 1099511627776",
        "verbena_cluster_lease_left_seconds 0.25",
        "# TYPE verbena_lock_acquire_seconds histogram",
        "verbena_lock_acquire_seconds_count{mode=\"shared\"} 4",
        "verbena_lock_acquire_seconds_sum{mode=\"shared\"} 0.001111",
        "verbena_lock_acquire_seconds_bucket{le=\"0.000012288\",mode=\"shared\"} 2",
        "verbena_lock_acquire_seconds_bucket{le=\"+Inf\",mode=\"shared\"} 4",
    ] {
        assert!(text.lines().any(|found| found == line), "no line {line} in:\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
    assert_eq!(text.lines().filter(|line| line.contains("_bucket{")).count(), 55);
}

#[test]
fn buckets_of_the_text_never_fall() {
    let text = shop().openmetrics();
    let counts: Vec<u64> = text
        .lines()
        .filter(|line| line.contains("_bucket{"))
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    assert!(counts.windows(2).all(|pair| pair[0] <= pair[1]), "{counts:?}");
    assert_eq!(counts.last(), Some(&4));
}

#[test]
fn the_json_says_the_same() {
    let json = shop().json();
    assert_eq!(json["at_ns"], 42);
    let metric =
        |name: &str| json["metrics"].as_array().unwrap().iter().find(|metric| metric["name"] == name).unwrap().clone();
    let requests = metric("verbena_proxy_requests_total");
    assert_eq!(requests["kind"], "counter");
    assert_eq!(requests["series"][0]["labels"]["cache"], "hit");
    assert_eq!(requests["series"][0]["value"], 3);
    assert_eq!(metric("verbena_fabric_sent_bytes_total")["series"][0]["value"], 1u64 << 40);
    let acquire = metric("verbena_lock_acquire_seconds");
    assert_eq!(acquire["kind"], "latency");
    assert_eq!(acquire["series"][0]["count"], 4);
    let p50 = acquire["series"][0]["p50_seconds"].as_f64().unwrap();
    assert!((p50 / 1e-5 - 1.0).abs() < 0.07, "{p50}");
}

#[test]
fn what_is_read_back_from_json_is_the_same() {
    let snapshot = shop();
    let read = Snapshot::from_json(snapshot.json()).unwrap();
    assert_eq!(read, snapshot);
    let acquire = read.latency("verbena_lock_acquire_seconds", &[]).unwrap();
    assert_eq!((acquire.count(), acquire.buckets().count()), (4, 4));
    // Another's JSON may have more in it, and may lack much.
    let other =
        serde_json::json!({"at_ns": 1, "more": true, "metrics": [{"name": "a", "kind": "gauge", "series": [{}]}]});
    assert_eq!(Snapshot::from_json(other).unwrap().gauge("a", &[]), Some(0.0));
    let broken = serde_json::json!({"at_ns": 1, "metrics": [{"name": "a", "kind": "colour", "series": []}]});
    assert!(Snapshot::from_json(broken).unwrap_err().to_string().contains("colour"));
}

#[test]
fn the_snapshot_sums_over_labels() {
    let snapshot = shop();
    assert_eq!(snapshot.counter("verbena_proxy_requests_total", &[]), Some(12));
    assert_eq!(snapshot.counter("verbena_proxy_requests_total", &[("cache", "hit")]), Some(3));
    assert_eq!(snapshot.counter("verbena_proxy_requests_total", &[("cache", "never")]), None);
    assert_eq!(snapshot.gauge("verbena_proxy_open_connections", &[]), Some(-2.0));
    assert_eq!(snapshot.latency("verbena_lock_acquire_seconds", &[]).unwrap().count(), 4);
}
