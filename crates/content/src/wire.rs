//! The messages of the page protocol.
//!
//! ```text
//!  0        4         6         8
//!  +--------+---------+---------+------------------------------------------+
//!  | "VCNT" |    4    |    0    |  one message, postcard 1 (varints)        |
//!  +--------+---------+---------+------------------------------------------+
//!
//!  message     = 0 updates | 1 register | 2 registered
//!  updates     = view from to word names first bodies      updater -> home    (rule P3)
//!  body        = 0 sync open through | 1 begin number change scope | 2 end number | 3 void number
//!  register    = view from to request page kind scope clock page-word common-word    proxy -> home    (rule P2)
//!  registered  = view from to request ( 0 page-word | 1 refusal )                   home -> proxy
//!  kind        = 0 coherent, its common word is the everything word | 1 standard, the purge word (rule H1)
//!  change      = 0 hard purge | 1 write | 2 soft purge (rule H3)
//!  scope       = 0 everything | 1 dependencies, sorted, each once | 2 all, of an update alone
//! ```
//!
//! A view, a sender and a number are in each (rule F5). Decoding is total: any bytes give a message that keeps the
//! bounds below, or an error; it allocates no more than a small multiple of the frame.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use verbena_terms::{Format, FormatError, Incarnation, ViewNumber};

use crate::change::Change;
use crate::hit::Kind;
use crate::names::{PageId, Scope};
use crate::table::Word;

/// What a frame of this protocol begins with.
pub const FRAME: Format = Format::new(*b"VCNT", 4);
/// Longest frame, in bytes. A longer one is refused unread.
pub const MAX_FRAME_BYTES: usize = 64 * 1024;
/// Most updates that one updater may have open.
pub const MAX_OPEN_UPDATES: usize = 1024;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// Begins and ends, from an updater to a home.
    Updates(Updates),
    /// A page that a proxy would like to store.
    Register(Register),
    /// The home's answer to that.
    Registered(Registered),
}

/// A run of an updater's numbered messages to one home.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Updates {
    /// The view that their numbers belong to.
    pub view: ViewNumber,
    /// The updater.
    pub from: Incarnation,
    /// The home.
    pub to: Incarnation,
    /// The word at the updater into which this home writes how far it got.
    pub word: u32,
    /// Fingerprint of the key under which the updater hashes names.
    pub names: u64,
    /// Number of the first; the others follow without gaps, modulo 2^32.
    pub first: u32,
    /// The messages.
    pub bodies: Vec<Body>,
}

/// One of an updater's numbered messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Body {
    /// The updater's whole open set: what the home holds of it and is not named here has ended. Stands for everything
    /// numbered before it, so it may follow a gap.
    Sync {
        /// Numbers of the open updates.
        open: Vec<u64>,
        /// The message with which all of them have been begun (again).
        through: u32,
    },
    /// An update is about to be forwarded.
    Begin {
        /// Its number at its updater.
        number: u64,
        /// What it says of what it touches.
        change: Change,
        /// What it touches.
        scope: Scope,
    },
    /// It is done, or was given up.
    End {
        /// Its number at its updater.
        number: u64,
    },
    /// It is over, and nothing came of it: it was not sent, or the application refused it.
    Void {
        /// Its number at its updater.
        number: u64,
    },
}

/// A fill to be registered: what it depends on, and what was read before it was requested.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Register {
    /// The view in which the words were read.
    pub view: ViewNumber,
    /// The proxy.
    pub from: Incarnation,
    /// The home whose words were read.
    pub to: Incarnation,
    /// The proxy's number for it.
    pub request: u64,
    /// The page.
    pub page: PageId,
    /// By what its copy will be found to be good.
    pub kind: Kind,
    /// What it depends on; of a standard page never everything.
    pub scope: Scope,
    /// The clock word.
    pub clock: u64,
    /// The page word.
    pub word: Word,
    /// The everything word, or of a standard page the purge word.
    pub common: Word,
}

/// What became of a registration.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Registered {
    /// The view in which the home decided.
    pub view: ViewNumber,
    /// The home.
    pub from: Incarnation,
    /// The proxy.
    pub to: Incarnation,
    /// The proxy's number for it.
    pub request: u64,
    /// The page word under which to store, or why not to.
    pub outcome: Result<Word, Refusal>,
}

/// Why a home refuses a registration. The answer goes to the client and is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Error)]
pub enum Refusal {
    /// The words were read in another view than the home acts in.
    #[error("the home acts in another view")]
    OtherView,
    /// The home has no lease.
    #[error("the home has no lease")]
    NoLease,
    /// An update that touches the page is open.
    #[error("an update of the page is open")]
    Busy,
    /// The page moved while it was made.
    #[error("the page moved while it was made")]
    Moved,
    /// A dependency is being updated.
    #[error("an update of a dependency is open")]
    DependencyBusy,
    /// A dependency moved while the page was made.
    #[error("a dependency moved while the page was made")]
    DependencyMoved,
}

/// Why a frame was refused. It is dropped; nothing changes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// Another layout (rule F6).
    #[error("content frame: {0}")]
    Format(#[from] FormatError),
    /// Longer than any frame.
    #[error("content frame of {found} bytes, more than {MAX_FRAME_BYTES}")]
    Long {
        /// Its length.
        found: usize,
    },
    /// The bytes after the header are no message.
    #[error("content frame of {length} bytes does not hold a message: {source}")]
    Malformed {
        /// Length of the frame.
        length: usize,
        /// What the decoder said.
        source: postcard::Error,
    },
    /// A message, and then something.
    #[error("content frame has {extra} bytes after its message")]
    Trailing {
        /// How many.
        extra: usize,
    },
    /// A scope that is not sorted, empty or too large, or too many open updates.
    #[error("content frame holds {0} out of bounds")]
    Bounds(&'static str),
}

impl Message {
    /// The node that the message is for.
    pub fn to(&self) -> Incarnation {
        match self {
            Message::Updates(updates) => updates.to,
            Message::Register(register) => register.to,
            Message::Registered(registered) => registered.to,
        }
    }

    /// The sender.
    pub fn from(&self) -> Incarnation {
        match self {
            Message::Updates(updates) => updates.from,
            Message::Register(register) => register.from,
            Message::Registered(registered) => registered.from,
        }
    }

    /// The view that it belongs to.
    pub fn view(&self) -> ViewNumber {
        match self {
            Message::Updates(updates) => updates.view,
            Message::Register(register) => register.view,
            Message::Registered(registered) => registered.view,
        }
    }

    /// The message as a frame.
    pub fn encode(&self) -> Vec<u8> {
        FRAME.encode(self)
    }

    /// The message in a frame.
    pub fn decode(frame: &[u8]) -> Result<Message, WireError> {
        if frame.len() > MAX_FRAME_BYTES {
            return Err(WireError::Long { found: frame.len() });
        }
        let (message, rest) = postcard::take_from_bytes::<Message>(FRAME.check(frame)?)
            .map_err(|source| WireError::Malformed { length: frame.len(), source })?;
        if !rest.is_empty() {
            return Err(WireError::Trailing { extra: rest.len() });
        }
        message.check_bounds()?;
        Ok(message)
    }

    fn check_bounds(&self) -> Result<(), WireError> {
        match self {
            Message::Updates(updates) => updates.bodies.iter().try_for_each(Body::check_bounds),
            Message::Register(register) if !register.is_well_formed() => Err(WireError::Bounds("a scope")),
            Message::Register(_) | Message::Registered(_) => Ok(()),
        }
    }
}

impl Register {
    fn is_well_formed(&self) -> bool {
        let may_be = match self.scope {
            Scope::On(_) => true,
            Scope::Everything => self.kind == Kind::Coherent,
            Scope::All => false,
        };
        may_be && self.scope.is_well_formed()
    }
}

impl Body {
    /// Bytes that it takes in a frame, at most.
    pub fn max_bytes(&self) -> usize {
        const TAG_AND_COUNT: usize = 8;
        const VARINT: usize = 10;
        TAG_AND_COUNT
            + match self {
                Body::Sync { open, .. } => VARINT + VARINT * open.len(),
                Body::Begin { scope, .. } => VARINT + VARINT * scope.dependencies().len(),
                Body::End { .. } | Body::Void { .. } => VARINT,
            }
    }

    fn check_bounds(&self) -> Result<(), WireError> {
        match self {
            Body::Sync { open, .. } if open.len() > MAX_OPEN_UPDATES => Err(WireError::Bounds("an open set")),
            Body::Begin { scope, .. } if !scope.is_well_formed() => Err(WireError::Bounds("a scope")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::names::Dependency;

    fn updates() -> Message {
        Message::Updates(Updates {
            view: ViewNumber(3),
            from: Incarnation::new(1, 1),
            to: Incarnation::new(2, 7),
            word: 4,
            names: 99,
            first: u32::MAX,
            bodies: vec![
                Body::Sync { open: vec![1, u64::MAX], through: 3 },
                Body::Begin {
                    number: 1,
                    change: Change::Soft,
                    scope: Scope::of([Dependency(5), Dependency(u64::MAX)]),
                },
                Body::End { number: 1 },
                Body::Void { number: 2 },
            ],
        })
    }

    #[test]
    fn a_frame_of_another_version_is_refused_naming_both() {
        let mut frame = updates().encode();
        frame[4] += 1;
        let refused = Message::decode(&frame).unwrap_err().to_string();
        let both = format!("has version {}, this program speaks version {}", FRAME.version + 1, FRAME.version);
        assert!(refused.contains(&both), "{refused}");
    }

    #[test]
    fn a_message_survives_its_frame() {
        let register = Message::Register(Register {
            view: ViewNumber(3),
            from: Incarnation::new(1, 1),
            to: Incarnation::new(2, 7),
            request: 5,
            page: PageId(6),
            kind: Kind::Coherent,
            scope: Scope::Everything,
            clock: 7,
            word: Word::new(8, false),
            common: Word::new(9, true),
        });
        let registered = Message::Registered(Registered {
            view: ViewNumber(3),
            from: Incarnation::new(2, 7),
            to: Incarnation::new(1, 1),
            request: 5,
            outcome: Err(Refusal::DependencyMoved),
        });
        for message in [updates(), register, registered] {
            assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn a_body_is_never_longer_than_it_says() {
        let Message::Updates(updates) = updates() else { unreachable!("made above") };
        for body in updates.bodies {
            assert!(postcard::to_stdvec(&body).unwrap().len() <= body.max_bytes());
        }
    }

    #[test]
    fn what_breaks_a_bound_is_refused() {
        let unsorted = Scope::On(Box::new([Dependency(2), Dependency(1)]));
        let refused = |body: Body| {
            let Message::Updates(mut updates) = updates() else { unreachable!("made above") };
            updates.bodies = vec![body];
            Message::decode(&Message::Updates(updates).encode()).unwrap_err()
        };
        assert_eq!(
            refused(Body::Begin { number: 1, change: Change::Hard, scope: unsorted }),
            WireError::Bounds("a scope")
        );
        let open = (0..MAX_OPEN_UPDATES as u64 + 1).collect();
        assert_eq!(refused(Body::Sync { open, through: 1 }), WireError::Bounds("an open set"));
        let mut trailing = updates().encode();
        trailing.push(0);
        assert_eq!(Message::decode(&trailing), Err(WireError::Trailing { extra: 1 }));
        assert!(matches!(Message::decode(&vec![0; MAX_FRAME_BYTES + 1]), Err(WireError::Long { .. })));
        assert!(matches!(Message::decode(b"VCNT\x01\0\0\0"), Err(WireError::Format(FormatError::Version { .. }))));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut frame = FRAME.header().to_vec();
            frame.extend_from_slice(&bytes);
            if let Ok(message) = Message::decode(&frame) {
                prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
            }
            let _ = Message::decode(&bytes);
        }

        #[test]
        fn a_damaged_frame_decodes_or_is_refused(at in any::<usize>(), bit in 0..8u8, cut in any::<usize>()) {
            let frame = updates().encode();
            prop_assert!(Message::decode(&frame[..cut % frame.len()]).is_err());
            let mut damaged = frame.clone();
            damaged[at % frame.len()] ^= 1 << bit;
            if let Ok(message) = Message::decode(&damaged) {
                prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
            }
        }
    }
}
