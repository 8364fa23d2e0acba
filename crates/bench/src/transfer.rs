//! Rows about bulk transfer (dissertation, chapter 9): files by FTP, with the session of ours and without, beside other servers and clients.

mod cpu;
mod lan;
mod sessions;
mod station;
mod trees;
mod wan;

pub(crate) use cpu::measure as cpu;
pub(crate) use lan::measure as lan;
pub(crate) use sessions::measure as sessions;
pub(crate) use trees::{replicate, small};
pub(crate) use wan::measure as wan;
