//! The program in the kernel, and the maps that it works on: which addresses it answers, the regions, the callers and their windows.

use std::hash::Hasher;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use libbpf_rs::libbpf_sys::{self, bpf_test_run_opts};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject};
use siphasher::sip::SipHasher13;

use super::claims::Claims;
use super::share::{CALLERS_EACH, MOST_PROCESSES, NODES_EACH, REGIONS_EACH};
use crate::error::{Error, Result};

/// Words before those of a region itself: a page, so that the region begins at one.
pub(super) const REGION_HEADER_WORDS: usize = 512;
/// What it counts of the frames for a node.
pub(super) const COUNTERS: usize = 6;

/// Its name, by which others see it on an interface.
pub(super) const EXECUTOR: &str = "one_sided";
const PASS: &str = "pass";
const MAPS: [&str; 5] = ["endpoints", "regions", "callers", "counters", "shares"];
/// Of the program itself, of the claims to its shares and of its maps: a process that has them all can do with it what
/// we can.
pub(super) const DESCRIPTORS: usize = 2 + MAPS.len();

/// The program, loaded into the kernel. It and its maps are gone when the last descriptor of any process, and the last link, are.
pub(super) struct Program {
    executor: OwnedFd,
    claims: Claims,
    pub(super) endpoints: MapHandle,
    pub(super) regions: MapHandle,
    pub(super) callers: MapHandle,
    counters: MapHandle,
    /// What each share may have in them.
    shares: MapHandle,
}

/// What the program did with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is not for one of our nodes: its way goes on.
    Passed,
    /// It was for one of our nodes, and nothing will be answered.
    Dropped,
    /// It was answered in place.
    Answered,
}

impl Program {
    /// Loads it.
    ///
    /// # Errors
    /// [`Error::Unusable`] where the kernel refuses: it takes CAP_BPF and CAP_NET_ADMIN, and Linux 6.1 or later.
    pub(super) fn load() -> Result<Arc<Self>> {
        let object = load(only(EXECUTOR)?)?;
        Program::of(descriptor_of(&object, EXECUTOR)?, Claims::new()?, &object)
    }

    /// Tells programs apart: what was compiled from other sources, or by another compiler, has another one.
    pub(super) fn fingerprint() -> u64 {
        let mut hasher = SipHasher13::new();
        hasher.write(object_file().unwrap_or_default());
        hasher.finish()
    }

    /// The one that another process of this machine has loaded, by its [descriptors](Program::descriptors).
    ///
    /// # Errors
    /// [`Error::Unusable`] if these are not those of such a program.
    pub(super) fn of_descriptors(descriptors: [OwnedFd; DESCRIPTORS]) -> Result<Arc<Self>> {
        let [executor, claims, maps @ ..] = descriptors;
        let mut object = only("")?;
        for mut map in object.maps_mut() {
            let Some(at) = MAPS.iter().position(|name| map.name() == *name) else {
                // The program's own, of which nothing outside of it needs a handle.
                map.set_autocreate(false).map_err(refused)?;
                continue;
            };
            let expected = [map.key_size(), map.value_size(), map.max_entries()];
            map.reuse_fd(maps[at].as_fd()).map_err(refused)?;
            if [map.key_size(), map.value_size(), map.max_entries()] != expected {
                return Err(Error::Unusable {
                    provider: "xdp",
                    reason: format!("the map {} of a program that is there already is of another size", MAPS[at]),
                    remedy: "Run one version of verbena in a network namespace".into(),
                });
            }
        }
        Program::of(executor, Claims::of(claims), &load(object)?)
    }

    fn of(executor: OwnedFd, claims: Claims, object: &Object) -> Result<Arc<Self>> {
        let map = |name: &str| {
            let found = object.maps().find(|map| map.name() == name);
            let found = found.ok_or_else(|| Error::system("find a map", name))?;
            MapHandle::try_from(&found).map_err(|error| Error::system("keep a map", error))
        };
        let [endpoints, regions, callers, counters, shares] = MAPS.map(map);
        let (endpoints, regions, callers) = (endpoints?, regions?, callers?);
        Ok(Arc::new(Program { executor, claims, endpoints, regions, callers, counters: counters?, shares: shares? }))
    }

    /// What [`Program::of_descriptors`] takes, in another process too.
    pub(super) fn descriptors(&self) -> [BorrowedFd<'_>; DESCRIPTORS] {
        let Program { executor, claims, endpoints, regions, callers, counters, shares } = self;
        let [endpoints, regions, callers, counters, shares] =
            [endpoints, regions, callers, counters, shares].map(AsFd::as_fd);
        [executor.as_fd(), claims.as_fd(), endpoints, regions, callers, counters, shares]
    }

    /// The processes' claims to shares.
    pub(super) fn claims(&self) -> &Claims {
        &self.claims
    }

    /// What answers.
    pub(super) fn executor(&self) -> BorrowedFd<'_> {
        self.executor.as_fd()
    }

    /// Has the program look at a frame, from its Ethernet header on, as if an interface had received it. Answered in place.
    pub(super) fn run(&self, frame: &mut [u8]) -> Result<Verdict> {
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

    /// What was counted of the frames for a node, by all processors.
    pub(super) fn counted(&self, node: u32) -> [u64; COUNTERS] {
        let per_processor = self.counters.lookup_percpu(&node.to_ne_bytes(), MapFlags::ANY);
        let mut sums = [0; COUNTERS];
        for counted in per_processor.ok().flatten().unwrap_or_default() {
            let (words, _) = counted.as_chunks::<8>();
            sums.iter_mut().zip(words).for_each(|(sum, word)| *sum += u64::from_ne_bytes(*word));
        }
        sums
    }

    /// How many of a share's places may have something in them.
    pub(super) fn used(&self, share: u32) -> Used {
        let found = self.shares.lookup(&share.to_ne_bytes(), MapFlags::ANY).ok().flatten().unwrap_or_default();
        match found.as_chunks::<4>().0 {
            [nodes, callers, regions] => {
                let [nodes, callers, regions] = [nodes, callers, regions].map(|count| u32::from_ne_bytes(*count));
                Used { nodes, callers, regions }
            }
            _ => Used::default(),
        }
    }

    /// Says it. Before anything is put there.
    pub(super) fn set_used(&self, share: u32, used: Used) -> Result<()> {
        let value = [used.nodes, used.callers, used.regions].map(u32::to_ne_bytes).concat();
        let said = self.shares.update(&share.to_ne_bytes(), &value, MapFlags::ANY);
        said.map_err(|error| Error::system("say what a share of a program has", error))
    }

    /// Stops answering for the nodes of a share. Only for the process that has claimed it.
    pub(super) fn forget_addresses(&self, share: u32) -> Result<()> {
        let nodes = share * NODES_EACH..share * NODES_EACH + self.used(share).nodes;
        // A walk over keys that are taken away meanwhile may begin again.
        for address in self.endpoints.keys().collect::<Vec<_>>() {
            let node = self.endpoints.lookup(&address, MapFlags::ANY).map_err(left)?;
            let node = node.and_then(|node| node.try_into().ok()).map(u32::from_ne_bytes);
            if node.is_some_and(|node| nodes.contains(&node)) {
                self.endpoints.delete(&address).map_err(left)?;
            }
        }
        Ok(())
    }

    /// Takes away what is in a share, the addresses first. Only for the process that has claimed it. Leaves the rest
    /// when it should not `go_on`.
    pub(super) fn wipe(&self, share: u32, go_on: impl Fn() -> bool) -> Result<()> {
        self.forget_addresses(share)?;
        let used = self.used(share);
        let [callers, regions] = [(CALLERS_EACH, used.callers), (REGIONS_EACH, used.regions)]
            .map(|(each, used)| share * each..share * each + used);
        for (map, places) in [(&self.callers, callers), (&self.regions, regions)] {
            for place in places {
                if !go_on() {
                    return Ok(());
                }
                match map.delete(&place.to_ne_bytes()) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(left(error)),
                    _ => {}
                }
            }
        }
        self.set_used(share, Used::default())
    }
}

fn left(error: libbpf_rs::Error) -> Error {
    Error::system("take away what an ended process left", error)
}

/// How many of a share's places may have something in them, from the first one on. The kernel waits at each that is taken away or looked at, for
/// milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) nodes: u32,
    pub(super) callers: u32,
    pub(super) regions: u32,
}

/// What passes everything, loaded.
pub(super) fn load_pass() -> Result<OwnedFd> {
    descriptor_of(&load(only(PASS)?)?, PASS)
}

#[cfg(test)]
mod tests;

/// What was loaded; `None` where this user may not load a program: then it is said that the test is skipped.
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

/// What is in the file, of whose programs this one will be loaded.
fn only(program: &str) -> Result<OpenObject> {
    // What the library would print is in its errors.
    libbpf_rs::set_print(None);
    let mut object = ObjectBuilder::default().open_memory(object_file()?).map_err(refused)?;
    for mut each in object.progs_mut() {
        let is_wanted = each.name() == program;
        each.set_autoload(is_wanted);
    }
    Ok(object)
}

fn load(object: OpenObject) -> Result<Object> {
    object.load().map_err(refused)
}

fn descriptor_of(object: &Object, program: &str) -> Result<OwnedFd> {
    let found = object.progs().find(|each| each.name() == program);
    let found = found.ok_or_else(|| Error::system("find a program", program))?;
    found.as_fd().try_clone_to_owned().map_err(|error| Error::system("keep a program", error))
}

fn refused(error: libbpf_rs::Error) -> Error {
    Error::Unusable {
        provider: "xdp",
        reason: format!("the kernel does not take its program: {error}"),
        remedy: "It takes CAP_BPF and CAP_NET_ADMIN, and Linux 6.1 or later".into(),
    }
}

const _: () = assert!((MOST_PROCESSES * REGIONS_EACH).is_power_of_two());
