//! A channel: what a stream of a session goes over. Each gives the same ends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::time::Duration;

use crate::channel_kind::ChannelKind;
use crate::descriptor::Handover;
use crate::frame::{Frame, FrameError, HELLO, LENGTHS};

/// The ends of a stream.
pub struct Ends {
    /// What the other side sends.
    pub read: Box<dyn Read + Send>,
    /// What goes there.
    pub write: Box<dyn Write + Send>,
    /// Says that nothing more will be sent.
    pub finish: Box<dyn Fn() + Send + Sync>,
    /// Ends both at once, also while other threads wait in them.
    pub close: Box<dyn Fn() + Send + Sync>,
    /// What the link has done since the stream was made. `None`: the channel does not tell.
    pub counts: Box<dyn Fn() -> Option<LinkCounts> + Send>,
    /// What it goes over.
    pub channel: ChannelKind,
    /// The same for people: for example `tcp with bbr`.
    pub about: String,
    /// The descriptors that go along, where files are not sent but handed over (rule T3).
    pub handover: Option<Handover>,
}

/// What the link of a stream has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Bytes that the other side's kernel has.
    pub bytes: u64,
    /// Packets that were sent, those that were sent again included.
    pub packets: u64,
    /// Packets that were sent again.
    pub again: u64,
    /// The round trip, smoothed.
    pub round_trip: Duration,
}

/// One stream of a session (the paper's *advanced transport interface*, section 9.2.2).
pub trait Channel: Send {
    /// Takes it apart.
    fn ends(self: Box<Self>) -> std::io::Result<Ends>;
}

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The connection broke, or stood still for too long.
    #[error("the connection broke: {0}")]
    Io(#[from] std::io::Error),
    /// The other side ended it between two messages.
    #[error("the other side has gone")]
    Ended,
    /// What came is no message.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The first message is not ours.
    #[error("the other side does not know this session")]
    Hello,
}

/// Writes one message.
pub fn write_frame(to: &mut dyn Write, frame: &Frame, data: &[u8]) -> std::io::Result<()> {
    to.write_all(&frame.encode(data.len()))?;
    to.write_all(data)
}

/// Reads one message.
pub fn read_frame(from: &mut dyn Read) -> Result<(Frame, Vec<u8>), StreamError> {
    let mut lengths = [0; LENGTHS];
    let mut filled = 0;
    while filled < LENGTHS {
        match from.read(&mut lengths[filled..]) {
            Ok(0) if filled == 0 => return Err(StreamError::Ended),
            Ok(0) => return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let (head_length, data_length) = Frame::lengths(&lengths)?;
    let mut head = vec![0; head_length];
    from.read_exact(&mut head)?;
    let frame = Frame::decode(&lengths, &head)?;
    // Only chunks have data; its length is known to be within the limit.
    let mut data = vec![0; data_length];
    from.read_exact(&mut data)?;
    Ok((frame, data))
}

/// The secret of a session: whoever comes without it is closed (rule T1).
pub type Token = [u8; 16];

/// The first message on a stream, from the side that made it.
pub fn hello(token: Token, number: u16, streams: u16, chunk_bytes: u32) -> Frame {
    Frame::Hello { header: HELLO.header(), token, stream: number, streams, chunk_bytes }
}

/// The number of a stream and how many there may be, if its first message is a hello of this session.
pub(crate) fn is_hello(frame: &Frame, token: &Token) -> Option<(u16, u16)> {
    let Frame::Hello { header, token: found, stream: number, streams, .. } = frame else { return None };
    // Compared to the end, so that the time says nothing about where they differ.
    let differs = token.iter().zip(found).fold(0, |differs, (ours, theirs)| differs | (ours ^ theirs));
    let is_known = HELLO.check(header).is_ok() && differs == 0 && number < streams && *streams <= MOST_NUMBERS;
    is_known.then_some((*number, *streams))
}

/// Says hello on a stream that this side has made.
pub fn say_hello(
    stream: &mut TcpStream,
    token: Token,
    number: u16,
    streams: u16,
    chunk_bytes: u32,
) -> std::io::Result<()> {
    write_frame(stream, &hello(token, number, streams, chunk_bytes), b"")
}

/// Reads the hello of a stream that was taken: its number, and how many there may be.
pub fn take_hello(stream: &mut TcpStream, token: &Token, most: Duration) -> Result<(u16, u16), StreamError> {
    stream.set_read_timeout(Some(most))?;
    let (frame, _) = read_frame(stream)?;
    let found = is_hello(&frame, token).ok_or(StreamError::Hello)?;
    stream.set_read_timeout(None)?;
    Ok(found)
}

/// Streams of one session that carry chunks at a time.
pub const MOST_STREAMS: u16 = 16;
/// Numbers of streams of one session: as many for each channel as the session may use at a time.
pub const MOST_NUMBERS: u16 = MOST_STREAMS * ChannelKind::ALL.len() as u16;

/// The streams that carry chunks: `count` from the number `first` on. The numbers of a session's first channel begin with 0, those of the
/// next one with the most streams that a channel may have, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// The lowest number.
    pub first: u16,
    /// How many: at least one.
    pub count: u16,
}

impl Lanes {
    /// Their numbers.
    pub fn numbers(self) -> Range<u16> {
        self.first..self.first.saturating_add(self.count)
    }
}
