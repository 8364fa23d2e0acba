//! The program in the kernel, and what it works on: which addresses it answers, the regions, the callers and their windows.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use libbpf_rs::libbpf_sys::{self, bpf_map_create_opts, bpf_test_run_opts};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, Object, ObjectBuilder};
use parking_lot::Mutex;

use super::wire::TagKey;
use crate::error::{Error, Result};
use crate::memory::Words;
use crate::operation::OperationId;
use crate::supply::{Life, Part, Supply};
use crate::window::WINDOW;

/// Words before those of a region itself: a page, so that the region begins at one.
pub const REGION_HEADER_WORDS: usize = 512;
const REGION_HEADER_BYTES: u64 = 8 * REGION_HEADER_WORDS as u64;
/// Regions that there may be at once, of all nodes of a program.
pub const MOST_REGIONS: usize = 1024;
/// Callers that may be known at once, of all nodes of a program.
pub const MOST_CALLERS: usize = 4096;
/// Nodes of a program.
pub const MOST_NODES: usize = 64;

const NAMES: [&str; 4] = ["endpoints", "regions", "callers", "counters"];
const ENTRY_BYTES: usize = 24;
/// Below an identifier in its entry. All zero: nothing is known of it.
const CLAIM_BITS: u32 = 3;

/// The program, loaded into the kernel. It and its maps are gone when the last handle and the last link are.
pub struct Program {
    executor: OwnedFd,
    pass: OwnedFd,
    endpoints: MapHandle,
    regions: MapHandle,
    callers: MapHandle,
    counters: MapHandle,
    taken: Mutex<Taken>,
}

/// Which places in the maps are taken.
struct Taken {
    nodes: Vec<bool>,
    callers: Vec<bool>,
    regions: Vec<bool>,
    next_region: u32,
}

/// What the program did with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is none of ours: its way goes on.
    Passed,
    /// It was for one of ours, and nothing will be answered.
    Dropped,
    /// It was answered in place.
    Answered,
}

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

impl Program {
    /// Loads it.
    ///
    /// # Errors
    /// [`Error::Unusable`] where the kernel refuses: it takes CAP_BPF and CAP_NET_ADMIN, and Linux 6.1 or later.
    pub fn load() -> Result<Arc<Self>> {
        let mut object = open(object_file()?)?;
        let program = |object: &mut Object, name: &str| {
            let mut all = object.progs_mut();
            let found = all.find(|program| program.name() == name);
            let found = found.ok_or_else(|| Error::system("find a program", name))?;
            found.as_fd().try_clone_to_owned().map_err(|error| Error::system("keep a program", error))
        };
        let (executor, pass) = (program(&mut object, "one_sided")?, program(&mut object, "pass")?);
        let map = |name: &str| {
            let found = object.maps().find(|map| map.name() == name);
            let found = found.ok_or_else(|| Error::system("find a map", name))?;
            MapHandle::try_from(&found).map_err(|error| Error::system("keep a map", error))
        };
        let [endpoints, regions, callers, counters] = NAMES.map(map);
        Ok(Arc::new(Program {
            executor,
            pass,
            endpoints: endpoints?,
            regions: regions?,
            callers: callers?,
            counters: counters?,
            taken: Mutex::new(Taken {
                nodes: vec![false; MOST_NODES],
                callers: vec![false; MOST_CALLERS],
                regions: vec![false; MOST_REGIONS],
                next_region: 1,
            }),
        }))
    }

    /// What answers.
    pub(super) fn executor(&self) -> BorrowedFd<'_> {
        self.executor.as_fd()
    }

    /// What passes everything.
    pub(super) fn pass(&self) -> BorrowedFd<'_> {
        self.pass.as_fd()
    }

    /// Has the program look at a frame, from its Ethernet header on, as if an interface had received it. Answered in place.
    pub fn run(&self, frame: &mut [u8]) -> Result<Verdict> {
        let length = frame.len() as u32;
        let mut back = frame.to_vec();
        let mut options = bpf_test_run_opts {
            sz: size_of::<bpf_test_run_opts>() as libbpf_sys::size_t,
            data_in: frame.as_ptr().cast(),
            data_out: back.as_mut_ptr().cast(),
            data_size_in: length,
            data_size_out: length,
            repeat: 1,
            ..Default::default()
        };
        // SAFETY: both buffers are `length` bytes long and outlive the call, which keeps neither.
        let failed = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.executor.as_raw_fd(), &mut options) };
        if failed != 0 {
            return Err(Error::system("run the program", std::io::Error::from_raw_os_error(-failed)));
        }
        frame.copy_from_slice(&back);
        match options.retval {
            1 => Ok(Verdict::Dropped),
            2 => Ok(Verdict::Passed),
            3 => Ok(Verdict::Answered),
            other => Err(Error::system("run the program", format!("it gave {other}"))),
        }
    }
}

#[cfg(test)]
mod tests;

/// What was loaded; `None` where nobody may load a program: then it is said that the test is skipped.
#[cfg(test)]
pub(crate) fn if_allowed<T>(loaded: Result<T>) -> Option<T> {
    match loaded {
        Ok(loaded) => Some(loaded),
        Err(error) if error.to_string().contains("Operation not permitted") => {
            println!("skipped: nobody may load a program into this kernel");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn object_file() -> Result<&'static [u8]> {
    #[cfg(xdp_program)]
    return Ok(include_bytes!(concat!(env!("OUT_DIR"), "/one_sided.bpf.o")));
    #[cfg(not(xdp_program))]
    return Err(Error::Unusable {
        provider: "xdp",
        reason: format!("it was left out when verbena was built: {}", env!("VERBENA_XDP_MISSING")),
        remedy: "Install clang and libbpf-dev, and build again".into(),
    });
}

fn open(file: &[u8]) -> Result<Object> {
    let refused = |error: libbpf_rs::Error| Error::Unusable {
        provider: "xdp",
        reason: format!("the kernel does not take its program: {error}"),
        remedy: "It takes CAP_BPF and CAP_NET_ADMIN, and Linux 6.1 or later".into(),
    };
    // What the library would print is in its errors.
    libbpf_rs::set_print(None);
    ObjectBuilder::default().open_memory(file).and_then(libbpf_rs::OpenObject::load).map_err(refused)
}

/// A node's place in a program. Dropping it takes from the program all that is the node's.
pub struct Node {
    program: Arc<Program>,
    slot: u32,
    endpoints: Mutex<Vec<SocketAddr>>,
    mine: Mutex<Mine>,
}

#[derive(Default)]
struct Mine {
    regions: Vec<u32>,
    callers: Vec<u32>,
}

impl Node {
    /// A place for a node.
    pub fn new(program: Arc<Program>) -> Result<Self> {
        let slot = take(&mut program.taken.lock().nodes, "the table of nodes of a program")? as u32;
        Ok(Node { program, slot, endpoints: Mutex::default(), mine: Mutex::default() })
    }

    /// Answers at this address from now on.
    pub fn answer_at(&self, address: SocketAddr) -> Result<()> {
        let refused = |error| Error::system("answer at an address", format!("{address}: {error}"));
        let endpoints = &self.program.endpoints;
        endpoints.update(&endpoint(address), &self.slot.to_ne_bytes(), MapFlags::NO_EXIST).map_err(refused)?;
        self.endpoints.lock().push(address);
        Ok(())
    }

    /// Answers no more.
    pub(crate) fn close(&self) {
        for address in self.endpoints.lock().drain(..) {
            // It was put there, and nobody else takes it away.
            let _ = self.program.endpoints.delete(&endpoint(address));
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
        let slot = (number % MOST_REGIONS as u32).to_ne_bytes();
        let descriptor = map.as_fd().as_raw_fd().to_ne_bytes();
        // Waits until no processor runs the program on what was there before.
        self.program
            .regions
            .update(&slot, &descriptor, MapFlags::ANY)
            .map_err(|error| Error::system("put a region in its place", error))
    }

    /// Lets a caller in, whose next identifier is `next`; gives it its number.
    pub(crate) fn admit(&self, key: TagKey, next: OperationId) -> Result<u32> {
        let number = take(&mut self.program.taken.lock().callers, "the table of callers of a program")? as u32;
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
        self.program.callers.update(&number.to_ne_bytes(), &descriptor, MapFlags::ANY).map_err(refused)?;
        Ok(number)
    }

    /// Knows a caller no more.
    pub(crate) fn dismiss(&self, caller: u32) {
        let mut mine = self.mine.lock();
        let Some(at) = mine.callers.iter().position(|one| *one == caller) else { return };
        mine.callers.swap_remove(at);
        self.program.give_caller_back(caller);
    }

    /// As [`Program::run`].
    pub fn run(&self, frame: &mut [u8]) -> Result<Verdict> {
        self.program.run(frame)
    }

    /// What came of the frames for this node.
    pub fn counts(&self) -> Counts {
        let per_processor = self.program.counters.lookup_percpu(&self.slot.to_ne_bytes(), MapFlags::ANY);
        let mut sums = [0u64; 6];
        for counted in per_processor.ok().flatten().unwrap_or_default() {
            let (words, _) = counted.as_chunks::<8>();
            sums.iter_mut().zip(words).for_each(|(sum, word)| *sum += u64::from_ne_bytes(*word));
        }
        let [answered, malformed, forged, replayed, unknown_callers, overtaken] = sums;
        Counts { answered, malformed, forged, replayed, unknown_callers, overtaken }
    }
}

/// The memory of its regions are maps that the program reaches.
impl Supply for Node {
    fn make(&self, life: &Life) -> Result<(u32, Part)> {
        let (map, words) = region_map(life.bytes)?;
        let number = {
            let mut taken = self.program.taken.lock();
            let free = |number: &u32| !taken.regions[*number as usize % MOST_REGIONS];
            let number = (taken.next_region..=u32::MAX).take(MOST_REGIONS).find(free);
            let number = number.ok_or(Error::Full { what: "the table of regions of a program", most: MOST_REGIONS })?;
            taken.regions[number as usize % MOST_REGIONS] = true;
            taken.next_region = number.saturating_add(1);
            number
        };
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
            self.program.give_region_back(number);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.close();
        let Mine { regions, callers } = std::mem::take(self.mine.get_mut());
        regions.into_iter().for_each(|number| self.program.give_region_back(number));
        callers.into_iter().for_each(|number| self.program.give_caller_back(number));
        self.program.taken.lock().nodes[self.slot as usize] = false;
    }
}

impl Program {
    fn give_region_back(&self, number: u32) {
        let slot = number % MOST_REGIONS as u32;
        // It was put there, and nobody else takes it away.
        let _ = self.regions.delete(&slot.to_ne_bytes());
        self.taken.lock().regions[slot as usize] = false;
    }

    fn give_caller_back(&self, number: u32) {
        // It was put there, or could not be.
        let _ = self.callers.delete(&number.to_ne_bytes());
        self.taken.lock().callers[number as usize] = false;
    }
}

fn take(places: &mut [bool], what: &'static str) -> Result<usize> {
    let free = places.iter().position(|taken| !taken).ok_or(Error::Full { what, most: places.len() })?;
    places[free] = true;
    Ok(free)
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
