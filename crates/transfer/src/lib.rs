//! Bulk transfer that is never wrong.
//!
//! [`Sender`] and [`Receiver`] are the two sides of a session without input and output. docs/reference/TRANSFER.md has the rules by
//! number, draws the bytes, and says what each rule prevents.

mod attributes;
mod change;
mod channel;
mod channel_kind;
mod descriptor;
mod disk;
mod endpoint;
mod file_error;
mod files;
mod frame;
mod incoming;
mod local;
mod part;
mod path;
mod place;
mod quic;
mod receiver;
mod receiver_action;
mod record;
mod rules;
mod run;
mod sender;
mod source;
mod source_copy;
mod store;
mod streams;
mod tcp;
mod tree;
mod tuner;
mod udp;
mod walk;

pub use change::Change;
pub use channel::{
    Channel, Ends, Lanes, LinkCounts, MOST_NUMBERS, MOST_STREAMS, StreamError, Token, hello, read_frame, say_hello,
    take_hello, write_frame,
};
pub use channel_kind::{ChannelKind, UnknownChannel};
pub use descriptor::{DescriptorListener, DescriptorListening, DescriptorStream, Handover};
pub use endpoint::Endpoint;
pub use file_error::FileError;
pub use files::{Entries, Facts, From, Kind, Root};
pub use frame::{
    Entry, EntryKind, Failure, FileNumber, Frame, FrameError, HELLO, Identity, LENGTHS, LONGEST_DATA, LONGEST_HEAD,
    Measured,
};
pub use local::{LocalError, LocalOptions, copy_local};
pub use part::Part;
pub use path::{VirtualPath, is_pattern, matches};
pub use place::{PlaceError, source_place, target_place};
pub use quic::{Fingerprint, QuicListener, QuicListening, QuicStream};
pub use receiver::Receiver;
pub use receiver_action::{Basis, ReceiverAction};
pub use record::{Claims, Owner, decode_claims, decode_owner, encode_record};
pub use rules::{CHUNK_BYTES, Rules, SessionSettings};
pub use run::{Progress, SessionError, Summary, receive, send};
pub use sender::{Look, Sender, SenderAction};
pub use source::Sources;
pub use store::{Room, Store};
pub use streams::{Arrived, Arriving, Later, Links, Maker};
pub use tree::{Hash, chunk_count, chunk_hash, chunk_length, root};
pub use tuner::{Decision, LOOK_EVERY, Sample, Step, Tuner, TunerSettings, Why};
#[cfg(feature = "fuzzing")]
pub use udp::udp_packet;
pub use udp::{
    DatagramError, DatagramRules, Datagrams, LONGEST_BODY, LONGEST_DATAGRAM, Opener, Sealer, SessionSecret,
    UdpListener, UdpListening, UdpSide, UdpStream,
};
pub use walk::Walk;
