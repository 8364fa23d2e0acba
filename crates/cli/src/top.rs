//! `verbena top`: the dashboard in a terminal.
//!
//! ```text
//!   helper's HTTP --> ask --> Reading --> History --> draw --> terminal
//!                                            |
//!                                            +------> lines --> standard output
//! ```
//!
//! [`History`] knows neither clock nor terminal: it is given one reading of `GET /overview` after the other and says what happened
//! between two of them. What is drawn is a function of it and of the size of the window.

mod ask;
mod draw;
mod history;
mod lines;
mod reading;
mod words;

pub use ask::Asker;
pub use draw::draw;
pub use history::History;
pub use lines::{Line, heading, in_words};
pub use reading::Reading;
