//! A WAN in a box: links between networks that delay, jitter, drop, reorder, duplicate, corrupt, limit and queue packets.
//!
//! What decides is [`Machine`], one direction of a link: it takes packets, the time and a seed, and says what leaves
//! when. It follows the network emulator NemC (H.-W. Jin, S. Narravula, K. Vaidyanathan, D. K. Panda, "NemC: A Network
//! Emulator for Cluster-of-Clusters", 2006; dissertation 8.2): packets are released on demand, by every packet that
//! comes and by an idle caller, and not by the ticks of a timer; of every block of `drop_rate` packets exactly one is
//! lost, and of every `ooo_rate` exactly one is delayed by more than the others. [`Way`] holds what a direction does,
//! and is read from options such as `delay=10ms` ([`DEFINITIONS`]).
//!
//! What does input and output is [`router`], which runs machines between the ends of virtual links, and [`Wan`], which makes the networks of a
//! [`Plan`]: sites with addresses, and links between them. Where it is asked for, netem of the kernel runs the links instead ([`Backend`]).
//!
//! docs/reference/WAN.md has the options, what each means, and how to use them.

mod backend;
mod bridge;
mod chance;
mod codel;
mod counts;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod guard;
mod jitter;
mod kernel;
mod largest;
mod loss;
mod machine;
mod netem;
mod netlink;
mod network;
mod offload;
mod options;
mod plan;
pub mod probe;
mod queue;
mod receivers;
pub mod router;
mod trace;
mod units;
mod way;

pub use backend::{Backend, BackendName, RouterOptions};
pub use codel::CoDelOptions;
pub use counts::{Cause, Counts, Drops};
pub use files::read_file;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use fuzzing::{FrameOutcomes, Outcomes, wan_files, wan_frame, wan_options};
pub use guard::{GUARD_ARGUMENT, guard};
pub use jitter::Jitter;
pub use largest::{LARGEST_FRAME, take_frames_of};
pub use loss::Burst;
pub use machine::{Leaving, Machine, Packet};
pub use network::{Error, Wan, Which};
pub use offload::take_large_frames;
pub use options::{DEFINITIONS, Definition, OptionError, Reader};
pub use plan::{Link, MAX_NAME, Plan, PlanError, Site};
pub use receivers::pin;
pub use trace::Trace;
pub use units::{Limit, Probability, Rate};
pub use way::{Impossible, Way};
