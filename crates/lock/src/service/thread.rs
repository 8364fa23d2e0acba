//! The thread around the driver: waits for what arrives, lets the driver take its turn, and tells who asked.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use verbena_fabric::Error;
use verbena_fabric::Message as Arrived;

use super::driver::{Answered, Driver};
use super::life::{Life, Opening};
use super::{Command, Shared, Told};
use crate::{Answer, RequestId};

pub(super) fn spawn(
    driver: Driver,
    shared: Arc<Shared>,
    commands: mpsc::WeakUnboundedSender<Command>,
    received: mpsc::UnboundedReceiver<Command>,
) -> verbena_fabric::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| Error::system("a runtime for locks", error))?;
    let run = move || {
        let desk = Desk { driver, shared, commands, askers: HashMap::new() };
        let run = std::panic::AssertUnwindSafe(|| runtime.block_on(desk.run(received)));
        if std::panic::catch_unwind(run).is_err() {
            // Grants that are passed on to nobody hold up every node: a process without this thread is worse than none.
            std::process::abort();
        }
    };
    std::thread::Builder::new()
        .name("locks".into())
        .spawn(run)
        .map_err(|error| Error::system("a thread for locks", error))?;
    Ok(())
}

struct Desk {
    driver: Driver,
    shared: Arc<Shared>,
    commands: mpsc::WeakUnboundedSender<Command>,
    /// Whom to tell what becomes of a request.
    askers: HashMap<RequestId, Told>,
}

impl Desk {
    /// Until nobody holds a sender of commands.
    async fn run(mut self, mut received: mpsc::UnboundedReceiver<Command>) {
        loop {
            let patience = self.driver.patience();
            let woken = tokio::select! {
                biased;
                command = received.recv() => match command {
                    Some(command) => {
                        self.command(command);
                        // Before the lease is looked at again: what is granted and lost at once is told in this order.
                        self.tell_all();
                        None
                    }
                    None => return,
                },
                message = arrival(&mut self.driver.life) => Some(message),
                () = pause(patience) => None,
            };
            self.driver.turn(woken);
            for opening in self.driver.openings() {
                open_elsewhere(opening, self.commands.clone());
            }
            self.tell_all();
            self.shared.complained.store(self.driver.complained(), Ordering::Relaxed);
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::LifeBegins { fabric, lease, reply } => {
                // Who begins a life waits for this; if not, the life is as good.
                let _ = reply.send(self.driver.life_begins(fabric, &lease));
            }
            Command::LifeEnds(reply) => {
                self.driver.life_ends();
                let _ = reply.send(());
            }
            Command::View { view, prepared } => {
                self.driver.view(&view);
                prepared(view.number());
            }
            Command::Acquire { id, asker, name, request, told } => {
                self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
                self.askers.insert(id, told);
                self.driver.acquire(id, asker, name, request);
            }
            Command::Release { id, done } => {
                let released = self.driver.release(id);
                if released.is_err() {
                    // Whoever waits for it does not any more.
                    self.driver.forget(id);
                }
                self.askers.remove(&id);
                done(released);
            }
            Command::Downgrade { id, done } => done(self.driver.downgrade(id)),
            Command::Forget(id) => {
                self.driver.forget(id);
                self.askers.remove(&id);
            }
            Command::Opened(opened) => self.driver.opened(*opened),
        }
    }

    fn tell_all(&mut self) {
        for Answered { id, answer, losses } in self.driver.answers() {
            let is_over = !matches!(answer, Answer::Granted(..));
            if let Some(told) = self.askers.get_mut(&id) {
                told(answer, losses);
            }
            if is_over {
                self.askers.remove(&id);
            }
        }
    }
}

/// The next message. Without a life there is none.
async fn arrival(life: &mut Option<Life>) -> Arrived {
    match life {
        Some(life) => life.inbox.next().await,
        None => std::future::pending().await,
    }
}

async fn pause(patience: Duration) {
    if patience.is_zero() {
        std::thread::yield_now();
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(patience).await;
    }
}

fn open_elsewhere(opening: Opening, commands: mpsc::WeakUnboundedSender<Command>) {
    tokio::task::spawn_blocking(move || {
        let opened = opening.run();
        if let Some(commands) = commands.upgrade() {
            // If the thread has ended meanwhile, nobody needs it.
            let _ = commands.send(Command::Opened(Box::new(opened)));
        }
    });
}
