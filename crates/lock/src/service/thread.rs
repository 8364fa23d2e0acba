//! The thread around the driver: waits for what arrives, lets the driver take its turn, and tells who asked.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::mpsc;
use verbena_fabric::Error;
use verbena_fabric::Message as Arrived;
use verbena_terms::{BootClock, Clock, Time};

use super::driver::{Answered, Driver};
use super::life::{Life, Opening};
use super::{Attention, Closed, Command, Metrics, Shared, Told};
use crate::{Answer, Refusal, RequestId};

pub(super) fn spawn(
    driver: Driver,
    shared: Arc<Shared>,
    metrics: Metrics,
    commands: mpsc::WeakUnboundedSender<Command>,
    received: mpsc::UnboundedReceiver<Command>,
) -> verbena_fabric::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| Error::system("a runtime for locks", error))?;
    let run = move || {
        let desk =
            Desk { driver, shared, metrics, commands, asked: HashMap::new(), held: 0, is_closed: false, closing: None };
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
    /// Requests that have not ended.
    asked: HashMap<RequestId, Asked>,
    /// Of these, how many are held.
    held: i64,
    metrics: Metrics,
    is_closed: bool,
    /// Who is told when nothing is held any more, and when at the latest.
    closing: Option<(Time, Closed)>,
}

struct Asked {
    /// Whom to tell what becomes of it.
    told: Told,
    since: Time,
    is_held: bool,
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
                message = arrival(&mut self.driver) => message,
                () = pause(patience) => None,
            };
            self.driver.turn(woken);
            for opening in self.driver.openings() {
                open_elsewhere(opening, self.commands.clone());
            }
            self.tell_all();
            let is_over = |(until, _): &mut (Time, Closed)| self.held == 0 || BootClock.now() >= *until;
            if let Some((_, closed)) = self.closing.take_if(is_over) {
                closed();
            }
            self.metrics.held.set(self.held);
            self.metrics.waiting.set(self.asked.len() as i64 - self.held);
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
            Command::LeaseLost(reply) => {
                self.driver.look_at_lease();
                let _ = reply.send(());
            }
            Command::View { view, prepared } => {
                self.driver.view(&view);
                prepared(view.number());
            }
            Command::Acquire { id, asker, name, request, told } => {
                self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
                if self.is_closed {
                    let mut told = told;
                    return self.refuse(&mut told);
                }
                self.asked.insert(id, Asked { told, since: BootClock.now(), is_held: false });
                self.driver.acquire(id, asker, name, request);
            }
            Command::Release { id, done } => {
                let released = self.driver.release(id);
                if released.is_err() {
                    // Whoever waits for it does not any more.
                    self.driver.forget(id);
                }
                self.ended(id);
                done(released);
            }
            Command::Downgrade { id, done } => done(self.driver.downgrade(id)),
            Command::Forget(id) => {
                self.driver.forget(id);
                if self.ended(id) == Some(false) {
                    self.metrics.requests.cancelled.increment();
                }
            }
            Command::List { after, prefix, shown } => self.driver.list(after, prefix, shown),
            Command::Opened(opened) => self.driver.opened(*opened),
            Command::Close { patience, closed } => self.close(BootClock.now() + patience, closed),
        }
    }

    fn tell_all(&mut self) {
        for Answered { id, answer, losses } in self.driver.answers() {
            let Some(asked) = self.asked.get_mut(&id) else { continue };
            let requests = &self.metrics.requests;
            let is_over = match &answer {
                Answer::Granted(..) => {
                    if !std::mem::replace(&mut asked.is_held, true) {
                        self.held += 1;
                        requests.granted.increment();
                        self.metrics.wait.record(BootClock.now().since(asked.since));
                    }
                    false
                }
                Answer::Refused(Refusal::Busy) => {
                    requests.not_free.increment();
                    true
                }
                Answer::Refused(_) => {
                    requests.refused.increment();
                    true
                }
                Answer::Deadlock(_) => {
                    requests.deadlock.increment();
                    true
                }
                Answer::Lost => true,
            };
            (asked.told)(answer, losses);
            if is_over {
                self.ended(id);
            }
        }
    }

    /// Who waits is told, and who holds a lock may end what it does.
    fn close(&mut self, until: Time, closed: Closed) {
        (self.is_closed, self.closing) = (true, Some((until, closed)));
        let waiting = self.asked.extract_if(|_, asked| !asked.is_held);
        for (id, mut asked) in waiting.collect::<Vec<_>>() {
            self.driver.forget(id);
            self.refuse(&mut asked.told);
        }
    }

    fn refuse(&self, told: &mut Told) {
        self.metrics.requests.refused.increment();
        told(Answer::Refused(Refusal::Leaving), 0);
    }

    /// Whether it was held.
    fn ended(&mut self, id: RequestId) -> Option<bool> {
        let asked = self.asked.remove(&id)?;
        self.held -= i64::from(asked.is_held);
        Some(asked.is_held)
    }
}

/// The next message. Without a life there is none. Nothing where an answer has come, and the thread is to be woken by it.
async fn arrival(driver: &mut Driver) -> Option<Arrived> {
    let is_woken = driver.attention == Attention::Woken;
    let Some(Life { inbox, posts, .. }) = &mut driver.life else { return std::future::pending().await };
    let mut message = pin!(inbox.next());
    poll_fn(|context| match is_woken && posts.poll_answered(context).is_ready() {
        true => Poll::Ready(None),
        false => message.as_mut().poll(context).map(Some),
    })
    .await
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
