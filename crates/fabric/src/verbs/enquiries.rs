//! What a node asks owners by message: where their adapters have a region, and so whether its key is still good.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use verbena_terms::{BootClock, Clock, Time, ViewNumber};

use super::batches::Place;
use super::introductions::{Purpose, Said};
use crate::ending::RegionId;
use crate::error::{Error, Result};
use crate::message::Class;
use crate::provider::{Address, Peer};

/// Without the place of a region for this long, the caller asks again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// The callers that wait for an answer, by the number of the request.
#[derive(Default)]
pub(super) struct Enquiries {
    asked: Mutex<HashMap<u64, SyncSender<Option<Place>>>>,
    next: AtomicU64,
}

impl Enquiries {
    /// Asks the owner, by its channel, where its adapter has a region; its answers reach this node at `answers`.
    ///
    /// # Errors
    /// [`Error::Revoked`] if the key opens nothing, [`Error::Unreachable`] if there is no answer in time.
    pub(super) fn place_of(
        &self,
        channel: &Arc<dyn Peer>,
        answers: &Address,
        id: RegionId,
        deadline: Time,
    ) -> Result<Place> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = sync_channel(1);
        self.asked.lock().insert(number, tell);
        let answer = ask(channel, number, &Said::Place(id, answers.clone()).to_bytes(), &told, deadline);
        self.asked.lock().remove(&number);
        let target = channel.incarnation();
        match answer? {
            Some(Some(place)) => Ok(place),
            Some(None) => Err(Error::Revoked { target, region: id.region, view: id.view }),
            None => {
                let reason = "it did not say in time where the region is".into();
                Err(Error::Unreachable { target, address: "its channel".into(), reason })
            }
        }
    }

    /// An owner has answered.
    pub(super) fn told(&self, number: u64, place: Option<Place>) {
        let asked = self.asked.lock().remove(&number);
        // The caller may have stopped waiting.
        let _ = asked.map(|asked| asked.try_send(place));
    }
}

/// Asks until there is an answer, or the deadline has passed.
fn ask(
    channel: &Arc<dyn Peer>,
    number: u64,
    request: &[u8],
    told: &Receiver<Option<Place>>,
    deadline: Time,
) -> Result<Option<Option<Place>>> {
    while BootClock.now() < deadline {
        match channel.send(Class::Control, ViewNumber(0), Purpose::Operations.port(), number, request) {
            Ok(()) | Err(Error::Full { .. }) => {}
            Err(error) => return Err(error),
        }
        if let Ok(answer) = told.recv_timeout(ASK_AGAIN.min(deadline.since(BootClock.now()))) {
            return Ok(Some(answer));
        }
    }
    Ok(None)
}
