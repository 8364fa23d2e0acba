//! Logs: by `tracing`, to standard error, as much as asked for.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::error::{Error, Result};

/// Starts logging with `filter`. Colours only on a terminal, and not if the user has `NO_COLOR` set.
pub fn start(filter: &str) -> Result<()> {
    let mut parsed = EnvFilter::try_new(filter)
        .map_err(|error| Error::LogFilter { filter: filter.to_owned(), reason: error.to_string() })?;
    // A mount that was taken away by `fs umount` cannot be taken away again when its session ends, and `fuser` warns of that. What matters of it is said elsewhere.
    if !filter.contains("fuser") {
        parsed = parsed.add_directive("fuser::mnt=error".parse().expect("invariant: a target and a level"));
    }
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let subscriber = tracing_subscriber::fmt().with_env_filter(parsed).with_writer(std::io::stderr).with_ansi(colours);
    // A second start in one process (tests) keeps the first.
    let _ = subscriber.try_init();
    Ok(())
}
