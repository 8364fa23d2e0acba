//! Hits that are answered before hyper sees their requests.
//!
//! The connection's reads pass through here on their way to hyper. Between two requests, when nothing is in hyper's hands, heads are read here first:
//!
//! ```text
//!            a head in a strict subset, and its copy is good: written at once, and hyper has seen nothing
//!            +------+
//!            v      |
//!   --->  resting  -+--- words are on their way --> looking --- good: written -----> resting
//!    ^              |                                  |
//!    |              +--- anything else --------+<------+ not good
//!    |                                         v
//!    |  answered, and flushed               handing: hyper gets the bytes of this request, and none behind them
//!    +-----------------------------------------+
//!                   +--- the end of a request cannot be told from its head --> passing: hyper gets all that comes, for good
//! ```
//!
//! This is no second opinion about HTTP. Heads are parsed by the parser that hyper has. What this accepts is a part of what hyper accepts, and it refuses nothing: it hands
//! over. The key, the rules, the words and the form of an answer come from the functions that answer for hyper ([`Exchange`](crate::exchange::Exchange)), in
//! their order, so words are read after the request arrived (rule P1).
//!
//! A connection gives way to others after [`MOST`] hits or [`MOST_BYTES`] of them. While its client takes nothing, nothing more is read from it.

pub(crate) mod head;
pub(crate) mod written;

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use tokio::time::Instant;

use crate::exchange::Exchange;
use crate::exchange::direct::{Direct, Looking};
use head::{Head, Memory};
use written::Output;

/// Hits that are answered in one turn of a connection.
const MOST: usize = 32;
/// Bytes of them, headers not counted.
const MOST_BYTES: usize = 256 << 10;
/// Bytes of a head that is not whole; hyper deals with what is longer.
const LONGEST: usize = 16 << 10;

/// Hits of one connection.
pub(crate) struct DirectHits {
    exchange: Arc<Exchange>,
    stage: Stage,
    /// Bytes that came and were neither answered nor handed over.
    kept: BytesMut,
    /// Bytes of `kept` in which no head ends.
    searched: usize,
    /// The target of the first request of `kept` is to be encoded.
    is_unencoded: bool,
    output: Option<Output>,
}

/// To whom the next byte belongs.
pub(crate) enum Stage {
    /// To the head of a request.
    Resting,
    /// The words for the first request of `kept` are being read. The number is the length of that request in
    /// bytes.
    Looking(Box<Looking>, usize),
    /// This many of the next bytes go to hyper.
    Handing(u64),
    /// Hyper has a whole request. It has not asked for more since.
    Handed,
    /// To hyper.
    Passing,
}

/// What is to be done after a turn.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Look at the stage.
    Went,
    /// Nothing can be done without more bytes.
    Wants,
    /// Enough for one turn.
    GivesWay,
}

impl DirectHits {
    pub fn new(exchange: Arc<Exchange>) -> Self {
        DirectHits {
            exchange,
            stage: Stage::Resting,
            kept: BytesMut::new(),
            searched: 0,
            is_unencoded: false,
            output: None,
        }
    }

    pub fn stage(&mut self) -> &mut Stage {
        &mut self.stage
    }

    pub fn output(&mut self) -> &mut Option<Output> {
        &mut self.output
    }

    /// Whether something was begun that hyper knows nothing of.
    pub fn is_busy(&self) -> bool {
        self.output.is_some() || matches!(self.stage, Stage::Looking(..))
    }

    /// Bytes that are not answered yet.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Takes at most `most` of the bytes that are not answered.
    pub fn take(&mut self, most: usize) -> BytesMut {
        self.searched = 0;
        self.kept.split_to(most.min(self.kept.len()))
    }

    /// From now on hyper gets all that comes.
    pub fn passes(&mut self) {
        self.stage = Stage::Passing;
    }

    /// Hyper is to have a request that began here, whose end is known or not.
    fn hands(&mut self, bytes: Option<u64>) -> Turn {
        self.stage = bytes.map_or(Stage::Passing, Stage::Handing);
        Turn::Went
    }

    /// Bytes came, while resting. They are answered, or kept.
    pub fn came(&mut self, bytes: &[u8], memory: &mut Memory) -> Turn {
        if !self.kept.is_empty() {
            self.kept.extend_from_slice(bytes);
            return self.goes_on(memory);
        }
        let (answered, turn) = self.answer(bytes, memory);
        self.keep(&bytes[answered..], &turn);
        turn
    }

    /// Goes on with the bytes that were kept, while resting.
    pub fn goes_on(&mut self, memory: &mut Memory) -> Turn {
        if !ends(&self.kept, self.searched) {
            self.searched = self.kept.len();
            return if self.kept.len() < LONGEST { Turn::Wants } else { self.hands(None) };
        }
        let mut kept = std::mem::take(&mut self.kept);
        if std::mem::take(&mut self.is_unencoded) {
            kept = head::encode_target(&kept);
        }
        let (answered, turn) = self.answer(&kept, memory);
        self.kept = kept;
        self.kept.advance(answered);
        if self.kept.is_empty() {
            // A connection that waits for its client holds no memory for it.
            self.kept = BytesMut::new();
        }
        self.searched = if turn == Turn::Wants { self.kept.len() } else { 0 };
        turn
    }

    fn keep(&mut self, bytes: &[u8], turn: &Turn) {
        self.kept.extend_from_slice(bytes);
        self.searched = if *turn == Turn::Wants { bytes.len() } else { 0 };
    }

    /// Answers the requests of these bytes, in order, until one is not to be answered here; says how many bytes they had.
    fn answer(&mut self, bytes: &[u8], memory: &mut Memory) -> (usize, Turn) {
        let mut answered = 0;
        loop {
            let left = &bytes[answered..];
            if left.is_empty() {
                return (answered, Turn::Wants);
            }
            if self.output.as_ref().is_some_and(|output| output.hits() >= MOST || output.body_bytes() >= MOST_BYTES) {
                return (answered, Turn::GivesWay);
            }
            let (head, length) = match head::parse(left, memory) {
                Head::Plain { head, bytes } => (head, bytes),
                Head::Partial if left.len() < LONGEST => return (answered, Turn::Wants),
                Head::Partial => return (answered, self.hands(None)),
                Head::Unencoded => {
                    self.is_unencoded = true;
                    return (answered, Turn::Went);
                }
                Head::Other { bytes } => return (answered, self.hands(bytes)),
            };
            // Behind all earlier ones, so this is read after the request arrived (rule P1).
            let began = Instant::now();
            match self.exchange.look_directly(head, began.into_std()) {
                Direct::Hit(hit) => {
                    let output = self.output.get_or_insert_with(|| Output::new(began));
                    if !self.exchange.write_hit(hit, began.into_std(), output, memory) {
                        return (answered, self.hands(Some(length as u64)));
                    }
                    answered += length;
                }
                Direct::Looking(looking) => {
                    self.stage = Stage::Looking(looking, length);
                    return (answered, Turn::Went);
                }
                Direct::Other => return (answered, self.hands(Some(length as u64))),
            }
        }
    }

    /// Waits for the words of the request that is looked for.
    pub fn poll_look(&mut self, context: &mut Context<'_>, is_ending: bool, memory: &mut Memory) -> Poll<()> {
        let Stage::Looking(looking, length) = &mut self.stage else { return Poll::Ready(()) };
        let length = *length;
        let Poll::Ready(words) = looking.reading.poll_words(context) else { return Poll::Pending };
        let Stage::Looking(looking, _) = std::mem::replace(&mut self.stage, Stage::Resting) else {
            return Poll::Ready(());
        };
        let began = looking.began;
        let hit = self.exchange.looked_directly(*looking, words).filter(|_| !is_ending);
        let is_written = hit.is_some_and(|hit| {
            let output = self.output.get_or_insert_with(|| Output::new(Instant::now()));
            self.exchange.write_hit(hit, began, output, memory)
        });
        if is_written {
            self.kept.advance(length);
            self.searched = 0;
            if self.kept.is_empty() {
                self.kept = BytesMut::new();
            }
        } else {
            self.hands(Some(length as u64));
        }
        Poll::Ready(())
    }
}

/// Whether a head may end in these bytes, of which the first `searched` were searched before. Hyper does the same: a client that sends byte by byte must
/// not have all of it parsed each time.
fn ends(bytes: &[u8], searched: usize) -> bool {
    let new = &bytes[searched.saturating_sub(3)..];
    searched == 0 || new.windows(2).any(|two| two == b"\n\n") || new.windows(3).any(|three| three == b"\n\r\n")
}
