//! What a client asks for.

use std::borrow::Cow;

use smallvec::SmallVec;

/// The largest expiration time that counts from now: 30 days, in seconds.
const RELATIVE: i64 = 60 * 60 * 24 * 30;

/// An expiration time as the client wrote it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exptime(pub i32);

impl Exptime {
    /// The moment, in seconds of the Unix clock, from which an item with this time is gone; 0 if it stays for good.
    pub fn moment(self, now: u64) -> u64 {
        match i64::from(self.0) {
            0 => 0,
            past if past < 0 => 1,
            delta if delta <= RELATIVE => now + delta as u64,
            moment => moment as u64,
        }
    }
}

/// One request.
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack")]
#[derive(Debug, PartialEq)]
pub enum Request<'a> {
    /// `get`, `gets`, `gat`, `gats`: each key is read by `read`.
    Get {
        /// What is asked for.
        keys: Keys<'a>,
        /// The same for each key.
        read: Read,
        /// Whether cas values are shown.
        with_cas: bool,
    },
    /// A classic command on one key.
    Classic {
        /// The key.
        key: &'a [u8],
        /// What it does.
        operation: Operation<'a>,
        /// Whether no answer is wanted.
        noreply: bool,
    },
    /// `mg`, `ms`, `md`, `ma`.
    Meta(Meta<'a>),
    /// `me`: an item's own data for a person.
    Debug {
        /// The key, decoded.
        key: Cow<'a, [u8]>,
        /// Whether the key came in base64.
        is_base64: bool,
    },
    /// `mn`.
    Noop,
    /// `flush_all`: what was stored before the delay is over is gone then.
    FlushAll {
        /// How long from now, or a moment; 0 and less are at once.
        delay: Exptime,
        /// Whether no answer is wanted.
        noreply: bool,
    },
    /// `verbosity`.
    Verbosity {
        /// How much is logged.
        level: u32,
        /// Whether no answer is wanted.
        noreply: bool,
    },
    /// `cache_memlimit`.
    MemoryLimit {
        /// The new limit.
        mebibytes: u32,
        /// Whether no answer is wanted.
        noreply: bool,
    },
    /// `pool_scheme NAME`: no command of memcached's.
    Scheme(&'a [u8]),
    /// `stats`.
    Stats(Statistics<'a>),
    /// `version`.
    Version,
    /// `quit`: answers nothing and ends the connection.
    Quit,
}

/// Which statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistics<'a> {
    /// `stats`.
    General,
    /// `stats reset`: counters begin anew.
    Reset,
    /// `stats settings`.
    Settings,
    /// `stats items`.
    Items,
    /// `stats detail on`, `off`.
    Detail(bool),
    /// `stats detail dump`.
    DetailDump,
    /// Another name: of a tenant, or of nothing.
    Named(&'a [u8]),
}

/// The keys of one line. Each was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys<'a>(pub(crate) &'a [u8]);

impl<'a> Keys<'a> {
    /// Each key, in the order of the line.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.0.split(|&byte| byte == b' ').filter(|key| !key.is_empty())
    }
}

/// What is done with one key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation<'a> {
    /// Reads it, and may change its time or win the right to make it anew.
    Read(Read),
    /// Stores a value.
    Store(Store<'a>),
    /// Deletes it or marks it as stale.
    Remove(Remove),
    /// Counts.
    Arithmetic(Arithmetic),
    /// Gives it another expiration time.
    Touch(Exptime),
    /// A set of a value beyond the limit: the old value goes, so that no client reads what it believes replaced (rule K6).
    TooLarge,
}

/// How an item is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// A new expiration time (`gat`, `mg T`).
    pub touch: Option<Exptime>,
    /// Makes a stub with this time if there is no item (`mg N`).
    pub vivify: Option<Exptime>,
    /// Wins if the item expires sooner than this (`mg R`).
    pub recache: Option<Recache>,
    /// Can win the right to make the item anew: `mg` alone knows of it.
    pub may_win: bool,
    /// Leaves no trace: neither recency nor "was hit" (`mg u`).
    pub is_silent: bool,
    /// The cas value of a stub (`mg E`).
    pub new_cas: Option<u64>,
}

/// From when on an item is to be made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recache {
    /// The time that must remain.
    pub remaining: Exptime,
    /// Whether `T` stands before `R` in the line, so that the new time is compared.
    pub is_after_touch: bool,
}

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// On which condition.
    pub mode: Mode,
    /// The client's flags.
    pub flags: u32,
    /// When it expires.
    pub exptime: Exptime,
    /// The bytes.
    pub value: &'a [u8],
    /// The cas value that the item must have. 0 is one that no item has for [`Mode::Cas`] and no condition for others.
    pub compare: Option<u64>,
    /// With an older cas value it is stored, but as stale (`ms I`).
    pub is_stale_allowed: bool,
    /// The item's new cas value (`ms E`).
    pub new_cas: Option<u64>,
    /// Append and prepend make an item with this time if there is none (`ms N`).
    pub vivify: Option<Exptime>,
}

/// On which condition a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Always.
    Set,
    /// If there is no item.
    Add,
    /// If there is an item.
    Replace,
    /// Behind the value of an item.
    Append,
    /// Before the value of an item.
    Prepend,
    /// If the item has this cas value.
    Cas,
}

/// How an item is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remove {
    /// The cas value that the item must have.
    pub compare: Option<u64>,
    /// It stays, as stale (`md I`).
    pub is_invalidation: bool,
    /// A new time for an item that stays.
    pub exptime: Option<Exptime>,
    /// Its value and flags go, the item stays (`md x`).
    pub drops_value: bool,
    /// The client's flags of an item whose value was dropped.
    pub flags: u32,
    /// The cas value of an item that stays (`md E`).
    pub new_cas: Option<u64>,
}

/// How an item counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic {
    /// Up or down.
    pub direction: Direction,
    /// By how much.
    pub delta: u64,
    /// The cas value that the item must have; 0 is no condition.
    pub compare: u64,
    /// Makes an item with this time if there is none.
    pub vivify: Option<Exptime>,
    /// The number of such an item.
    pub initial: u64,
    /// A new expiration time.
    pub touch: Option<Exptime>,
    /// The item's new cas value.
    pub new_cas: Option<u64>,
}

/// Up or down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Wraps at 64 bits.
    Up,
    /// Ends at 0.
    Down,
}

/// A meta command on one key.
#[derive(Debug, PartialEq)]
pub struct Meta<'a> {
    /// Which of the four.
    pub verb: MetaVerb,
    /// The key, decoded.
    pub key: Cow<'a, [u8]>,
    /// Whether the key came in base64.
    pub is_base64: bool,
    /// What it does.
    pub operation: Operation<'a>,
    /// What the answer shows, in the order of the line.
    pub shown: SmallVec<[Shown<'a>; 8]>,
    /// Whether the value is shown (`v`).
    pub with_value: bool,
    /// Whether the usual answer is left out (`q`).
    pub is_quiet: bool,
}

/// The four meta commands on items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVerb {
    /// `mg`.
    Get,
    /// `ms`.
    Set,
    /// `md`.
    Delete,
    /// `ma`.
    Arithmetic,
}

/// What the answer to a meta command shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown<'a> {
    /// `O`: the token, with its letter.
    Opaque(&'a [u8]),
    /// `k`.
    Key,
    /// `s`.
    Size,
    /// `t`.
    Remaining {
        /// The time that the flags before it gave to an item that stands.
        standing: Option<Exptime>,
        /// The time that they gave to an item that the request makes.
        made: Option<Exptime>,
    },
    /// `c`.
    Cas,
    /// `f`.
    Flags,
    /// `l`.
    Idle,
    /// `h`.
    Hit,
}

/// Why a request was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The line to answer, without its end.
    pub line: &'static str,
    /// Whether no answer is wanted.
    pub noreply: bool,
}
