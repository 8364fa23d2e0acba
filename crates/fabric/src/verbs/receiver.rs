//! The receive queue of one class: buffers into which the adapter puts what any other node sends, one for each message, in order of arrival.
//!
//! *The owner of a buffer.* The adapter, from its posting until its completion; then the clerk, which reads it and
//! posts it again. No code looks at a buffer that is posted.
//!
//! *The sender.* A completion names the queue pair, and a queue pair was made for one caller. What is left of a queue
//! pair that has gone has no sender.
//!
//! *What is promised.* Each caller may have [`WINDOW`] messages here that were not taken; what was taken is counted in a word of its own that its adapter reads. On RoCE
//! more is promised than there are buffers: if all callers send at once, their adapters find the queue dry, wait and try again (RNR), and end the connection when
//! they have tried for 60 ms. It carries nothing else. iWARP ends it at once (RFC 5040, 7), so as much is promised there as there is.

use std::collections::HashMap;
use std::io;
use std::mem;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use parking_lot::Mutex;
use rdma_mummy_sys::{
    ibv_create_qp, ibv_create_srq, ibv_destroy_qp, ibv_destroy_srq, ibv_poll_cq, ibv_post_srq_recv, ibv_qp, ibv_qp_cap,
    ibv_qp_init_attr, ibv_qp_type, ibv_recv_wr, ibv_req_notify_cq, ibv_sge, ibv_srq, ibv_srq_attr, ibv_srq_init_attr,
    ibv_wc, ibv_wc_status,
};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{BasicCompletionQueue, CompletionChannel, CompletionQueue};
use sideway::ibverbs::queue_pair::{BasicPostSendGuard, QueuePair, QueuePairAttribute, QueuePairState};
use verbena_terms::Incarnation;

use super::adapter::{Adapter, Reached};
use super::batches::Place;
use super::config::VerbsConfig;
use super::entries::Refusals;
use super::envelope::{Envelope, LETTER_BYTES};
use super::tally::Tally;
use crate::error::{Error, Result};
use crate::memory::Words;
use crate::message::{Class, InboxSender, Message};
use crate::pool::{Buffer, Pool};

/// Messages that a caller may have here that were not taken.
pub(super) const WINDOW: u64 = 16;
/// Buffers of one receive queue.
const BUFFERS: std::ops::RangeInclusive<usize> = 64..=256;
/// A queue has at most this part of the pool.
const PART_OF_POOL: usize = 16;
/// How many times over the buffers are promised, where a sender waits that finds none.
const PROMISED_TIMES: usize = 4;

/// What a receive queue is made of and for.
pub(super) struct Terms<'a> {
    pub(super) class: Class,
    pub(super) pool: &'a Pool,
    pub(super) inboxes: InboxSender,
    pub(super) tally: Arc<Tally>,
}

/// How many buffers a queue has at an adapter, or why it has no queue.
pub(super) fn buffers(adapter: &Adapter, config: &VerbsConfig) -> std::result::Result<usize, String> {
    if !config.sends {
        return Err("fabric.verbs_send is off, or there are keys, which secure nothing between adapters".into());
    }
    let of_pool = config.tcp.pool_bytes / PART_OF_POOL / LETTER_BYTES;
    let of_adapter = adapter.receives as usize;
    let (least, most) = BUFFERS.into_inner();
    if of_adapter < least {
        return Err(format!("{} has no receive queues of {least} buffers to share", adapter.name));
    }
    if of_pool < least {
        return Err(format!("fabric.pool is smaller than {} KiB", (least * LETTER_BYTES * PART_OF_POOL) >> 10));
    }
    Ok(of_pool.min(of_adapter).min(most))
}

pub(super) struct Receiver {
    // Dropped before what the adapter puts there.
    queue: Queue,
    completions: Arc<BasicCompletionQueue>,
    hold: Mutex<Hold>,
    // Dropped before the words.
    reached: Reached,
    counts: Words,
    slots: Arc<Mutex<Vec<u64>>>,
    adapter: Arc<Adapter>,
    class: Class,
    inboxes: InboxSender,
    tally: Arc<Tally>,
}

struct Hold {
    buffers: Vec<Buffer>,
    /// By number of the queue pair.
    callers: HashMap<u32, Caller>,
    found: Vec<ibv_wc>,
}

#[derive(Clone)]
struct Caller {
    who: Incarnation,
    slot: Arc<Slot>,
}

/// Where it is counted what was taken of one caller: given out again when nothing is counted there any more.
struct Slot {
    at: u64,
    free: Arc<Mutex<Vec<u64>>>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.free.lock().push(self.at);
    }
}

/// The shared receive queue itself.
struct Queue(NonNull<ibv_srq>);

// SAFETY: the library takes its calls from any thread.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: its queue pairs hold the receiver, so none is left.
        unsafe { ibv_destroy_srq(self.0.as_ptr()) };
    }
}

impl Receiver {
    /// With as many buffers, which are posted: there before any caller is connected. The channel reports completions.
    pub(super) fn new(
        adapter: &Arc<Adapter>,
        channel: &Arc<CompletionChannel>,
        buffers: usize,
        terms: Terms<'_>,
    ) -> Result<Arc<Self>> {
        let refused = |error| Error::system("make a receive queue", error);
        let Terms { class, pool, inboxes, tally } = terms;
        let mut completions = adapter.context.create_cq_builder();
        let completions = completions.setup_cqe(buffers as u32 + 1).setup_comp_channel(channel, 0).build();
        let completions = completions.map_err(|error| Error::system("make a completion queue", error))?;
        let attr = ibv_srq_attr { max_wr: buffers as u32, max_sge: 1, srq_limit: 0 };
        let mut attributes = ibv_srq_init_attr { srq_context: null_mut(), attr };
        // SAFETY: the domain is there as long as the adapter, which is held; the library reads and writes the structure alone.
        let queue = NonNull::new(unsafe { ibv_create_srq(adapter.domain.pd().as_ptr(), &raw mut attributes) });
        let queue = Queue(queue.ok_or_else(|| refused(io::Error::last_os_error()))?);
        let most = match adapter.refusals {
            Refusals::Told => buffers * PROMISED_TIMES,
            Refusals::Untold => buffers,
        } / WINDOW as usize;
        let counts = Words::anonymous(8 * most as u64)?;
        // SAFETY: `counts` is dropped behind `reached`.
        let reached = unsafe { adapter.reach(counts.address(), counts.bytes(), AccessFlags::RemoteRead) }?;
        let taken = (0..buffers).map(|_| pool.take(LETTER_BYTES)).collect::<Result<Vec<_>>>()?;
        // SAFETY: a structure of numbers alone.
        let found = vec![unsafe { mem::zeroed() }; buffers];
        let slots = Arc::new(Mutex::new((0..most as u64).map(|slot| 8 * slot).collect()));
        let hold = Mutex::new(Hold { buffers: taken, callers: HashMap::new(), found });
        let adapter = adapter.clone();
        let receiver = Receiver { queue, completions, hold, reached, counts, slots, adapter, class, inboxes, tally };
        let hold = receiver.hold.lock();
        hold.buffers.iter().enumerate().try_for_each(|(index, buffer)| receiver.post(index, buffer))?;
        drop(hold);
        Ok(Arc::new(receiver))
    }

    /// How many may send at a time.
    pub(super) fn most(&self) -> usize {
        self.counts.bytes() as usize / 8
    }

    /// The end of a connection by which `who` sends; it is to be connected. And where it is counted what was taken of it.
    ///
    /// # Errors
    /// [`Error::Full`] where too many others may send.
    pub(super) fn end_for(self: &Arc<Self>, who: Incarnation) -> Result<(Arrivals, Place)> {
        let at = self.slots.lock().pop();
        let most = self.most();
        let at = at.ok_or(Error::Full { what: "the table of those who may send to a receive queue", most })?;
        self.counts.store(at, 0);
        let slot = Arc::new(Slot { at, free: self.slots.clone() });
        let place = Place { remote_key: self.reached.rkey(), address: self.counts.address() + at, bytes: 8 };
        // SAFETY: what is pointed to is held by the adapter and by this receiver, which the end holds.
        let mut attributes = unsafe {
            ibv_qp_init_attr {
                qp_context: null_mut(),
                send_cq: self.adapter.idle.cq().as_ptr(),
                recv_cq: self.completions.cq().as_ptr(),
                srq: self.queue.0.as_ptr(),
                cap: ibv_qp_cap {
                    max_send_wr: 1,
                    max_recv_wr: 0,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: 0,
                },
                qp_type: ibv_qp_type::IBV_QPT_RC,
                sq_sig_all: 0,
            }
        };
        // SAFETY: as above; the library reads and writes the structure alone.
        let pair = NonNull::new(unsafe { ibv_create_qp(self.adapter.domain.pd().as_ptr(), &raw mut attributes) });
        let pair = pair.ok_or_else(|| Error::system("make a queue pair", io::Error::last_os_error()))?;
        let arrivals = Arrivals { pair, receiver: self.clone() };
        self.hold.lock().callers.insert(arrivals.qp_number(), Caller { who, slot });
        Ok((arrivals, place))
    }

    /// Takes what has come. Where it `is_to_be_told`, the channel tells of what comes next.
    pub(super) fn serve(&self, is_to_be_told: bool) {
        self.take();
        if is_to_be_told {
            // SAFETY: the queue is there as long as `self`.
            let refused = unsafe { ibv_req_notify_cq(self.completions.cq().as_ptr(), 0) };
            if refused != 0 {
                let error = io::Error::from_raw_os_error(refused);
                tracing::error!(%error, "a receive queue cannot be waited for");
            }
            self.take();
        }
    }

    fn take(&self) {
        let mut come: Vec<(Option<Message>, Arc<Slot>)> = Vec::new();
        let mut hold = self.hold.lock();
        let Hold { buffers, callers, found } = &mut *hold;
        // SAFETY: the queue is there as long as `self`; no more is written than there is room for.
        let count = unsafe { ibv_poll_cq(self.completions.cq().as_ptr(), found.len() as i32, found.as_mut_ptr()) };
        let count = usize::try_from(count).unwrap_or_default();
        if count == buffers.len() {
            self.tally.dry();
        }
        for completion in &found[..count] {
            let index = completion.wr_id as usize;
            // What is not a success has no bytes, and comes of a connection that has ended.
            if let (ibv_wc_status::IBV_WC_SUCCESS, Some(Caller { who, slot })) =
                (completion.status, callers.get(&completion.qp_num))
            {
                let bytes = &buffers[index].bytes()[..LETTER_BYTES.min(completion.byte_len as usize)];
                let message = match Envelope::parse(*who, bytes) {
                    Ok((envelope, body)) => Some(envelope.message(self.class, body)),
                    Err(error) => {
                        self.tally.malformed();
                        tracing::warn!(%error, "a message that cannot be read");
                        None
                    }
                };
                come.push((message, slot.clone()));
            }
            if let Err(error) = self.post(index, &buffers[index]) {
                tracing::error!(%error, "a receive queue has a buffer less");
            }
        }
        drop(hold);
        // The code that is woken may be the last to hold the fabric, and close it.
        for (message, slot) in come {
            if let Some(message) = message {
                self.tally.arrived();
                self.inboxes.deliver(message);
            }
            self.counts.fetch_add(slot.at, 1);
        }
    }

    /// Hands a buffer to the adapter.
    fn post(&self, index: usize, buffer: &Buffer) -> Result<()> {
        let mut piece =
            ibv_sge { addr: buffer.bytes().as_ptr() as u64, length: buffer.len() as u32, lkey: buffer.local_key() };
        let mut request = ibv_recv_wr { wr_id: index as u64, next: null_mut(), sg_list: &raw mut piece, num_sge: 1 };
        let mut bad = null_mut();
        // SAFETY: the buffer stays until the queue is gone; the request is read during the call alone.
        match unsafe { ibv_post_srq_recv(self.queue.0.as_ptr(), &raw mut request, &raw mut bad) } {
            0 => Ok(()),
            code => Err(Error::system("post to a receive queue", io::Error::from_raw_os_error(code))),
        }
    }
}

/// The end of a connection by which one caller sends.
pub(super) struct Arrivals {
    pair: NonNull<ibv_qp>,
    receiver: Arc<Receiver>,
}

// SAFETY: the library takes its calls from any thread.
unsafe impl Send for Arrivals {}
// SAFETY: as above.
unsafe impl Sync for Arrivals {}

impl QueuePair for Arrivals {
    unsafe fn qp(&self) -> NonNull<ibv_qp> {
        self.pair
    }

    type Guard<'g> = BasicPostSendGuard<'g>;

    fn start_post_send(&mut self) -> Self::Guard<'_> {
        unreachable!("nothing is sent by an end that receives")
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        let mut failed = QueuePairAttribute::new();
        failed.setup_state(QueuePairState::Error);
        // A buffer into which half a message has come is given back by the adapter then. Where it does not, it is lost with the connection.
        let _ = self.modify(&failed);
        self.receiver.hold.lock().callers.remove(&self.qp_number());
        // SAFETY: no code has it any more.
        unsafe { ibv_destroy_qp(self.pair.as_ptr()) };
    }
}
