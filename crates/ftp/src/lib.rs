//! An FTP server that every client can talk to, and that is never wrong about what it stored.
//!
//! [`Machine`] is one control connection without input and output: lines in, replies and work out. [`Root`] reaches files
//! by the kernel's own confinement, so that no name leads out of the served directory. [`Server`] runs both on sockets.
//! docs/reference/FTP.md is for users; the rules are T14 to T16 of docs/reference/TRANSFER.md.

mod address;
mod admin;
mod ascii;
mod bans;
mod between;
mod blocks;
mod client;
mod command;
mod conduct;
mod connecting;
mod control;
mod data;
mod date;
mod dialogue;
mod encryption;
mod ended;
mod endpoint;
mod error;
mod extended;
mod file_work;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod limits;
mod line;
mod listed;
mod listing;
mod machine;
mod moving;
mod observed;
mod offer;
mod options;
mod outcome;
mod parallel;
mod plain;
mod remedy;
mod remote;
mod rights;
mod serve;
mod session;
mod settings;
mod streams;
mod third;
mod transfer;
mod trees;
mod trust;
mod users;
mod watched;
mod who;
mod work;
mod xferlog;

pub use between::copy_file_between;
pub use blocks::BlockError;
pub use client::{CopyError, CopyOptions, Direction, Location, copy, target};
pub use command::{Command, CommandError, Extended, Representation};
pub use date::Date;
pub use error::TransferError;
pub use extended::Mode;
pub use file_work::{Digest, FileAnswer, FileWork};
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use fuzzing::{ftp_blocks, ftp_commands, ftp_listing};
pub use limits::RateLimit;
pub use line::{ENDLESS_LINE, LONG_LINE, Line, Lines};
pub use listed::{Listed, ListedKind, parse_list, parse_mlsd};
pub use listing::{FactSet, Form};
pub use machine::{Action, LoginError, Machine, Outcome, Place, Transfer, What};
pub use options::{DataTls, ServeError, ServeOptions, TlsOptions};
pub use plain::{PlainOptions, PlainSides, PlainSummary, copy_plain};
pub use remote::{Moved, Remote, Report};
pub use rights::{Login, Rights};
pub use serve::{Handle, Server};
pub use settings::{Settings, Tls};
pub use third::{BetweenOptions, copy_between};
pub use trust::ClientTls;
pub use users::{Users, UsersError, set_password};
pub use verbena_transfer::{Change, ChannelKind, Failure, LocalOptions, Measured, Progress, Summary, copy_local};
pub use verbena_transfer::{FileError, Root, VirtualPath};
pub use who::SessionFacts;
