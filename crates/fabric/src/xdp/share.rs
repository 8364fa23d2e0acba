//! A process's share in the program of a network: which places in its maps are this process's to give.
//!
//! All processes that use interfaces of one network namespace put the same program there. Its maps are cut into
//! [`MOST_PROCESSES`] shares; each process takes one, and only it puts anything into that share. How a share is taken,
//! and what becomes of it when its process ends without a word, is in [`sharing`](super::sharing).

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use parking_lot::Mutex;

use super::program::{Program, Used};
use super::sharing::Claim;
use crate::error::{Error, Result};

/// Processes that may have nodes in one network namespace.
pub(super) const MOST_PROCESSES: u32 = 16;
/// Nodes that a process may have there.
pub(super) const NODES_EACH: u32 = 16;
/// Regions that there may be at once, of all nodes of a process.
pub(super) const REGIONS_EACH: u32 = 1024;
/// Callers that may be known at once, by all nodes of a process.
pub(super) const CALLERS_EACH: u32 = 4096;

/// Of a region's number, what is below this is its place.
pub(super) const REGION_PLACES: u32 = MOST_PROCESSES * REGIONS_EACH;

/// What a process has of a program.
pub(super) struct Share {
    program: Arc<Program>,
    number: u32,
    taken: Mutex<Taken>,
    /// `None` where this process alone has the program.
    claim: Option<Claim>,
}

struct Taken {
    nodes: Places,
    callers: Places,
    regions: Places,
    /// How many regions were given their numbers so far, so that a number comes back late.
    regions_given: u32,
    /// As the program's maps say it.
    used: Used,
}

/// Places of one kind.
struct Places {
    first: u32,
    taken: Vec<bool>,
    what: &'static str,
}

impl Places {
    fn of(share: u32, each: u32, what: &'static str) -> Self {
        Places { first: share * each, taken: vec![false; each as usize], what }
    }

    /// The first that is free; and how many there are up to it.
    fn take(&mut self) -> Result<(u32, u32)> {
        let free = self.taken.iter().position(|taken| !taken);
        let free = free.ok_or(Error::Full { what: self.what, most: self.taken.len() })?;
        self.taken[free] = true;
        Ok((self.first + free as u32, 1 + free as u32))
    }

    fn give_back(&mut self, place: u32) {
        self.taken[(place - self.first) as usize] = false;
    }
}

impl Share {
    /// Of a program that is on no interface.
    pub(super) fn alone(program: Arc<Program>) -> Arc<Self> {
        Arc::new(Share::of(program, 0, None))
    }

    /// A free share, for this process. What was left in it is taken away.
    pub(super) fn claimed(program: Arc<Program>) -> Result<Arc<Self>> {
        let claim = Claim::new(&program)?;
        let number = claim.number();
        program.wipe(number, || true)?;
        Ok(Arc::new(Share::of(program, number, Some(claim))))
    }

    fn of(program: Arc<Program>, number: u32, claim: Option<Claim>) -> Self {
        let taken = Taken {
            nodes: Places::of(number, NODES_EACH, "the nodes of a process on xdp"),
            callers: Places::of(number, CALLERS_EACH, "the callers of a process on xdp"),
            regions: Places::of(number, REGIONS_EACH, "the regions of a process on xdp"),
            regions_given: 0,
            used: Used::default(),
        };
        Share { program, number, taken: Mutex::new(taken), claim }
    }

    /// Of which it is a share.
    pub(super) fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// How it was come by.
    pub(super) fn claim(&self) -> Option<&Claim> {
        self.claim.as_ref()
    }

    pub(super) fn take_node(&self) -> Result<u32> {
        self.take(|taken| &mut taken.nodes, |used| &mut used.nodes)
    }

    pub(super) fn give_node_back(&self, node: u32) {
        self.taken.lock().nodes.give_back(node);
    }

    pub(super) fn take_caller(&self) -> Result<u32> {
        self.take(|taken| &mut taken.callers, |used| &mut used.callers)
    }

    /// And what the program knows of it.
    pub(super) fn give_caller_back(&self, caller: u32) {
        // It was put there, or could not be.
        let _ = self.program.callers.delete(&caller.to_ne_bytes());
        self.taken.lock().callers.give_back(caller);
    }

    /// A number for a region, never 0.
    pub(super) fn take_region(&self) -> Result<u32> {
        let place = self.take(|taken| &mut taken.regions, |used| &mut used.regions)?;
        let mut taken = self.taken.lock();
        taken.regions_given = taken.regions_given % (u32::MAX / REGION_PLACES - 1) + 1;
        Ok(taken.regions_given * REGION_PLACES + place)
    }

    /// Takes a place of one kind. If there will be something in more places than ever, that is said where others see it.
    fn take(&self, kind: fn(&mut Taken) -> &mut Places, used_of: fn(&mut Used) -> &mut u32) -> Result<u32> {
        let mut taken = self.taken.lock();
        let (place, upto) = kind(&mut taken).take()?;
        let mut used = taken.used;
        let most = used_of(&mut used);
        *most = upto.max(*most);
        if used != taken.used {
            self.program.set_used(self.number, used)?;
            taken.used = used;
        }
        Ok(place)
    }

    /// Puts a region's memory where its number says, in the place of what was there: no processor runs the program on that any more.
    pub(super) fn put_region(&self, number: u32, memory: &MapHandle) -> libbpf_rs::Result<()> {
        let descriptor = memory.as_fd().as_raw_fd().to_ne_bytes();
        self.program.regions.update(&place_of(number).to_ne_bytes(), &descriptor, MapFlags::ANY)
    }

    /// And what the program has of it.
    pub(super) fn give_region_back(&self, number: u32) {
        let place = place_of(number);
        // It was put there, or could not be.
        let _ = self.program.regions.delete(&place.to_ne_bytes());
        self.taken.lock().regions.give_back(place);
    }
}

fn place_of(region: u32) -> u32 {
    region % REGION_PLACES
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Some(claim) = &self.claim {
            claim.end();
            // Its nodes hold it, so none is left. If it cannot be said, others look for what is not there.
            let _ = self.program.set_used(self.number, Used::default());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use verbena_terms::ViewNumber;

    use super::*;
    use crate::operation::OperationId;
    use crate::supply::{Life, Supply};
    use crate::xdp::if_allowed;
    use crate::xdp::node::Node;
    use crate::xdp::wire::TagKey;

    /// How many addresses a program has, and how many of the first callers and regions of both shares.
    fn has(program: &Program, shares: [u32; 2]) -> [usize; 3] {
        let full = |map: &MapHandle, each: u32| {
            let is_there = |place: &u32| map.lookup(&place.to_ne_bytes(), MapFlags::ANY).unwrap().is_some();
            shares.into_iter().flat_map(|share| share * each..share * each + 4).filter(is_there).count()
        };
        [program.endpoints.keys().count(), full(&program.callers, CALLERS_EACH), full(&program.regions, REGIONS_EACH)]
    }

    /// With two addresses, two callers and two regions.
    fn node(share: Arc<Share>, port: u16) -> Node {
        let node = Node::new(share).unwrap();
        for nth in 0..2 {
            node.answer_at(SocketAddr::from((Ipv4Addr::LOCALHOST, port + nth))).unwrap();
            node.admit(TagKey([1, 2]), OperationId(1)).unwrap();
            node.make(&Life::new(64, ViewNumber(1)).unwrap()).unwrap();
        }
        node
    }

    #[test]
    fn what_an_ended_process_left_is_taken_away_and_nothing_else() {
        let Some(program) = if_allowed(Program::load()) else { return };
        let [left, kept] = [(); 2].map(|()| Share::claimed(program.clone()).unwrap());
        let shares = [left.number, kept.number];
        let (ended, _living) = (node(left.clone(), 100), node(kept, 200));
        assert_eq!(has(&program, shares), [4, 4, 4]);
        assert_eq!(program.used(left.number), Used { nodes: 1, callers: 2, regions: 2 });
        // As if its process were no more: nothing of it runs.
        std::mem::forget(ended);
        program.wipe(left.number, || true).unwrap();
        assert_eq!((has(&program, shares), program.used(left.number)), ([2, 2, 2], Used::default()));
    }

    #[test]
    fn whoever_claims_a_share_begins_with_nothing() {
        let Some(program) = if_allowed(Program::load()) else { return };
        // No process has one, and something is left in each.
        for number in 0..MOST_PROCESSES {
            program.set_used(number, Used { nodes: 1, callers: 0, regions: 0 }).unwrap();
            let [low, ..] = number.to_ne_bytes();
            program.endpoints.update(&[low; 20], &(number * NODES_EACH).to_ne_bytes(), MapFlags::ANY).unwrap();
        }
        let share = Share::claimed(program.clone()).unwrap();
        let number = share.number;
        assert_eq!(has(&program, [number; 2]), [15, 0, 0]);
        drop(node(share, 100));
        assert_eq!((has(&program, [number; 2]), program.used(number)), ([15, 0, 0], Used::default()));
    }

    #[test]
    fn places_are_a_share_s_own_and_numbers_come_back_late() {
        let Some(program) = if_allowed(Program::load()) else { return };
        let share = Share::of(program, 3, None);
        let first = share.take_region().unwrap();
        share.give_region_back(first);
        let second = share.take_region().unwrap();
        assert_eq!((place_of(first), place_of(second)), (3 * REGIONS_EACH, 3 * REGIONS_EACH));
        assert!(first != second && first >= REGION_PLACES, "{first} {second}");
        for _ in 1..REGIONS_EACH {
            share.take_region().unwrap();
        }
        assert!(matches!(share.take_region(), Err(Error::Full { most: 1024, .. })));
        assert_eq!((share.take_node().unwrap(), share.take_caller().unwrap()), (3 * NODES_EACH, 3 * CALLERS_EACH));
    }
}
