//! `verify`: asks a helper for the words of a page, again and again, as the module for Apache does before each hit. It takes orders: for how long.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Parser;
use verbena_client::{Pages, Socket};

use super::threads;
use crate::child::{Answer, hear, say};
use crate::stats::RoundSummary;

pub(crate) const ROLE: &str = "verify";

/// How long the helper has for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Parser)]
struct Part {
    /// The helper's socket.
    #[arg(long)]
    socket: PathBuf,
    /// Which page.
    #[arg(long)]
    path: String,
}

pub(super) fn serve(arguments: &[String]) -> Result<(), String> {
    let part: Part = threads::part(ROLE, arguments)?;
    let text = |error: verbena_client::Error| format!("{}: {error}", part.socket.display());
    let mut pages = Pages::connect(&Socket::at(&part.socket), PATIENCE).map_err(text)?;
    while let Some(length) = hear::<Duration>()? {
        let (until, mut took) = (Instant::now() + length, Vec::new());
        let asked = loop {
            let began = Instant::now();
            if let Err(error) = pages.words("shop.example", &part.path) {
                break Err(text(error));
            }
            took.push(began.elapsed().as_secs_f64() * 1e6);
            if Instant::now() > until {
                break Ok(());
            }
        };
        let summary = asked.and_then(|()| RoundSummary::of(&mut took).ok_or_else(|| "nothing was asked".to_owned()));
        say(&match summary {
            Ok(summary) => Answer::Done(summary),
            Err(reason) => Answer::Failed(reason),
        })?;
    }
    Ok(())
}
