//! The errors of this crate, and the breaches of the protocol by the other side.

use std::path::PathBuf;

use thiserror::Error;
use verbena_terms::FormatError;

use crate::handshake::Farewell;

/// Everything that this crate reports.
#[derive(Debug, Error)]
pub enum Error {
    /// The directory for the socket cannot be trusted.
    #[error("{path}: {what}; it must be a directory of user {uid} (or root) into which no other user can write")]
    Directory {
        /// Which directory.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
        /// The user that it should belong to.
        uid: u32,
    },
    /// Another helper serves this directory.
    #[error("{path} is served by {} already: use that helper, or stop it first", process(.pid))]
    AlreadyServed {
        /// The socket.
        path: PathBuf,
        /// Process of the other helper, unless it had not written its number down yet.
        pid: Option<u32>,
    },
    /// Something that is no socket has the socket's name.
    #[error("{path} exists and is no socket: move it away, or choose another name")]
    NotASocket {
        /// Its path.
        path: PathBuf,
    },
    /// The name is empty, has a `/` in it, or makes a path that is too long for a socket.
    #[error("{path:?} cannot be a socket's name: one file name, and at most 107 bytes with its directory")]
    Name {
        /// What was asked for.
        path: PathBuf,
    },
    /// A ring size that the layout does not allow.
    #[error("a ring of {bytes} bytes: it must be a power of two from {smallest} to {largest}")]
    RingSize {
        /// What was asked for, or what the helper said.
        bytes: u32,
        /// Least.
        smallest: u32,
        /// Most.
        largest: u32,
    },
    /// No mode is called so.
    #[error("there is no ipc mode {name:?}: there are mq, rmq, rcq and adaptive")]
    Mode {
        /// What was asked for.
        name: String,
    },
    /// A core that this process may not use.
    #[error("this process cannot use core {core}: it may use {usable}")]
    Core {
        /// What was asked for.
        core: usize,
        /// What there is.
        usable: String,
    },
    /// The file is not a record of queues.
    #[error(
        "{path} is no record of message queues: {what}; remove it, and remove the queues that `ipcs -q` shows and no process uses (ipcrm)"
    )]
    Record {
        /// Where it lies.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// An option is zero that must not be.
    #[error("option {option} is 0: it must be at least 1")]
    ZeroOption {
        /// Its name.
        option: &'static str,
    },
    /// The kernel refused something.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// The kernel's word.
        source: std::io::Error,
    },
    /// The file system refused something.
    #[error("cannot {doing} {path}: {source}")]
    File {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// The kernel's word.
        source: std::io::Error,
    },
    /// No helper listens.
    #[error("no helper at {path}: start one (verbena node)")]
    NoHelper {
        /// The socket.
        path: PathBuf,
    },
    /// The helper's shared memory could shrink under us.
    #[error("the helper passed memory that is not sealed: it is no helper of this version")]
    Unsealed,
    /// The helper's shared memory has another size than it says.
    #[error("the helper passed {found} bytes of memory where {expected} were announced")]
    MemorySize {
        /// What the layout needs.
        expected: usize,
        /// What there is.
        found: i64,
    },
    /// This process may have no more descriptors: the kernel dropped those that the helper passed.
    #[error(
        "no file descriptors are left for the connection to the helper, which takes 4: close some, or raise the limit \
         of this process (ulimit -n)"
    )]
    OutOfDescriptors,
    /// The helper's greeting has another length or fewer descriptors than this version's.
    #[error("the helper's greeting has {bytes} bytes and {descriptors} descriptors: it is no helper of this version")]
    Greeting {
        /// Its bytes.
        bytes: usize,
        /// What came with it.
        descriptors: usize,
    },
    /// The other side speaks another format or version (rule F6).
    #[error("the helper does not fit this program: {0}")]
    Format(#[from] FormatError),
    /// The deadline passed before the request was in the ring: it was not sent, and may be sent again.
    #[error("the helper took nothing from a full request ring until the deadline: the request was not sent")]
    Full,
    /// The deadline passed after the request was sent: it may have been executed, or may still be (rule F2). Its
    /// answer, should it come, is dropped.
    #[error("no answer to request {number} by its deadline: it may be executed all the same")]
    Deadline {
        /// The request.
        number: u64,
    },
    /// The helper did not greet by the deadline.
    #[error("the helper at {path} did not answer by the deadline: is it stopped?")]
    NoGreeting {
        /// The socket.
        path: PathBuf,
    },
    /// A message is longer than the ring allows. Nothing was sent.
    #[error("a message of {bytes} bytes: the limit is {limit}; send it in parts or enlarge the helper's rings")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// What is allowed.
        limit: usize,
    },
    /// As many requests are posted and not polled as a connection may have.
    #[error("{limit} requests are outstanding: poll for answers before posting more")]
    Outstanding {
        /// The limit.
        limit: usize,
    },
    /// The helper answered that there is no answer.
    #[error("request refused: {0}")]
    Refused(#[from] Refusal),
    /// The helper ended, or ended this connection. What was outstanding has an unknown outcome (rule F2).
    #[error("the connection to the helper is over: {0}")]
    Over(#[from] Over),
}

impl Error {
    pub(crate) fn system(doing: &'static str, source: rustix::io::Errno) -> Self {
        Error::System { doing, source: source.into() }
    }

    pub(crate) fn file(doing: &'static str, path: impl Into<PathBuf>, source: impl Into<std::io::Error>) -> Self {
        Error::File { doing, path: path.into(), source: source.into() }
    }
}

/// Why a request has no answer. The helper is alive and the connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The answer is longer than a message may be.
    #[error("the answer has {bytes} bytes and a message at most {limit}: ask for less at a time")]
    AnswerTooLong {
        /// Its length.
        bytes: u32,
        /// What is allowed.
        limit: u32,
    },
    /// The service dropped the request.
    #[error("the service dropped it without an answer")]
    Unanswered,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Over {
    /// The helper is gone without a word.
    #[error("the helper is gone")]
    HelperGone,
    /// The helper said why.
    #[error("{0}")]
    Dismissed(#[from] Farewell),
    /// The helper wrote what it must not.
    #[error("the helper broke the rules: {0}")]
    Broken(#[from] Breach),
}

/// What a peer wrote into shared memory, into a queue, or on the socket, that it must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Breach {
    /// A line that says it is a later one than can be.
    #[error("a line that is {position} where {expected} comes next")]
    Position {
        /// What the line says.
        position: u64,
        /// What it can be.
        expected: u64,
    },
    /// A head that went back, or beyond what was produced.
    #[error("head {head} after {before} with tail {tail}")]
    Head {
        /// The consumer's position.
        head: u64,
        /// What it was before.
        before: u64,
        /// Ours.
        tail: u64,
    },
    /// A message longer than the limit.
    #[error("a message of {length} bytes where {longest} are the limit")]
    Length {
        /// What it says.
        length: usize,
        /// The limit.
        longest: usize,
    },
    /// A message of no kind that this version knows.
    #[error("a message of unknown kind {kind}")]
    Kind {
        /// The kind.
        kind: u32,
    },
    /// A request number that is not larger than all before it, or a response to no request.
    #[error("number {number} out of order")]
    Number {
        /// The number.
        number: u64,
    },
    /// A message in the queue is not a piece of a message, or does not continue the piece before.
    #[error("a message in the queue that is no piece, or not the next one")]
    Piece,
    /// A queue that this side uses is gone, or closed to it.
    #[error("the queue is gone")]
    Queue,
    /// A refusal whose body is not one.
    #[error("a refusal that says nothing known")]
    Refusal,
    /// Words on the socket after the greeting.
    #[error("words on the socket after the greeting")]
    Talk,
}

fn process(pid: &Option<u32>) -> String {
    pid.map_or("another process".to_owned(), |pid| format!("process {pid}"))
}
