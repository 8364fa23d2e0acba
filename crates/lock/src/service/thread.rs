//! The thread of the service: there for what nobody asks for at the moment, which are messages, answers and deadlines.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use verbena_fabric::Error;
use verbena_fabric::contacts::Opening;

use super::Command;
use super::desk::Shared;

pub(super) fn spawn(shared: Arc<Shared>) -> verbena_fabric::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| Error::system("a runtime for locks", error))?;
    std::thread::Builder::new()
        .name("locks".into())
        .spawn(move || runtime.block_on(run(shared)))
        .map_err(|error| Error::system("a thread for locks", error))?;
    Ok(())
}

async fn run(shared: Arc<Shared>) {
    let mut woken = None;
    while !shared.is_over.load(Ordering::Acquire) {
        let (openings, patience) = shared.at_desk(|desk| {
            desk.turn(woken.take());
            (desk.driver.openings(), desk.patience())
        });
        for opening in openings {
            open_elsewhere(opening, shared.clone());
        }
        woken = tokio::select! {
            biased;
            () = shared.call.notified() => None,
            message = poll_fn(|context| shared.at_desk(|desk| desk.poll_arrival(context))) => message,
            () = pause(patience) => None,
        };
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

fn open_elsewhere(opening: Opening, shared: Arc<Shared>) {
    tokio::task::spawn_blocking(move || shared.leave_to_thread(Command::Opened(Box::new(opening.run()))));
}
