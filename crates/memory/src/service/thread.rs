//! The thread of the service: it waits for what comes first, of requests, messages, answers and deadlines.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::mpsc;
use verbena_fabric::contacts::{Opened, Opening};
use verbena_fabric::{Error, Message as Arrived};
use verbena_terms::{BootClock, Clock};

use super::driver::Driver;
use super::{Command, Told};
use crate::{MemoryOptions, RequestId};

/// Requests that are begun before anything else is looked at.
const AT_ONCE: usize = 64;

pub(super) fn spawn(options: MemoryOptions, commands: mpsc::Receiver<Command>) -> verbena_fabric::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| Error::system("a runtime for memory", error))?;
    std::thread::Builder::new()
        .name("memory".into())
        .spawn(move || {
            let guard = AbortOnPanic;
            runtime.block_on(run(options, commands));
            std::mem::forget(guard);
        })
        .map_err(|error| Error::system("a thread for memory", error))?;
    Ok(())
}

/// Puts of which nobody hears hold up every program of the node: a process in which they are is worse than none.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        std::process::abort();
    }
}

enum Woken {
    Command(Option<Command>),
    Opened(Opened),
    Message(Arrived),
    Answered,
}

async fn run(options: MemoryOptions, mut commands: mpsc::Receiver<Command>) {
    let mut driver = Driver::new(options, Arc::new(BootClock));
    let mut told: HashMap<RequestId, Told> = HashMap::new();
    // As many as there are members and homes at the most.
    let (opened, mut openings) = mpsc::unbounded_channel();
    loop {
        for (id, answer) in driver.answers() {
            if let Some(tell) = told.remove(&id) {
                tell(answer);
            }
        }
        for opening in driver.openings() {
            open_elsewhere(opening, opened.clone());
        }
        let patience = driver.next_deadline().since(BootClock.now());
        let woken = tokio::select! {
            biased;
            woken = poll_fn(|context| {
                if let Poll::Ready(message) = driver.poll_arrival(context) {
                    return Poll::Ready(Woken::Message(message));
                }
                driver.poll_answered(context).map(|()| Woken::Answered)
            }) => woken,
            Some(opened) = openings.recv() => Woken::Opened(opened),
            command = commands.recv() => Woken::Command(command),
            () = tokio::time::sleep(patience.max(Duration::from_micros(1))) => Woken::Answered,
        };
        match woken {
            Woken::Command(None) => return,
            Woken::Command(Some(command)) => {
                act(command, &mut driver, &mut told);
                for _ in 0..AT_ONCE {
                    let Ok(command) = commands.try_recv() else { break };
                    act(command, &mut driver, &mut told);
                }
            }
            Woken::Opened(opened) => driver.opened(opened),
            Woken::Message(message) => driver.turn(Some(message)),
            Woken::Answered => driver.turn(None),
        }
    }
}

fn act(command: Command, driver: &mut Driver, told: &mut HashMap<RequestId, Told>) {
    match command {
        Command::Life { fabric, lease, begun } => begun(driver.life_begins(fabric, &lease)),
        Command::LifeEnds(done) => {
            driver.life_ends();
            done();
        }
        Command::View { view, prepared } => {
            driver.view(&view);
            prepared(view.number());
        }
        Command::Request { id, wish, patience, told: tell } => {
            told.insert(id, tell);
            driver.request(id, wish, patience);
        }
    }
}

fn open_elsewhere(opening: Opening, opened: mpsc::UnboundedSender<Opened>) {
    tokio::task::spawn_blocking(move || {
        // An error means that the thread has ended.
        let _ = opened.send(opening.run());
    });
}
