//! The thread around the driver: waits for what arrives, and lets the driver take its turn.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use verbena_fabric::Error;

use super::driver::{Driver, Woken};
use super::life::Life;
use super::opening::Opening;
use super::{Command, Content, Shared};

pub(super) fn spawn(
    driver: Driver,
    commands: mpsc::WeakUnboundedSender<Command>,
    received: mpsc::UnboundedReceiver<Command>,
) -> verbena_fabric::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| Error::system("a runtime for the page protocol", error))?;
    std::thread::Builder::new()
        .name("content".into())
        .spawn(move || {
            let run = std::panic::AssertUnwindSafe(|| runtime.block_on(run(driver, &commands, received)));
            if std::panic::catch_unwind(run).is_err() {
                // Words that no thread moves any more must not stay readable: a process without this thread does more harm
                // than a dead one.
                std::process::abort();
            }
        })
        .map_err(|error| Error::system("a thread for the page protocol", error))?;
    Ok(())
}

/// Runs until all senders of commands are gone.
async fn run(
    mut driver: Driver,
    commands: &mpsc::WeakUnboundedSender<Command>,
    mut received: mpsc::UnboundedReceiver<Command>,
) {
    loop {
        let patience = driver.patience();
        let woken = tokio::select! {
            biased;
            command = received.recv() => match command {
                Some(command) => Woken::Command(command),
                None => return,
            },
            woken = arrival(&mut driver.life) => woken,
            () = pause(patience) => Woken::Timer,
        };
        driver.turn(woken);
        for opening in driver.openings() {
            open_elsewhere(opening, driver.shared.clone(), commands.clone());
        }
    }
}

/// The next message. Never, between two incarnations.
async fn arrival(life: &mut Option<Life>) -> Woken {
    let Some(life) = life else { return std::future::pending().await };
    tokio::select! {
        message = life.protocol.next() => Woken::Protocol(message),
        message = life.introductions.next() => Woken::Introduction(message),
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

fn open_elsewhere(opening: Opening, shared: Arc<Shared>, commands: mpsc::WeakUnboundedSender<Command>) {
    tokio::task::spawn_blocking(move || {
        let opened = opening.run();
        if let Some(commands) = commands.upgrade() {
            // If the thread has ended meanwhile, the regions are not needed.
            let _ = Content { shared, commands }.tell(Command::Opened(opened));
        }
    });
}
