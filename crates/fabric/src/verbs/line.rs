//! The two ends of a connection: a queue pair that asks, with where its completions and what it fetches go, and one that answers.
//!
//! Only this file and `adapter.rs` speak to the adapter.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_mummy_sys::{ibv_qp_attr, ibv_qp_state, ibv_req_notify_cq};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::AddressHandleAttribute;
use sideway::ibverbs::completion::{BasicCompletionQueue, CompletionChannel, CompletionQueue};
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, PostSendGuard, QueuePair, QueuePairAttribute, QueuePairState, SetInlineData, SetScatterGatherEntry,
    WorkRequestFlags,
};

use super::adapter::{Adapter, Reached};
use super::batches::Place;
use super::entries::{DEPTH, Failure, Refusals, Request};
use super::introductions::{Endpoint, Meeting};
use super::manager::{self, Call, Caller, Identifier};
use super::receiver::Arrivals;
use crate::error::{Error, Result};
use crate::memory::Words;
use crate::message::Class;
use crate::operation::Operation;
use crate::pool::Buffer;

/// An unacknowledged request is sent again after 4.096 us times two to this power, 268 ms (IBA 9.9.6.1); adapters may take up to four times as long. With [`RETRIES`] that is
/// longer than a lease: what the transport leaves open, the view that follows settles.
const TIMEOUT: u8 = 16;
/// So often, the most that there is: then the connection ends.
pub(super) const RETRIES: u8 = 7;
/// So often a message is sent again that found the receive queue dry; once more would be for ever (IBA 9.7.5.2.8). Then the connection ends.
pub(super) const RETRIES_NOT_READY: u8 = 6;
/// How long the manager may take to find the way to another node and connect to it.
const PATIENCE: Duration = Duration::from_secs(4);
/// How long a caller that finds the other end's receive queue dry waits, as the transport counts it (IBA Table 45): 10.24 ms, more than a clerk waits for its turn
/// on a core.
const NOT_READY: u8 = 20;
/// Bytes that are sent with the request itself, not fetched by the adapter.
const INLINE: u32 = 8;

/// The status of a completion (ibv_wc_status): all others than these end a connection with its last request unknown.
const SUCCESS: u32 = 0;
const REMOTE_INVALID_REQUEST: u32 = 9;
const REMOTE_ACCESS_ERROR: u32 = 10;

/// The end that asks.
pub(super) struct Line {
    // Before what the adapter may still reach through it.
    pair: BasicQueuePair,
    /// Where the manager has connected it.
    call: Option<Identifier>,
    completions: Arc<BasicCompletionQueue>,
    fetched: Fetched,
    adapter: Arc<Adapter>,
    psn: u32,
    class: Class,
}

impl Line {
    /// Not connected yet. The channel reports completions when they were [armed](Self::arm).
    pub(super) fn new(adapter: &Arc<Adapter>, channel: &Arc<CompletionChannel>, class: Class) -> Result<Self> {
        let fetched = Fetched::new(adapter)?;
        let mut completions = adapter.context.create_cq_builder();
        // A request that fails completes, whether it was to be reported or not.
        let completions = completions.setup_cqe(DEPTH as u32 + 1).setup_comp_channel(channel, 0).build();
        let completions = completions.map_err(|error| Error::system("make a completion queue", error))?;
        let mut pair = adapter.domain.create_qp_builder();
        pair.setup_send_cq(completions.clone()).setup_recv_cq(adapter.idle.clone());
        pair.setup_max_send_wr(DEPTH as u32).setup_max_recv_wr(1).setup_max_inline_data(INLINE);
        let pair = pair.build().map_err(|error| Error::system("make a queue pair", error))?;
        Ok(Line { pair, call: None, completions, fetched, adapter: adapter.clone(), psn: packet_number()?, class })
    }

    /// What the other end has to know.
    pub(super) fn endpoint(&self) -> Endpoint {
        endpoint(&self.pair, &self.adapter, self.psn)
    }

    /// Connects it to an end that answers.
    pub(super) fn connect(&mut self, to: &Endpoint) -> Result<()> {
        let refused = |error| Error::system("connect a queue pair", error);
        initialise(&mut self.pair, &self.adapter, AccessFlags::LocalWrite)?;
        receive(&mut self.pair, &self.adapter, to, self.class)?;
        let mut ready = QueuePairAttribute::new();
        ready
            .setup_state(QueuePairState::ReadyToSend)
            .setup_sq_psn(self.psn)
            .setup_timeout(TIMEOUT)
            .setup_retry_cnt(RETRIES)
            .setup_rnr_retry(RETRIES_NOT_READY)
            .setup_max_read_atomic(self.adapter.asks.min(to.serves));
        self.pair.modify(&ready).map_err(refused)
    }

    /// Has the manager connect it to where it is expected. Takes at most [`PATIENCE`].
    pub(super) fn call(&mut self, to: &Meeting) -> Result<()> {
        let from = self.adapter.managed.ok_or(Error::Closed)?;
        let reads = self.adapter.asks.min(to.serves);
        let caller =
            Caller { adapter: &self.adapter, ticket: &to.ticket, traffic_class: traffic_class(self.class), reads };
        let Line { pair, call, .. } = self;
        let (queue_pair, until) = (pair.qp_number(), Instant::now() + PATIENCE);
        for _ in 0..manager::MOST_PORTS {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let way = manager::find(&caller, SocketAddr::new(from.ip(), 0), to.at, left)?;
            way.identifier().modify(pair, ibv_qp_state::IBV_QPS_INIT, |state| allow(state, self.adapter.sink()))?;
            let ready = |id: &Identifier| {
                id.modify(pair, ibv_qp_state::IBV_QPS_RTR, |_| {})?;
                id.modify(pair, ibv_qp_state::IBV_QPS_RTS, |state| {
                    (state.timeout, state.retry_cnt, state.rnr_retry) = (TIMEOUT, RETRIES, RETRIES_NOT_READY);
                })
            };
            *call = way.connect(&caller, queue_pair, ready)?;
            if call.is_some() {
                return Ok(());
            }
        }
        let reason =
            "others have each of the ports that the system chose: net.ipv4.ip_local_port_range says from which".into();
        Err(Error::System { what: "call an adapter", reason })
    }

    /// Posts the requests of a batch with one doorbell. Their buffers stay where they are until they are complete, or this is dropped.
    pub(super) fn post<'a>(&mut self, place: Place, requests: impl Iterator<Item = Request<'a>>) -> Result<()> {
        let local_key = self.fetched.reached.lkey();
        let base = self.fetched.words.address();
        let mut guard = self.pair.start_post_send();
        for Request { number, operation, is_signaled } in requests {
            let flags = if is_signaled { WorkRequestFlags::Signaled } else { WorkRequestFlags::none() };
            let slot = base + number % DEPTH as u64 * 8;
            let (key, at) = (place.remote_key, place.address + operation.range().0);
            let request = guard.construct_wr(number, flags);
            let (handle, (local_key, address, bytes)) = match operation {
                Operation::WriteWord { value, .. } => {
                    request.setup_write(key, at).setup_inline_data(&value.to_ne_bytes());
                    continue;
                }
                Operation::ReadWord { .. } => (request.setup_read(key, at), (local_key, slot, 8)),
                Operation::CompareSwap { expected, desired, .. } => {
                    (request.setup_atomic_compare_swap(key, at, *expected, *desired), (local_key, slot, 8))
                }
                Operation::FetchAdd { addend, .. } => {
                    (request.setup_atomic_fetch_add(key, at, *addend), (local_key, slot, 8))
                }
                // Of nothing an adapter does not look at the key; a word of the region has it looked at.
                Operation::Read { into: buffer, .. } | Operation::Write { from: buffer, .. } if buffer.is_empty() => {
                    (request.setup_read(key, place.address), (local_key, slot, 8))
                }
                Operation::Read { into, .. } => (request.setup_read(key, at), local(into)),
                Operation::Write { from, .. } => (request.setup_write(key, at), local(from)),
            };
            // SAFETY: a word of `fetched`, or a buffer of the pool that the poster keeps until the request is complete
            // or this is dropped.
            unsafe { handle.setup_sge(local_key, address, bytes) };
        }
        guard.post().map_err(|error| Error::system("post to a queue pair", error))
    }

    /// Sends messages with one doorbell, of which the last is reported. The same holds of their buffers.
    ///
    /// On iWARP each is: of what is not, TCP may send again out of its buffer after what stands behind it is complete (soft-iWARP has it do so with a page and more,
    /// siw_qp_tx.c, SENDPAGE_THRESH).
    pub(super) fn send<'a>(&mut self, messages: impl Iterator<Item = (u64, &'a Buffer)>) -> Result<()> {
        let is_each_reported = self.adapter.refusals == Refusals::Untold;
        let mut messages = messages.peekable();
        let mut guard = self.pair.start_post_send();
        while let Some((number, buffer)) = messages.next() {
            let is_reported = is_each_reported || messages.peek().is_none();
            let flags = if is_reported { WorkRequestFlags::Signaled } else { WorkRequestFlags::none() };
            let (local_key, address, bytes) = local(buffer);
            // SAFETY: as above.
            unsafe { guard.construct_wr(number, flags).setup_send().setup_sge(local_key, address, bytes) };
        }
        guard.post().map_err(|error| Error::system("post to a queue pair", error))
    }

    /// Nothing comes to its buffers any more, and nothing goes.
    pub(super) fn stop(&mut self) -> Result<()> {
        let mut failed = QueuePairAttribute::new();
        failed.setup_state(QueuePairState::Error);
        self.pair.modify(&failed).map_err(|error| Error::system("end a connection", error))
    }

    /// What has completed: the last request that succeeded, and the first one that did not.
    pub(super) fn poll(&self) -> (Option<u64>, Option<(u64, Failure)>) {
        let (mut last, mut failed) = (None, None);
        while let Ok(found) = self.completions.start_poll() {
            for completion in found {
                let number = completion.wr_id();
                match completion.status() {
                    // After a failure, later completions only repeat that this connection has failed.
                    _ if failed.is_some() => {}
                    SUCCESS => last = Some(number),
                    REMOTE_ACCESS_ERROR | REMOTE_INVALID_REQUEST => failed = Some((number, Failure::Refused)),
                    status => {
                        tracing::warn!(status, "a connection of adapters has ended");
                        failed = Some((number, Failure::Lost));
                    }
                }
            }
        }
        (last, failed)
    }

    /// The channel reports the next completion, and none that came before this.
    pub(super) fn arm(&self) -> Result<()> {
        // SAFETY: the queue is there as long as `self`.
        let refused = unsafe { ibv_req_notify_cq(self.completions.cq().as_ptr(), 0) };
        if refused == 0 {
            return Ok(());
        }
        Err(Error::system("ask to be told of completions", std::io::Error::from_raw_os_error(refused)))
    }

    /// What a complete request has fetched.
    pub(super) fn word(&self, number: u64, operation: &Operation) -> u64 {
        self.fetched.word(number, operation)
    }
}

/// What requests have fetched, by their number modulo [`DEPTH`].
struct Fetched {
    reached: Reached,
    words: Words,
    /// Whether the adapter gives what an atomic found with its bytes in the other order.
    swaps: bool,
}

impl Fetched {
    fn new(adapter: &Adapter) -> Result<Self> {
        let words = Words::anonymous(8 * DEPTH as u64)?;
        // SAFETY: `words` is dropped behind `reached`.
        let reached = unsafe { adapter.reach(words.address(), words.bytes(), adapter.sink()) }?;
        Ok(Fetched { reached, words, swaps: adapter.swaps.get().copied().unwrap_or(false) })
    }

    fn word(&self, number: u64, operation: &Operation) -> u64 {
        let word = self.words.load(number % DEPTH as u64 * 8);
        let is_atomic = matches!(operation, Operation::CompareSwap { .. } | Operation::FetchAdd { .. });
        if is_atomic && self.swaps { word.swap_bytes() } else { word }
    }
}

/// By which key, where and how long.
fn local(buffer: &Buffer) -> (u32, u64, u32) {
    (buffer.local_key(), buffer.bytes().as_ptr() as u64, buffer.len() as u32)
}

/// The end that answers, until it is dropped: the adapter executes what comes, on whatever regions it has keys for, or puts it into a receive queue.
pub(super) struct Served {
    _end: End,
    /// Where the manager has connected it.
    _call: Option<Identifier>,
}

/// What an end is for.
pub(super) enum End {
    /// One-sided operations.
    Answers(BasicQueuePair),
    /// Messages.
    Receives(Arrivals),
}

impl End {
    /// By which one-sided operations are asked for.
    pub(super) fn answers(adapter: &Adapter) -> Result<Self> {
        let mut pair = adapter.domain.create_qp_builder();
        pair.setup_send_cq(adapter.idle.clone()).setup_recv_cq(adapter.idle.clone());
        pair.setup_max_send_wr(1).setup_max_recv_wr(1);
        pair.build().map(End::Answers).map_err(|error| Error::system("make a queue pair", error))
    }
}

impl Served {
    /// Connected to an end that asks, with what that one has to know.
    pub(super) fn new(adapter: &Arc<Adapter>, mut end: End, to: &Endpoint, class: Class) -> Result<(Self, Endpoint)> {
        let endpoint = match &mut end {
            End::Answers(pair) => answer(pair, adapter, adapter.everything(), to, class),
            End::Receives(pair) => answer(pair, adapter, AccessFlags::RemoteRead, to, class),
        }?;
        Ok((Served { _end: end, _call: None }, endpoint))
    }

    /// Connected to an end that calls.
    pub(super) fn called(adapter: &Arc<Adapter>, mut end: End, call: Call) -> Result<Self> {
        let call = match &mut end {
            End::Answers(pair) => accept(pair, adapter, adapter.everything(), call),
            End::Receives(pair) => accept(pair, adapter, AccessFlags::RemoteRead, call),
        }?;
        Ok(Served { _end: end, _call: Some(call) })
    }
}

fn answer(
    pair: &mut impl QueuePair,
    adapter: &Adapter,
    access: AccessFlags,
    to: &Endpoint,
    class: Class,
) -> Result<Endpoint> {
    initialise(pair, adapter, access)?;
    receive(pair, adapter, to, class)?;
    Ok(endpoint(pair, adapter, packet_number()?))
}

fn accept(pair: &mut impl QueuePair, adapter: &Adapter, access: AccessFlags, call: Call) -> Result<Identifier> {
    let reads = call.reads.min(adapter.serves);
    call.identifier().modify(pair, ibv_qp_state::IBV_QPS_INIT, |state| allow(state, access))?;
    // Of iWARP the kernel does it, with the connection.
    if adapter.refusals == Refusals::Told {
        call.identifier().modify(pair, ibv_qp_state::IBV_QPS_RTR, |state| {
            (state.min_rnr_timer, state.max_dest_rd_atomic) = (NOT_READY, reads);
        })?;
    }
    call.accept(pair.qp_number(), reads)
}

/// What the other end may do through a queue pair that the manager connects.
fn allow(state: &mut ibv_qp_attr, access: AccessFlags) {
    state.qp_access_flags = access.bits() as u32;
}

/// CS6 and CS1, as everywhere: the upper six bits are the DSCP.
fn traffic_class(class: Class) -> u8 {
    match class {
        Class::Control => 48 << 2,
        Class::Bulk => 8 << 2,
    }
}

fn initialise(pair: &mut impl QueuePair, adapter: &Adapter, access: AccessFlags) -> Result<()> {
    let mut state = QueuePairAttribute::new();
    state.setup_state(QueuePairState::Init).setup_pkey_index(0).setup_port(adapter.port).setup_access_flags(access);
    pair.modify(&state).map_err(|error| Error::system("make a queue pair", error))
}

/// From now on it takes what the other end sends.
fn receive(pair: &mut impl QueuePair, adapter: &Adapter, from: &Endpoint, class: Class) -> Result<()> {
    let mut way = AddressHandleAttribute::new();
    way.setup_port(adapter.port).setup_service_level(adapter.service_levels[class as usize]);
    if adapter.is_infiniband {
        way.setup_dest_lid(from.lid);
    } else {
        way.setup_grh(&from.gid.into(), 0, adapter.gid_index, 64, traffic_class(class));
    }
    let mut state = QueuePairAttribute::new();
    state
        .setup_state(QueuePairState::ReadyToReceive)
        .setup_path_mtu((adapter.mtu as u32).min(from.mtu.into()).into())
        .setup_dest_qp_num(from.queue_pair)
        .setup_rq_psn(from.psn)
        .setup_max_dest_read_atomic(adapter.serves)
        .setup_min_rnr_timer(NOT_READY)
        .setup_address_vector(&way);
    pair.modify(&state).map_err(|error| Error::system("connect a queue pair", error))
}

fn endpoint(pair: &impl QueuePair, adapter: &Adapter, psn: u32) -> Endpoint {
    Endpoint {
        queue_pair: pair.qp_number(),
        psn,
        lid: adapter.lid,
        mtu: adapter.mtu as u8,
        serves: adapter.serves,
        gid: adapter.gid.into(),
    }
}

/// Where the numbering of packets begins, 24 bits: by chance, so that those of an earlier connection are not taken for this one's.
fn packet_number() -> Result<u32> {
    let mut random = [0; 4];
    getrandom::fill(&mut random).map_err(|error| Error::system("random bytes", error))?;
    Ok(u32::from_ne_bytes(random) & 0xff_ffff)
}
