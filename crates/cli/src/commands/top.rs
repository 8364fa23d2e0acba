//! `verbena top`: what happens at a helper, as it happens.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use verbena_client::{Place, Socket};
use verbena_terms::Lapse;

use super::running;
use crate::commands::at_least_one;
use crate::config::{self, Flags, Whose};
use crate::error::{Error, Result};
use crate::output::{Format, output};
use crate::top::{Asker, History, Line, Reading, draw, heading, in_words};

/// How long an answer is waited for, at least.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the thread that waits for keys looks whether the window is still open.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Lines after which their heading is printed again.
const HEADING_EVERY: usize = 20;

/// Show what happens at a running helper, again and again: requests, hit ratio, latency, updates, refusals, and every node with view and lease.
///
/// It is the dashboard in a terminal; q, Escape and Ctrl-C end it. Rates and latencies are those of one node between two readings.
/// Where standard output is no terminal, or with --json or --count, it prints a line for each reading instead. When the helper goes away,
/// it says so, and goes on when the helper is back.
///
/// Without a configuration it is the first of this machine's nodes and proxies. `--cluster-name local-2` shows the one of that name.
///
/// Exit code 1 if the last reading failed, 3 if no helper runs at the start.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena top
  verbena top --cluster-name proxy-1 --interval 500ms
  verbena top --address 127.0.0.1:9090 --count 10
  verbena top --json | jq .hit_ratio")]
pub struct Command {
    /// The helper's HTTP: the loopback address of node.api, or the path of a unix socket. Without it the helper is looked for as
    /// `verbena status` does.
    #[arg(long, value_name = "ADDRESS", value_parser = place)]
    address: Option<Place>,
    /// Time between two readings.
    #[arg(long, value_name = "TIME", default_value_t = Lapse::seconds(1), value_parser = Lapse::or_seconds)]
    interval: Lapse,
    /// End after this many lines; without it, until Ctrl-C.
    #[arg(long, value_name = "NUMBER", value_parser = at_least_one())]
    count: Option<usize>,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    flags: Flags,
}

type Asked = verbena_client::Result<Reading>;

impl Command {
    /// Shows it until a key or a signal ends it.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        let places = match &self.address {
            Some(place) => vec![place.clone()],
            None => {
                let settings = config::load(file, &self.flags.0, Whose::Running)?.config.settings();
                settings.sockets()?.into_iter().map(Place::from).collect()
            }
        };
        let every = self.interval.0.max(Duration::from_millis(50));
        let asker = Asker::new(places, PATIENCE.max(every));
        let is_plain = self.format.json || self.count.is_some() || !std::io::stdout().is_terminal();
        running::block_on(async {
            // A node that is absent at the start is reported at once, and not in a window that covers the
            // reason.
            let first = asker.ask().await.map_err(|error| self.absent(error))?;
            let readings = read(asker, every);
            if is_plain { self.print(first, readings).await } else { watch(first, readings).await }
        })
    }

    /// No helper where one was looked for has its own exit code.
    fn absent(&self, error: verbena_client::Error) -> Error {
        match (&error, &self.address) {
            (verbena_client::Error::Nobody { at: Place::Unix(path), .. }, None) => {
                let running = path.parent().and_then(|directory| Socket::new(Some(directory), None).ok());
                let running = running.map(|socket| socket.others()).unwrap_or_default();
                verbena_client::Error::NoHelper { tried: path.clone(), running }.into()
            }
            (verbena_client::Error::Nobody { at, .. }, _) => Error::NothingThere { at: at.to_string() },
            _ => error.into(),
        }
    }

    async fn print(&self, first: Reading, mut readings: mpsc::Receiver<Asked>) -> Result<()> {
        let mut out = output();
        let mut history = History::default();
        history.answered(first);
        let (mut lines, mut turns) = (0, 0);
        while self.count.is_none_or(|count| turns < count) {
            let Some(asked) = readings.recv().await else { break };
            turns += 1;
            let reading = match asked {
                Ok(reading) => reading,
                Err(error) => {
                    anstream::eprintln!("verbena: {error}");
                    history.failed(error.to_string());
                    continue;
                }
            };
            let Some(moment) = history.answered(reading).cloned() else { continue };
            let reading = history.reading.as_ref().expect("invariant: it has just answered");
            if self.format.json {
                writeln!(out, "{}", serde_json::to_string(&Line::new(reading, &moment))?)?;
            } else {
                if lines % HEADING_EVERY == 0 {
                    writeln!(out, "{}", heading())?;
                }
                writeln!(out, "{}", in_words(reading, &moment))?;
            }
            out.flush()?;
            lines += 1;
        }
        if history.trouble.is_some() { Err(Error::No) } else { Ok(()) }
    }
}

/// Asks again and again, beside the task that shows the readings. Ends with the receiver.
fn read(asker: Asker, every: Duration) -> mpsc::Receiver<Asked> {
    let (tell, readings) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            // From an answer to the next question: were it from question to question, a slow answer would leave no time between two readings.
            tokio::time::sleep(every).await;
            if tell.send(asker.ask().await).await.is_err() {
                return;
            }
        }
    });
    readings
}

/// In a window. The terminal is as it was when this ends, in whichever way.
async fn watch(first: Reading, mut readings: mpsc::Receiver<Asked>) -> Result<()> {
    let system = |doing| move |source| Error::System { doing, source };
    let mut terminate = signal(SignalKind::terminate()).map_err(system("listen for signals"))?;
    let mut hangup = signal(SignalKind::hangup()).map_err(system("listen for signals"))?;
    // Restores the terminal on a panic, too.
    let mut window = Window(ratatui::try_init().map_err(system("use the terminal"))?);
    let mut keys = keys();
    let mut history = History::default();
    history.answered(first);
    loop {
        window.0.draw(|frame| draw(frame, &history)).map_err(system("draw in the terminal"))?;
        tokio::select! {
            asked = readings.recv() => match asked {
                Some(Ok(reading)) => drop(history.answered(reading).is_some()),
                Some(Err(error)) => history.failed(error.to_string()),
                None => return Ok(()),
            },
            key = keys.recv() => match key {
                Some(Key::Redraw) => {}
                Some(Key::Quit) | None => return Ok(()),
            },
            _ = terminate.recv() => return Ok(()),
            _ = hangup.recv() => return Ok(()),
        }
    }
}

/// The terminal, while this program draws on it.
struct Window(ratatui::DefaultTerminal);

impl Drop for Window {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

enum Key {
    Quit,
    Redraw,
}

/// The keys that mean something, from a thread that waits for them. It ends soon after the receiver.
fn keys() -> mpsc::Receiver<Key> {
    let (tell, keys) = mpsc::channel(8);
    std::thread::spawn(move || {
        while !tell.is_closed() {
            let key = match event::poll(LOOK_EVERY) {
                Ok(false) => continue,
                Ok(true) => event::read().map(meaning),
                Err(error) => Err(error),
            };
            // A terminal that cannot be read any more is gone.
            if let Some(key) = key.unwrap_or(Some(Key::Quit))
                && tell.blocking_send(key).is_err()
            {
                return;
            }
        }
    });
    keys
}

fn meaning(event: Event) -> Option<Key> {
    match event {
        Event::Key(key) if key.kind == KeyEventKind::Press => match key.code {
            KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Quit),
            KeyCode::Char('l') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Redraw),
            _ => None,
        },
        Event::Resize(..) => Some(Key::Redraw),
        _ => None,
    }
}

fn place(given: &str) -> std::result::Result<Place, String> {
    let is_address = given.parse::<std::net::SocketAddr>().is_ok();
    if !is_address && !given.starts_with('/') && !given.starts_with("http://") {
        return Err(
            "not IP:PORT of node.api, for example 127.0.0.1:9090, nor the absolute path of a unix socket".into()
        );
    }
    let text = if is_address { format!("http://{given}") } else { given.to_owned() };
    text.parse().map_err(|error: verbena_client::Error| error.to_string())
}
