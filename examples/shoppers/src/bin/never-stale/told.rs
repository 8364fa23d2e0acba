//! Whether this program was told to end.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C, or SIGTERM.
pub struct Told {
    interrupted: Signal,
    terminated: Signal,
}

impl Told {
    /// From now on.
    pub fn new() -> Result<Self, String> {
        let on = |kind| signal(kind).map_err(|error| error.to_string());
        Ok(Told { interrupted: on(SignalKind::interrupt())?, terminated: on(SignalKind::terminate())? })
    }

    /// Waits.
    ///
    /// # Errors
    /// It was told meanwhile.
    pub async fn nothing_for(&mut self, time: Duration) -> Result<(), String> {
        tokio::select! {
            () = tokio::time::sleep(time) => Ok(()),
            _ = self.interrupted.recv() => Err("interrupted".into()),
            _ = self.terminated.recv() => Err("terminated".into()),
        }
    }
}
