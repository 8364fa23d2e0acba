//! A cache whose every answer is what the application could have answered at that moment.
//!
//! Each cached page has a *home* among the nodes and a word in its home's page table. A copy is served only after its
//! word was read, one-sidedly, after the request arrived, and found unchanged. An update *begins* at every home, which
//! makes the words of all that it can touch busy; only then does it go to the database; when the database has answered,
//! it *ends*, and the words have moved on. A page is stored only if nothing that it depends on moved while it was made.
//!
//! ```text
//!   proxy                              home                              updater
//!   Reader, look, Store                Home                              Updater
//!     |  reads words one-sidedly  --->   |  page table  |                  |
//!     |  Register  ------------------->  |              |  <---- Updates   |  begin, end, sync
//!     |  <-------------------  Registered|              |  -- writes --->  |  acknowledgement words
//! ```
//!
//! Everything that decides is here, as machines that take events and the time and return actions; what does input and
//! output is elsewhere. docs/concepts/never-stale.md tells why no answer is stale, docs/internals/RULES.md has the rules by number.

mod board;
mod change;
mod dependencies;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod hit;
mod home;
mod names;
mod pages;
mod reader;
pub mod record;
mod rules;
mod serialised;
pub mod service;
mod store;
mod stream;
mod table;
#[cfg(feature = "testing")]
pub mod testing;
mod updater;
mod wire;

pub use change::{Change, LastChanges, Rest};
pub use dependencies::{Declared, DependencyField, Undeclared};
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use fuzzing::{Headers, content_message, dependency_header};
pub use hit::{Kind, Stamp, Verdict, Words, look};
pub use home::{Home, HomeAction, HomeCounts, HomeLimits, KeptOut};
pub use names::{Dependency, Names, PageId, Scope};
pub use reader::{Alone, FillId, NotStored, Reader, ReaderLimits, Settled, Start, Unstorable, Waiter};
#[doc(hidden)]
pub use rules::Rules;
pub use serialised::{
    ClientId, MAX_SERIALISED_WAITING, Proceed, Serialised, SerialisedError, SerialisedEvent, SerialisedRequest,
};
pub use store::{KEY_BYTES, Replacement, Store, Weigh};
pub use table::{
    ACKNOWLEDGEMENTS, Acknowledged, AcknowledgementWords, PAGE_TABLE, PAGE_TABLE_HEADER_WORDS, PageTable, TableError,
    Word,
};
pub use updater::{BeginError, Outcome, UpdateId, Updater, UpdaterAction, UpdaterCounts, UpdaterLimits};
pub use verbena_terms::{MAX_DEPENDENCIES, MAX_DEPENDENCY_FIELD_BYTES, MAX_DEPENDENCY_NAME_BYTES};
pub use wire::{
    Body, FRAME, MAX_FRAME_BYTES, MAX_OPEN_UPDATES, Message, Refusal, Register, Registered, Updates, WireError,
};
