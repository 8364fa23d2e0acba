//! `paced`: a client that asks at a fixed rate, whether or not it is answered, and counts the time of an answer from when it was to be asked
//! for. One that waits for an answer before it asks again does not see how long others would have waited.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use clap::Parser;
use serde::Serialize;

use super::connection::{BUFFER, Connection, open_all, wait};
use super::threads;
use crate::child::{Answer, say};
use crate::stats::quantile;

pub(super) const ROLE: &str = "paced";

/// What is late by then is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks one page at a fixed rate.
#[derive(Clone, Parser)]
struct Part {
    /// Whom to ask.
    #[arg(long)]
    connect: SocketAddr,
    /// For which page.
    #[arg(long)]
    path: String,
    /// Requests a second, in all.
    #[arg(long)]
    rate: f64,
    /// Connections, in all.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    #[arg(long, default_value_t = 2)]
    threads: usize,
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
}

/// Times from when a request was to be sent to the last byte of its answer.
#[derive(Debug, Serialize)]
struct Found {
    answered: u64,
    /// Asked for, and not answered in time.
    lost: u64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
}

pub(super) fn ask(arguments: &[String]) -> Result<(), String> {
    let part: Part = threads::part(ROLE, arguments)?;
    if !(part.rate > 0.0 && part.seconds > 0.0 && part.connections >= part.threads && part.threads > 0) {
        return Err("rate and seconds are more than 0, and each thread has a connection".to_owned());
    }
    let clients: Vec<_> = (0..part.threads)
        .map(|thread| {
            let part = part.clone();
            std::thread::spawn(move || Client::new(&part, thread)?.run(&part, thread))
        })
        .collect();
    let mut taken = Vec::new();
    let mut lost = 0;
    for client in clients {
        let (times, missing) = client.join().map_err(|_| "a client panicked".to_owned())??;
        taken.extend(times);
        lost += missing;
    }
    taken.sort_unstable_by(f64::total_cmp);
    let at = |part: f64| quantile(&taken, part).unwrap_or_default();
    let found = Found {
        answered: taken.len() as u64,
        lost,
        p50_us: at(0.5),
        p99_us: at(0.99),
        p999_us: at(0.999),
        max_us: at(1.0),
    };
    say(&Answer::Done(found))
}

struct Client {
    epoll: OwnedFd,
    places: Vec<Place>,
    idle: Vec<usize>,
    /// When requests that wait for a connection were to be sent.
    due: VecDeque<Instant>,
    request: Vec<u8>,
    taken_us: Vec<f64>,
    scratch: Vec<u8>,
}

struct Place {
    connection: Connection,
    since: Instant,
}

impl Client {
    fn new(part: &Part, thread: usize) -> Result<Self, String> {
        let own = part.connections / part.threads + usize::from(thread < part.connections % part.threads);
        let (epoll, connections) = open_all(part.connect, own)?;
        let place = |connection| Place { connection, since: Instant::now() };
        let places: Vec<Place> = connections.into_iter().map(place).collect();
        let request = format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", part.path, part.connect).into_bytes();
        let idle = (0..places.len()).collect();
        let scratch = vec![0; BUFFER];
        Ok(Client { epoll, places, idle, due: VecDeque::new(), request, taken_us: Vec::new(), scratch })
    }

    fn run(mut self, part: &Part, thread: usize) -> Result<(Vec<f64>, u64), String> {
        let gap = Duration::from_secs_f64(part.threads as f64 / part.rate);
        // Threads take turns.
        let mut next = Instant::now() + gap.mul_f64(thread as f64 / part.threads as f64);
        let end = next + Duration::from_secs_f64(part.seconds);
        let mut asked = 0;
        let mut events = Vec::with_capacity(64);
        loop {
            let now = Instant::now();
            while next <= now && next < end {
                self.due.push_back(next);
                asked += 1;
                next += gap;
            }
            self.send()?;
            let all = next >= end && self.due.is_empty() && self.idle.len() == self.places.len();
            if all || now > end + PATIENCE {
                let lost = asked - self.taken_us.len() as u64;
                return Ok((self.taken_us, lost));
            }
            let until = if next < end { next } else { end + PATIENCE };
            wait(&self.epoll, &mut events, until.saturating_duration_since(Instant::now()))?;
            for event in &events {
                self.receive(event.data.u64() as usize)?;
            }
        }
    }

    fn send(&mut self) -> Result<(), String> {
        while let Some(&since) = self.due.front()
            && let Some(at) = self.idle.pop()
        {
            self.due.pop_front();
            let place = &mut self.places[at];
            place.since = since;
            place.connection.send(&self.request)?;
        }
        Ok(())
    }

    fn receive(&mut self, at: usize) -> Result<(), String> {
        let place = &mut self.places[at];
        if place.connection.receive(&mut self.scratch)?.is_some() {
            self.taken_us.push(place.since.elapsed().as_secs_f64() * 1e6);
            self.idle.push(at);
        }
        Ok(())
    }
}
