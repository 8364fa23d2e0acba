//! The provider `xdp`: the owner's kernel executes one-sided operations in the receive path, on any network card, while the owner's
//! processes may be busy or stopped.
//!
//! A program (`program/`) sees every frame that an interface receives. Those for a node's address and port it takes apart, carries out
//! on the node's regions, and sends back in place, answers where the requests stood; everything else passes untouched. Regions
//! are maps of words that their owner has mapped into its memory, so that the program's atomics and the processor's
//! are the same (F3).
//!
//! # A frame
//!
//! The payload of a UDP datagram: at most [`MOST_WORDS`](wire::MOST_WORDS) words of 8 bytes, least significant byte first. An answer is
//! as long as its request.
//!
//! ```text
//!  frame
//!  word 0  magic "VXDP" | version u8 = 1 | kind u8 | words of the frame u16
//!       1  caller u32 | items u16 | 0 u16
//!       2  serial u64
//!       3  tag u64
//!       4  items ...
//!
//!  kind: 1 request, 2 answer, 3 "the caller is not known": its request as it came, but for kind and tag
//!
//!  batch
//!  word 0  1 u8 | outcome u8 | elements u16 | done u16 | words of the item u16
//!       1  region u32 | view u32
//!       2  identifier u64 of the first element with an effect; 0 if there is none
//!       3  secret, 16 bytes; of an answer: detail u64, 0 u64
//!       5  elements ...
//!
//!  settle
//!  word 0  2 u8 | outcome u8 | 0 u16 | 0 u16 | 5 u16
//!       1  0
//!       2  identifier u64
//!       3  0; of an answer: outcome of the operation u64, 0 u64
//!
//!  element
//!  word 0  operation u8 | skip u8 | keep u8 | 0 u8 | words of the body u16 | 0 u16
//!       1  byte u64 of the first word in the region
//!       2  body: what is written; of an answer: what was read
//!
//!  operation       body of the request       body of the answer
//!  1 read word     0                         the word
//!  2 write word    value                     0
//!  3 compare swap  expected, desired         the word as it was, desired
//!  4 fetch add     addend                    the word as it was
//!  5 read          0, of any number          the words
//!  6 write         words                     the same
//! ```
//!
//! Room for answers is 0 in a request. Reads and writes are of whole words; of a write the first `skip` bytes of the first word and the last
//! `keep` bytes of the last one are left as they are. Outcomes of a batch: 0 done, 1 revoked, 2 denied, 3 out of bounds (`detail` is the
//! region's size in bytes), 4 misaligned, 5 unknown; of a settle: 0 barred, 1 executed, 2 forgotten.
//!
//! # Who may ask
//!
//! A caller is introduced to a node by message, before it asks for anything: the node gives it a number and a key, of which
//! nobody else knows. The tag is SipHash-2-4 of the frame under that key, its own word taken for 0. A serial is used once and for one
//! frame: what comes a second time, or 1024 frames too late, is dropped. So are frames with another tag, and such as are none. What is
//! sent again carries a new serial and the same identifiers; the caller's window makes that an effect happens once (F2).
//!
//! # A region
//!
//! A map of words: `REGION_HEADER_WORDS` of header, and the region's own. Made anew it is another map in its place (F4):
//! a frame looks its region up once, so what has begun ends in the old memory.

mod claims;
mod clerk;
mod config;
#[cfg(any(test, feature = "fuzzing"))]
mod exercise;
pub mod interface;
mod introductions;
mod ledger;
mod link;
mod node;
mod program;
mod provider;
mod share;
mod sharing;
mod trial;
pub(crate) mod wire;

pub use config::XdpConfig;
pub use ledger::Counts as SentCounts;
pub use node::Counts;
#[cfg(test)]
pub(crate) use program::if_allowed;
pub use provider::XdpFabric;
pub(crate) use trial::try_out;

/// Takes arbitrary bytes for an answer to what a caller has sent.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn fuzz_answer(data: &[u8]) {
    exercise::answer(data);
}

/// Has the program take arbitrary bytes for requests; panics if it answers them with what is no answer, or reaches what it must not.
///
/// # Errors
/// That the program cannot be loaded here.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn fuzz_request(data: &[u8]) -> crate::Result<bool> {
    exercise::request(data)
}
