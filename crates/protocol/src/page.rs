//! The messages between a program that keeps copies of pages and its helper (rules P1, P2, P3).
//!
//! ```text
//!  program                                 helper
//!    Look     ------------------------>    reads the page's words at its home, then the lease
//!             <------------------------    Looked: serve a copy whose stamp says the same
//!    Depends  ------------------------>    an answer came that may be stored: what do its fields name?
//!             <------------------------    Depends
//!    Register ------------------------>    the answer is whole: asks the home
//!             <------------------------    Registered: the word under which to store
//!
//!    Begin    ------------------------>    a write: every home acknowledges it
//!             <------------------------    Begun: forward it now
//!    End      ------------------------>
//!             <------------------------    Ended: whether its client may be told
//! ```
//!
//! Whatever is not as it should be is [`PageAnswer::Unavailable`], which means: use no copy, store none, forward no write.

use serde::{Deserialize, Serialize};
use verbena_terms::{Incarnation, ViewNumber};

use crate::api::Outcome;

/// What a program asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PageRequest {
    /// The words of the page that clients ask for by this target at this host. To be asked after the request arrived.
    Look {
        /// As the request names it.
        host: String,
        /// Path and query.
        target: String,
    },
    /// What an answer with these fields depends on, and by what its page is purged with others. Fields of other names are passed over.
    Depends {
        /// As [`PageRequest::Look`] has it.
        host: String,
        /// Path and query.
        target: String,
        /// Names and values.
        fields: Vec<(String, Vec<u8>)>,
    },
    /// Whether an answer may be stored that was asked for after these words were read and is whole now.
    Register {
        /// What was read.
        words: PageWords,
        /// What it depends on; `None`: everything.
        dependencies: Option<Vec<u64>>,
    },
    /// A write is to begin.
    Begin {
        /// What it touches.
        touched: Touches,
    },
    /// A write is over.
    End {
        /// Which.
        update: u64,
        /// What became of it.
        outcome: Outcome,
    },
}

/// What a write touches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Touches {
    /// All there is.
    Everything,
    /// What bears these names, 1 to [`MAX_DEPENDENCIES`](verbena_terms::MAX_DEPENDENCIES) of them.
    Names(Vec<Vec<u8>>),
}

/// The words of a page, read at its home in one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PageWords {
    /// The page.
    pub page: u64,
    /// The view in which they were read. The helper's node had a lease in it when they were in hand.
    pub view: ViewNumber,
    /// The page's home.
    pub home: Incarnation,
    /// The page word: its generation, and in the last bit whether an update that touches it is open.
    pub word: u64,
    /// The everything word, of the same form.
    pub everything: u64,
    /// The movements of that home.
    pub clock: u64,
}

impl PageWords {
    /// Whether an update that touches the page is open: no copy is current, and none can be stored.
    pub fn is_busy(&self) -> bool {
        (self.word | self.everything) & 1 == 1
    }
}

/// What the helper answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PageAnswer {
    /// To [`PageRequest::Look`].
    Looked(PageWords),
    /// To [`PageRequest::Depends`]; `None`: everything.
    Depends(Option<Vec<u64>>),
    /// To [`PageRequest::Register`]: the page word under which to store it, or why not to.
    Registered(Result<u64, String>),
    /// To [`PageRequest::Begin`]: every home knows of it.
    Begun {
        /// What the update is called on this connection. One that is not ended when the connection ends has an unknown outcome.
        update: u64,
    },
    /// To [`PageRequest::End`].
    Ended {
        /// Whether the client may be informed that its write is done (rule P7).
        acknowledge: bool,
    },
    /// It cannot be said or done now, and why. Nothing has begun.
    Unavailable(String),
}
