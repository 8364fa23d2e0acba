//! A node's place in the program: the addresses that it answers at, its regions, and the callers that it knows.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::libbpf_sys::{self, bpf_map_create_opts};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle, MapType};
use parking_lot::Mutex;

use super::program::{COUNTERS, REGION_HEADER_WORDS, Verdict};
use super::share::Share;
use super::wire::TagKey;
use crate::error::{Error, Result};
use crate::memory::Words;
use crate::operation::OperationId;
use crate::supply::{Life, Part, Supply};
use crate::window::WINDOW;

/// What an ended process left at an address is taken away by then.
const LEFT: Duration = Duration::from_secs(5);
const REGION_HEADER_BYTES: u64 = 8 * REGION_HEADER_WORDS as u64;
const ENTRY_BYTES: usize = 24;
/// Below an identifier in its entry. All zero: nothing is known of it.
const CLAIM_BITS: u32 = 3;

/// How often which end was taken, of the frames for one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Answered.
    pub answered: u64,
    /// Not a frame.
    pub malformed: u64,
    /// With another tag than its caller's.
    pub forged: u64,
    /// With a serial that was used, or is too old.
    pub replayed: u64,
    /// Of a caller who was not introduced. Told so.
    pub unknown_callers: u64,
    /// While a copy was worked on by another processor.
    pub overtaken: u64,
}

/// A node's place in a program. Dropping it takes from the program all that is the node's.
pub(crate) struct Node {
    share: Arc<Share>,
    slot: u32,
    /// What was counted for the place before it was this node's.
    before: [u64; COUNTERS],
    endpoints: Mutex<Vec<SocketAddr>>,
    mine: Mutex<Mine>,
}

#[derive(Default)]
struct Mine {
    regions: Vec<u32>,
    callers: Vec<u32>,
}

impl Node {
    /// A place for a node, of those of a process.
    pub(crate) fn new(share: Arc<Share>) -> Result<Self> {
        let slot = share.take_node()?;
        let before = share.program().counted(slot);
        Ok(Node { share, slot, before, endpoints: Mutex::default(), mine: Mutex::default() })
    }

    /// Answers at this address from now on.
    ///
    /// # Errors
    /// If another process does, for longer than what an ended process left there stays.
    pub(crate) fn answer_at(&self, address: SocketAddr) -> Result<()> {
        let until = Instant::now() + LEFT;
        let endpoints = &self.share.program().endpoints;
        loop {
            match endpoints.update(&endpoint(address), &self.slot.to_ne_bytes(), MapFlags::NO_EXIST) {
                Ok(()) => break,
                Err(error) if error.kind() == ErrorKind::AlreadyExists && Instant::now() < until => {
                    thread::sleep(Duration::from_millis(10));
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    return Err(Error::Unusable {
                        provider: "xdp",
                        reason: format!("another node of this network answers at {address}"),
                        remedy: "Give each node an address, or a port, of its own".into(),
                    });
                }
                Err(error) => return Err(Error::system("answer at an address", format!("{address}: {error}"))),
            }
        }
        self.endpoints.lock().push(address);
        Ok(())
    }

    /// Answers no more.
    pub(crate) fn close(&self) {
        for address in self.endpoints.lock().drain(..) {
            // It was put there, and no other process takes it away.
            let _ = self.share.program().endpoints.delete(&endpoint(address));
        }
    }

    fn put_region(&self, number: u32, life: &Life, map: &MapHandle, words: &Words) -> Result<()> {
        let [change, read] = [life.change, life.read].map(|secret| secret.words());
        let fields = [
            u64::from(number),
            u64::from(life.view.0),
            change[0],
            change[1],
            read[0],
            read[1],
            life.bytes,
            u64::from(self.slot),
        ];
        for (at, field) in fields.into_iter().enumerate() {
            words.store(8 * at as u64, field);
        }
        // Waits until no processor runs the program on what was there before.
        self.share.put_region(number, map).map_err(|error| Error::system("put a region in its place", error))
    }

    /// Lets a caller in, whose next identifier is `next`; gives it its number.
    pub(crate) fn admit(&self, key: TagKey, next: OperationId) -> Result<u32> {
        let number = self.share.take_caller()?;
        self.mine.lock().callers.push(number);
        let refused = |error| Error::system("make a window", error);
        let map = array("caller", ENTRY_BYTES, 1 + WINDOW as u32, 0).map_err(refused)?;
        map.update(&0u32.to_ne_bytes(), &entry([key.0[0], key.0[1], u64::from(self.slot)]), MapFlags::ANY)
            .map_err(refused)?;
        // Of identifiers that an earlier window knew, nothing is known.
        for id in next.0.saturating_sub(WINDOW as u64).max(1)..next.0 {
            let at = 1 + (id % WINDOW as u64) as u32;
            map.update(&at.to_ne_bytes(), &entry([id << CLAIM_BITS, 0, 0]), MapFlags::ANY).map_err(refused)?;
        }
        let descriptor = map.as_fd().as_raw_fd().to_ne_bytes();
        self.share.program().callers.update(&number.to_ne_bytes(), &descriptor, MapFlags::ANY).map_err(refused)?;
        Ok(number)
    }

    /// Knows a caller no more.
    pub(crate) fn dismiss(&self, caller: u32) {
        let mut mine = self.mine.lock();
        let Some(at) = mine.callers.iter().position(|one| *one == caller) else { return };
        mine.callers.swap_remove(at);
        self.share.give_caller_back(caller);
    }

    /// Has the program look at a frame, as if an interface had received it.
    pub(crate) fn run(&self, frame: &mut [u8]) -> Result<Verdict> {
        self.share.program().run(frame)
    }

    /// What came of the frames for this node.
    pub(crate) fn counts(&self) -> Counts {
        let mut since = self.share.program().counted(self.slot);
        since.iter_mut().zip(self.before).for_each(|(now, before)| *now -= before);
        let [answered, malformed, forged, replayed, unknown_callers, overtaken] = since;
        Counts { answered, malformed, forged, replayed, unknown_callers, overtaken }
    }
}

/// The memory of its regions are maps that the program reaches.
impl Supply for Node {
    fn make(&self, life: &Life) -> Result<(u32, Part)> {
        let (map, words) = region_map(life.bytes)?;
        let number = self.share.take_region()?;
        self.mine.lock().regions.push(number);
        self.put_region(number, life, &map, &words)?;
        Ok((number, Part::of(words, REGION_HEADER_BYTES)))
    }

    fn make_anew(&self, number: u32, life: &Life) -> Result<Part> {
        let (map, words) = region_map(life.bytes)?;
        self.put_region(number, life, &map, &words)?;
        Ok(Part::of(words, REGION_HEADER_BYTES))
    }

    fn take_back(&self, number: u32) {
        let mut mine = self.mine.lock();
        if let Some(at) = mine.regions.iter().position(|one| *one == number) {
            mine.regions.swap_remove(at);
            self.share.give_region_back(number);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.close();
        let Mine { regions, callers } = std::mem::take(self.mine.get_mut());
        regions.into_iter().for_each(|number| self.share.give_region_back(number));
        callers.into_iter().for_each(|number| self.share.give_caller_back(number));
        self.share.give_node_back(self.slot);
    }
}

fn region_map(bytes: u64) -> Result<(MapHandle, Words)> {
    let words = bytes.div_ceil(8) + REGION_HEADER_WORDS as u64;
    let entries = u32::try_from(words).map_err(|_| Error::system("make a region", format!("of {bytes} bytes")))?;
    let flags = libbpf_sys::BPF_F_MMAPABLE | libbpf_sys::BPF_F_INNER_MAP;
    let map = array("region", 8, entries, flags).map_err(|error| Error::system("make a region", error))?;
    let words = Words::of_map(map.as_fd(), 8 * words)?;
    Ok((map, words))
}

fn array(name: &str, value_bytes: usize, entries: u32, flags: u32) -> libbpf_rs::Result<MapHandle> {
    let sz = size_of::<bpf_map_create_opts>() as libbpf_sys::size_t;
    let options = bpf_map_create_opts { sz, map_flags: flags, ..Default::default() };
    MapHandle::create(MapType::Array, Some(name), 4, value_bytes as u32, entries, &options)
}

fn entry(fields: [u64; 3]) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    for (at, field) in fields.into_iter().enumerate() {
        bytes[8 * at..8 * at + 8].copy_from_slice(&field.to_ne_bytes());
    }
    bytes
}

/// As the program looks it up: the address, an IPv4 one mapped into IPv6, and the port, as they are in packets.
fn endpoint(address: SocketAddr) -> [u8; 20] {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; 20];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..18].copy_from_slice(&address.port().to_be_bytes());
    bytes
}
