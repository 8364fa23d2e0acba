//! In which order the bytes come of what an atomic found: some adapters give them most significant first, whatever the processor does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::adapter::{Adapter, unusable};
use super::batches::Place;
use super::entries::Request;
use super::line::{End, Line, Served};
use crate::error::{Error, Result};
use crate::memory::Words;
use crate::message::Class;
use crate::operation::Operation;

/// How long an adapter may take for one atomic on its own machine.
const PATIENCE: Duration = Duration::from_secs(5);

/// No byte of it is like another.
const WORD: u64 = 0x0102_0304_0506_0708;

/// Has the adapter add to a word of this process, through a connection with itself. Whether the bytes of what it found are to be swapped.
///
/// # Errors
/// [`Error::Unusable`] if it does not, or finds something else.
pub(super) fn swaps(adapter: &Arc<Adapter>) -> Result<bool> {
    let words = Words::anonymous(8)?;
    words.store(0, WORD);
    // SAFETY: `words` is dropped behind `reached`, and behind the two ends.
    let reached = unsafe { adapter.reach(words.address(), 8, adapter.everything()) }?;
    let mut asks = Line::new(adapter, &adapter.channel()?, Class::Control)?;
    let (_answers, endpoint) = Served::new(adapter, End::answers(adapter)?, &asks.endpoint(), Class::Control)?;
    asks.connect(&endpoint)?;
    let add = Operation::FetchAdd { at: 0, addend: 1 };
    let place = Place { remote_key: reached.rkey(), address: words.address(), bytes: 8 };
    asks.post(place, std::iter::once(Request { number: 0, operation: &add, is_signaled: true }))?;
    let since = Instant::now();
    let found = loop {
        match asks.poll() {
            (Some(_), None) => break asks.word(0, &add),
            (None, None) if since.elapsed() < PATIENCE => std::thread::sleep(Duration::from_micros(50)),
            (_, failed) => return Err(refused(adapter, &format!("an atomic did not complete ({failed:?})"))),
        }
    };
    match (words.load(0), found) {
        (now, WORD) if now == WORD + 1 => Ok(false),
        (now, found) if now == WORD + 1 && found == WORD.swap_bytes() => Ok(true),
        (now, found) => {
            Err(refused(adapter, &format!("one was added to {WORD:#x}: {found:#x} was found, and {now:#x} is there")))
        }
    }
}

fn refused(adapter: &Adapter, reason: &str) -> Error {
    unusable(
        format!("{}: {reason}", adapter.name),
        "Look for newer firmware of the adapter, or use the provider xdp or tcp",
    )
}
