//! The papers' tables and figures as experiments that anyone can run, and the traces they run on.
//!
//! An experiment is a [`Row`] of one table, [`rows`]: what is measured side by side, and what the paper found. Running it
//! ([`run()`]) measures its variants in turn, A B C, A B C, for at least [`FEWEST_ROUNDS`] rounds, so that whatever else the
//! machine does meets all of them; what is compared is the ratio of medians, with the least and most ratio of any round, and
//! never one absolute number. The outcome is a [`Report`]: a JSON file with every round of every point, the machine, the
//! fabrics and the seed; a figure in SVG; and, for several rows, one page of HTML ([`report_html`]).
//!
//! What was not measured has no number: a row that this build cannot run says so and is an error, and a paper's claim that does not
//! hold on this machine stands in the report with the measured reason.
//!
//! A row may need another node; that is this same program in another process ([`child_main`]). [`traces`] makes and
//! reads the traces that rows replay.

mod bank;
mod child;
mod content;
mod coop;
mod cores;
mod cpu;
mod emulator;
mod error;
mod figure;
mod helpers;
mod html;
mod http;
mod locks;
mod machine;
mod memory;
mod primitives;
mod programs;
mod relayed;
mod report;
mod rounds;
mod rows;
mod run;
mod scale;
mod site;
mod stats;
pub mod traces;
mod transfer;
mod web;

pub use child::{CHILD_ARGUMENT, child_main, child_program};
pub use error::BenchError;
pub use html::report_html;
pub use machine::Machine;
pub use report::{Axis, Claim, FORMAT, FabricFound, Findings, Line, Measurement, Panel, Point, Ratio, Report, Verdict};
pub use rounds::{Progress, ProgressSink};
pub use rows::{Row, list, row, rows};
pub use run::{FEWEST_ROUNDS, KEY_TRACE, Options, run, write_whole};
pub use stats::{RoundSummary, Spread, jains_index};
