//! Floods: many pages, long bodies, slow readers and senders. All is bounded. What measures the memory of the process has one of its own.

use std::io::{Read, Write};
use std::time::Duration;

use verbena_testkit::programs::alone;

use crate::scene::{Client, Scene};

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn a_long_body_passes_in_constant_memory() {
    alone("memory::a_long_body_passes_in_constant_memory", pass_a_long_body);
}

fn pass_a_long_body() {
    const BYTES: usize = 100 << 20;
    let scene = Scene::new();
    let mut client = scene.client();
    client.get("/film");
    let mut asked = scene.origin.asked("/film");
    let before = resident();
    let sending = std::thread::spawn(move || {
        let piece = vec![b'x'; 1 << 20];
        asked.says(&format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n"));
        for _ in 0..BYTES / piece.len() {
            asked.stream.write_all(&piece).unwrap();
        }
    });
    client.head().has(200).said("detail=too-large");
    // The client takes its time at first.
    std::thread::sleep(Duration::from_millis(100));
    let (mut read, mut most, mut buffer) = (client.left(), 0, vec![0; 1 << 18]);
    while read < BYTES {
        match client.stream.read(&mut buffer).unwrap() {
            0 => panic!("cut after {read}"),
            n => read += n,
        }
        most = most.max(resident());
    }
    sending.join().unwrap();
    let grown = most.saturating_sub(before) >> 20;
    println!("{grown} MiB for a body of {} MiB", BYTES >> 20);
    assert!(grown < 24, "{grown} MiB for one body");
}

#[test]
fn a_flood_of_pages_stays_within_the_memory_of_the_store() {
    alone("memory::a_flood_of_pages_stays_within_the_memory_of_the_store", flood_with_pages);
}

fn flood_with_pages() {
    const MEMORY: u64 = 8 << 20;
    let scene = Scene::with(|config| config.memory.0 = MEMORY);
    let mut client = scene.client();
    let mut fetch = |page: usize| {
        let path = format!("/{page}");
        client.get(&path);
        // Small pages with many headers cost most beside their bodies; the first byte comes apart from the rest now and then.
        let lines: Vec<String> = (0..10).map(|n| format!("X-Header-{n}: {page}")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        scene.origin.asked(&path).answers(&lines, &"x".repeat(page % 2000));
        client.answer().has(200);
    };
    // What is made once is not counted.
    (0..500).for_each(&mut fetch);
    let before = resident();
    (500..12_000).for_each(&mut fetch);
    let grown = resident().saturating_sub(before);
    let kept = scene.gauge("verbena_proxy_store_bytes") as u64;
    println!("{} KiB for {} KiB of pages", grown >> 10, kept >> 10);
    assert!(kept <= MEMORY, "{kept} bytes kept");
    assert!(kept > MEMORY / 2, "only {kept} bytes kept: not full");
    assert!(grown < 2 * MEMORY, "{grown} bytes for a store of {MEMORY}");
}

#[test]
fn more_connections_than_may_be_wait_and_slow_ones_make_room() {
    let scene = Scene::with(|config| {
        config.connections = 20;
        config.client_timeout.0 = Duration::from_millis(300);
    });
    // Some send half a head, some half a body.
    let slow: Vec<Client> = (0..20)
        .map(|n| {
            let mut client = scene.client();
            client.send(match n % 2 {
                0 => "GET / HTTP/1.1\r\nHost:",
                _ => "POST / HTTP/1.1\r\nHost: shop\r\nContent-Length: 9\r\n\r\nx",
            });
            client
        })
        .collect();
    scene.comes("the limit", |scene| scene.gauge("verbena_proxy_connections") == 20.0);
    let mut client = scene.client();
    client.get("/");
    client.waits();
    scene.origin.asked("/").page("one");
    client.answer().is(200, "one");
    assert!(scene.counter("verbena_proxy_delayed_connections_total") >= 1);
    for (n, mut client) in slow.into_iter().enumerate() {
        match n % 2 {
            0 => drop(client.answer().has(408).said("detail=head-slow")),
            _ => drop(client.answer().has(408).said("detail=client-slow")),
        }
    }
    for reason in ["client-slow", "head-slow"] {
        assert_eq!(scene.counted("verbena_proxy_misses_total", ("reason", reason)), 10, "{reason}");
    }
    scene.origin.is_left_alone();
}
