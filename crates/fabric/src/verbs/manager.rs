//! The kernel's manager of connections (rdma_cm), by which connections of iWARP are made, and others where the configuration says so: it finds the way
//! through a network by IP address, and takes service levels from its subnet manager.
//!
//! Queue pairs belong to this crate and to the context that was opened; the manager only connects them. Nothing here
//! waits for longer than its argument says.

use std::ffi::{CStr, c_void};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::socket::{SockaddrLike, SockaddrStorage};
use rdma_mummy_sys::{
    ibv_get_device_name, ibv_modify_qp, ibv_qp_attr, ibv_qp_state, rdma_accept, rdma_ack_cm_event, rdma_bind_addr,
    rdma_cm_event, rdma_cm_event_type as event_type, rdma_cm_id, rdma_conn_param, rdma_connect,
    rdma_create_event_channel, rdma_create_id, rdma_destroy_event_channel, rdma_destroy_id, rdma_establish,
    rdma_event_channel, rdma_get_cm_event, rdma_init_qp_attr, rdma_listen, rdma_port_space, rdma_resolve_addr,
    rdma_resolve_route, rdma_set_option,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::adapter::{Adapter, unusable};
use crate::error::{Error, Result};

/// Bytes of a [`Ticket`].
pub(super) const TICKET_BYTES: usize = 16;

/// By which the answering side knows what a call is for: random, sent by message, good for one call.
pub(super) type Ticket = [u8; TICKET_BYTES];

/// Calls that wait to be looked at. More are refused by the kernel, and made again.
const BACKLOG: i32 = 64;

/// Levels and names of options (rdma_cma.h): those of one identifier, and its type of service.
const OPTION_ID: i32 = 0;
const OPTION_ID_TOS: i32 = 0;

/// Where the manager's events come.
struct Channel(NonNull<rdma_event_channel>);

// SAFETY: the library takes its calls from any thread; the descriptor in it never changes.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

/// An event, and the identifier that it is about.
struct Event {
    kind: event_type::Type,
    status: i32,
    /// A call that has come.
    call: Option<Call>,
}

impl Channel {
    fn new() -> Result<Arc<Self>> {
        // SAFETY: it takes nothing.
        let channel = NonNull::new(unsafe { rdma_create_event_channel() }).ok_or_else(no_manager)?;
        let channel = Channel(channel);
        rustix::io::ioctl_fionbio(channel.descriptor(), true)
            .map_err(|error| Error::system("make a channel of the connection manager", error))?;
        Ok(Arc::new(channel))
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is there as long as `self`, and open as long as it is there.
        unsafe { BorrowedFd::borrow_raw(self.0.as_ref().fd) }
    }

    /// The next event, if one comes within that time.
    fn next(self: &Arc<Self>, patience: Duration) -> Result<Option<Event>> {
        let until = Instant::now() + patience;
        loop {
            let mut event: *mut rdma_cm_event = null_mut();
            // SAFETY: the channel is open; an event that is given is there until it is acknowledged.
            if unsafe { rdma_get_cm_event(self.0.as_ptr(), &raw mut event) } == 0 {
                return Ok(Some(self.take(event)));
            }
            match Errno::from_io_error(&io::Error::last_os_error()) {
                Some(Errno::AGAIN | Errno::INTR) => {}
                _ => return Err(refused("wait for the connection manager")),
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            // Interrupted, it looks again.
            let _ = poll(&mut [PollFd::from_borrowed_fd(self.descriptor(), PollFlags::IN)], Some(&left));
        }
    }

    /// Copies what an event says, and acknowledges it: its identifier cannot go before that.
    fn take(self: &Arc<Self>, event: *mut rdma_cm_event) -> Event {
        // SAFETY: it was given and is not acknowledged.
        let said = unsafe { &*event };
        let (kind, status) = (said.event, said.status);
        let call = NonNull::new(said.id).filter(|_| kind == event_type::RDMA_CM_EVENT_CONNECT_REQUEST).map(|id| {
            // SAFETY: of a call that has come the union holds this.
            let asked = unsafe { &said.param.conn };
            let length = if asked.private_data.is_null() { 0 } else { usize::from(asked.private_data_len) };
            let mut ticket = Ticket::default();
            let has_ticket = length >= TICKET_BYTES;
            if has_ticket {
                // SAFETY: this many bytes are there as long as the event is not acknowledged.
                unsafe { ticket.as_mut_ptr().copy_from(asked.private_data.cast(), TICKET_BYTES) };
            }
            let id = Identifier { id, _channel: self.clone() };
            Call { id, ticket: has_ticket.then_some(ticket), reads: asked.responder_resources }
        });
        // SAFETY: once for each that was given.
        unsafe { rdma_ack_cm_event(event) };
        Event { kind, status, call }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: identifiers hold the channel, so none is left.
        unsafe { rdma_destroy_event_channel(self.0.as_ptr()) };
    }
}

/// One end of a connection, as the manager has it: dropped, the connection ends.
pub(super) struct Identifier {
    id: NonNull<rdma_cm_id>,
    _channel: Arc<Channel>,
}

// SAFETY: the library takes its calls from any thread, and destroys an identifier when all its events were acknowledged.
unsafe impl Send for Identifier {}
// SAFETY: as above.
unsafe impl Sync for Identifier {}

impl Drop for Identifier {
    fn drop(&mut self) {
        // SAFETY: no code has it any more.
        unsafe { rdma_destroy_id(self.id.as_ptr()) };
    }
}

impl Identifier {
    fn new(channel: &Arc<Channel>) -> Result<Self> {
        let mut id = null_mut();
        // SAFETY: the channel is open and stays so for as long as the identifier is there.
        let code = unsafe { rdma_create_id(channel.0.as_ptr(), &raw mut id, null_mut(), rdma_port_space::RDMA_PS_TCP) };
        match NonNull::new(id).filter(|_| code == 0) {
            Some(id) => Ok(Identifier { id, _channel: channel.clone() }),
            None => Err(refused("make an identifier of the connection manager")),
        }
    }

    /// Whether it was bound to this adapter. Every library has contexts of its own, so the names are compared.
    fn is_at(&self, adapter: &Adapter) -> bool {
        // SAFETY: the identifier is there; its context and the device's name stay as long as the library does.
        unsafe {
            let context = self.id.as_ref().verbs;
            !context.is_null()
                && CStr::from_ptr(ibv_get_device_name((*context).device)).to_bytes() == adapter.name.as_bytes()
        }
    }

    /// Brings a queue pair into a state, with what the manager knows of the connection and what `more` adds.
    pub(super) fn modify(
        &self,
        pair: &mut impl sideway::ibverbs::queue_pair::QueuePair,
        state: ibv_qp_state::Type,
        more: impl FnOnce(&mut ibv_qp_attr),
    ) -> Result<()> {
        // SAFETY: a structure of numbers alone.
        let mut attributes: ibv_qp_attr = unsafe { std::mem::zeroed() };
        attributes.qp_state = state;
        let mut mask = 0;
        // SAFETY: the identifier is there; the library writes no more than both.
        if unsafe { rdma_init_qp_attr(self.id.as_ptr(), &raw mut attributes, &raw mut mask) } != 0 {
            return Err(refused("ask the connection manager for a queue pair's attributes"));
        }
        more(&mut attributes);
        // SAFETY: the pair is there for as long as it is borrowed.
        match unsafe { ibv_modify_qp(pair.qp().as_ptr(), &raw mut attributes, mask) } {
            0 => Ok(()),
            code => Err(Error::system("connect a queue pair", io::Error::from_raw_os_error(code))),
        }
    }
}

/// A request to be connected. Dropped, it is refused.
pub(super) struct Call {
    id: Identifier,
    /// None: it showed none.
    pub(super) ticket: Option<Ticket>,
    /// Reads and atomics that it will have under way at a time.
    pub(super) reads: u8,
}

impl Call {
    /// By which its queue pair is made ready.
    pub(super) fn identifier(&self) -> &Identifier {
        &self.id
    }

    /// Takes it, with a queue pair that is ready to receive or, of iWARP, initialised.
    pub(super) fn accept(self, queue_pair: u32, reads: u8) -> Result<Identifier> {
        let mut parameters = parameters(queue_pair, reads, 1, &[]);
        // SAFETY: the identifier is there; nothing of the parameters is kept.
        if unsafe { rdma_accept(self.id.id.as_ptr(), &raw mut parameters) } != 0 {
            return Err(refused("accept a connection"));
        }
        Ok(self.id)
    }
}

/// Where calls come in.
pub(super) struct Listener {
    // Before its channel.
    _id: Identifier,
    channel: Arc<Channel>,
    /// Where it is called.
    pub(super) address: SocketAddr,
}

impl Listener {
    /// At an address of the adapter's; port 0 is one that is free.
    pub(super) fn new(adapter: &Adapter, address: SocketAddr) -> Result<Self> {
        let is_chosen = address.port() == 0;
        for _ in 0..if is_chosen { MOST_PORTS } else { 1 } {
            if let Some(listener) = Listener::at(adapter, address)? {
                return Ok(listener);
            }
        }
        let (who, remedy) = if is_chosen {
            let remedy = "net.ipv4.ip_local_port_range says from which; or name one with fabric.verbs_rdma_cm_port";
            (format!("other processes have each of the {MOST_PORTS} ports that the system chose"), remedy)
        } else {
            let remedy = "another fabric.verbs_rdma_cm_port, or 0 for one that is free";
            (format!("another process has port {}", address.port()), remedy)
        };
        Err(unusable(format!("connections to {} cannot be made through {address}: {who}", adapter.name), remedy))
    }

    /// `None` where that port is taken, or the one that the system chose: those of iWARP are TCP's, and it does not
    /// look whether TCP has them.
    fn at(adapter: &Adapter, address: SocketAddr) -> Result<Option<Self>> {
        let channel = Channel::new()?;
        let id = Identifier::new(&channel)?;
        let to = SockaddrStorage::from(address);
        // SAFETY: the address is there during the call, and is not written to.
        if unsafe { rdma_bind_addr(id.id.as_ptr(), to.as_ptr().cast_mut().cast()) } != 0 {
            let remedy = "The address is that of the adapter's interface; `verbena doctor` shows both";
            return no_listener(adapter, address, remedy);
        }
        if !id.is_at(adapter) {
            return Err(unusable(
                format!("{address} is not an address of {}", adapter.name),
                "Let the node listen at an address of the adapter's interface, which `verbena doctor` shows",
            ));
        }
        // SAFETY: the identifier is bound.
        if unsafe { rdma_listen(id.id.as_ptr(), BACKLOG) } != 0 {
            return no_listener(adapter, address, "`verbena doctor` shows the device");
        }
        // SAFETY: as above; its address is of IPv4 or IPv6, where the port is at one place, in the order of the network.
        let port = u16::from_be(unsafe { id.id.as_ref().route.addr.src_addr_union.src_sin.sin_port });
        Ok(Some(Listener { _id: id, channel, address: SocketAddr::new(address.ip(), port) }))
    }

    /// The next call, if one comes within that time. Other events need no action: queue pairs report them too.
    pub(super) fn next(&self, patience: Duration) -> Result<Option<Call>> {
        Ok(self.channel.next(patience)?.and_then(|event| event.call))
    }
}

/// Why no caller can be taken at an address, from the last error of the system; `None` where its port is taken.
fn no_listener(adapter: &Adapter, address: SocketAddr, remedy: &str) -> Result<Option<Listener>> {
    let error = io::Error::last_os_error();
    if Errno::from_io_error(&error) == Some(Errno::ADDRINUSE) {
        return Ok(None);
    }
    Err(unusable(format!("connections to {} cannot be made through {address}: {error}", adapter.name), remedy))
}

/// Ports that are tried, of those that the system chooses.
pub(super) const MOST_PORTS: u32 = 32;

/// What a caller says about itself.
pub(super) struct Caller<'a> {
    pub(super) adapter: &'a Adapter,
    pub(super) ticket: &'a Ticket,
    /// The upper six bits are the DSCP.
    pub(super) traffic_class: u8,
    /// Reads and atomics that it will have under way at a time.
    pub(super) reads: u8,
}

/// How long an address is looked for at a time. Kernels can miss that a neighbour was found (6.1 does, of an address of its own, at the first try): then it is found when
/// it is looked for again.
const LOOK: Duration = Duration::from_millis(500);

/// Finds the way to the listener at `to`. The queue pair can be initialised then, and [connected](Way::connect).
pub(super) fn find(caller: &Caller<'_>, from: SocketAddr, to: SocketAddr, patience: Duration) -> Result<Way> {
    let until = Instant::now() + patience;
    loop {
        match look(caller, from, to, until) {
            Err(_) if Instant::now() + LOOK < until => {}
            found => return found,
        }
    }
}

fn look(caller: &Caller<'_>, from: SocketAddr, to: SocketAddr, until: Instant) -> Result<Way> {
    let channel = Channel::new()?;
    let id = Identifier::new(&channel)?;
    let (source, target) = (SockaddrStorage::from(from), SockaddrStorage::from(to));
    let milliseconds = LOOK.as_millis() as i32;
    let mut tos = caller.traffic_class;
    // SAFETY: one byte that is there during the call. Kernels that do not know it go on without.
    unsafe { rdma_set_option(id.id.as_ptr(), OPTION_ID, OPTION_ID_TOS, (&raw mut tos).cast(), 1) };
    let pointer = |address: &SockaddrStorage| address.as_ptr().cast_mut().cast();
    let mut way = Way { id, channel, until: until.min(Instant::now() + LOOK), to };
    // SAFETY: both addresses are there during the call, and are not written to.
    if unsafe { rdma_resolve_addr(way.id.id.as_ptr(), pointer(&source), pointer(&target), milliseconds) } != 0 {
        return Err(refused("find an adapter by its address"));
    }
    way.expect(event_type::RDMA_CM_EVENT_ADDR_RESOLVED)?;
    if !way.id.is_at(caller.adapter) {
        return Err(Error::System {
            what: "find an adapter by its address",
            reason: format!("the way to {to} does not go by {}", caller.adapter.name),
        });
    }
    // SAFETY: the identifier is bound to an adapter.
    if unsafe { rdma_resolve_route(way.id.id.as_ptr(), milliseconds) } != 0 {
        return Err(refused("find the way to an adapter"));
    }
    way.expect(event_type::RDMA_CM_EVENT_ROUTE_RESOLVED)?;
    way.until = until;
    Ok(way)
}

/// A way that was found.
pub(super) struct Way {
    id: Identifier,
    channel: Arc<Channel>,
    until: Instant,
    to: SocketAddr,
}

impl Way {
    /// By which a queue pair is made ready.
    pub(super) fn identifier(&self) -> &Identifier {
        &self.id
    }

    /// Calls, with a queue pair that is initialised. `ready` brings it to where it can send, where the manager does not
    /// do that itself. `None` if the kernel chose a port of this end that is taken: those of iWARP are TCP's, and it
    /// does not look whether TCP has them. Another way has another one.
    pub(super) fn connect(
        mut self,
        caller: &Caller<'_>,
        queue_pair: u32,
        ready: impl FnOnce(&Identifier) -> Result<()>,
    ) -> Result<Option<Identifier>> {
        let mut parameters = parameters(queue_pair, 1, caller.reads, caller.ticket);
        // SAFETY: the way was found; the ticket is there during the call, and nothing of the parameters is kept.
        if unsafe { rdma_connect(self.id.id.as_ptr(), &raw mut parameters) } != 0 {
            let error = io::Error::last_os_error();
            // Of a connection that has just ended its two ends' ports are had for a while.
            let is_taken = matches!(Errno::from_io_error(&error), Some(Errno::ADDRINUSE | Errno::ADDRNOTAVAIL));
            return if is_taken { Ok(None) } else { Err(Error::system("call an adapter", error)) };
        }
        let heard =
            self.expect_one_of(&[event_type::RDMA_CM_EVENT_ESTABLISHED, event_type::RDMA_CM_EVENT_CONNECT_RESPONSE])?;
        if heard == event_type::RDMA_CM_EVENT_CONNECT_RESPONSE {
            ready(&self.id)?;
            // SAFETY: the call was answered.
            if unsafe { rdma_establish(self.id.id.as_ptr()) } != 0 {
                return Err(refused("connect an adapter"));
            }
        }
        Ok(Some(self.id))
    }

    fn expect(&mut self, kind: event_type::Type) -> Result<()> {
        self.expect_one_of(&[kind]).map(drop)
    }

    fn expect_one_of(&mut self, kinds: &[event_type::Type]) -> Result<event_type::Type> {
        let event = self.channel.next(self.until.saturating_duration_since(Instant::now()))?;
        let what = "connect to an adapter";
        match event {
            Some(event) if kinds.contains(&event.kind) => Ok(event.kind),
            Some(event) => {
                Err(Error::System { what, reason: format!("{}: {}", self.to, told(event.kind, event.status)) })
            }
            None => Err(Error::System { what, reason: format!("{} has not answered in time", self.to) }),
        }
    }
}

/// An event that was not hoped for, in words.
fn told(kind: event_type::Type, status: i32) -> String {
    let what = match kind {
        event_type::RDMA_CM_EVENT_ADDR_ERROR => "no adapter has the way to this address",
        event_type::RDMA_CM_EVENT_ROUTE_ERROR => "there is no route",
        event_type::RDMA_CM_EVENT_CONNECT_ERROR => "the connection failed",
        event_type::RDMA_CM_EVENT_UNREACHABLE => "it does not answer",
        event_type::RDMA_CM_EVENT_REJECTED => "it refuses",
        event_type::RDMA_CM_EVENT_DEVICE_REMOVAL => "the device was taken away",
        _ => "the connection manager told of something else",
    };
    // Of a refusal it is a reason of the protocol's, and elsewhere an error of the system.
    if status < 0 {
        format!("{what}: {}", io::Error::from_raw_os_error(-status))
    } else {
        format!("{what} ({kind}, {status})")
    }
}

fn parameters(queue_pair: u32, serves: u8, asks: u8, ticket: &[u8]) -> rdma_conn_param {
    rdma_conn_param {
        private_data: ticket.as_ptr().cast::<c_void>(),
        private_data_len: ticket.len() as u8,
        responder_resources: serves,
        initiator_depth: asks,
        flow_control: 0,
        retry_count: super::line::RETRIES,
        rnr_retry_count: super::line::RETRIES_NOT_READY,
        srq: 0,
        qp_num: queue_pair,
    }
}

fn refused(what: &'static str) -> Error {
    Error::system(what, io::Error::last_os_error())
}

fn no_manager() -> Error {
    let error = io::Error::last_os_error();
    match Errno::from_io_error(&error) {
        // What stands in for the library says so of every function that was not found.
        Some(Errno::OPNOTSUPP) => unusable(
            "the library of the connection manager, librdmacm.so.1, is not there or cannot be loaded".into(),
            "Debian: apt-get install librdmacm1",
        ),
        _ => unusable(
            format!("the kernel's connection manager cannot be reached by /dev/infiniband/rdma_cm: {error}"),
            "modprobe rdma_ucm; a container is handed the file: docker run --device /dev/infiniband",
        ),
    }
}
