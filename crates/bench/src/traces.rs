//! Traces: what the experiments replay, generated from a seed or read from a log.
//!
//! Every trace is a plain CSV with a header line. Requests are `time_s,key,size_bytes`; updates are `time_s,key`. A
//! generator's law is documented where it is written ([`Zipf`], [`SizeLaw`], [`Poisson`]) and in docs/reference/BENCH.md; it draws
//! from PCG64 and computes with the portable `libm`, so a seed gives the same bytes on every machine and in every
//! later version. A reader checks its whole input before a byte of the result is written.

mod clf;
mod command;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod input;
mod keys;
mod law;
mod record;
mod requests;
mod worldcup;

pub use clf::ClfReader;
pub use command::{TracesArgs, Written, run};
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use fuzzing::{Found, trace};
pub use input::{TraceError, open};
pub use keys::KeyReader;
pub(crate) use law::generator;
pub use law::{LawError, Poisson, SizeLaw, Zipf};
pub use record::{Request, Update};
pub use requests::{RequestLaw, Requests, UpdateLaw, Updates};
pub use worldcup::{RECORD_BYTES, WorldCupReader};
