//! Networks of one node each, for tests of what crosses them.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use verbena_fabric::xdp::interface;
use verbena_namespaces::{Crossing, Namespace};

use crate::namespaces;

/// Where networks cross.
const MIDDLE: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);

/// Networks with one node each, which reach each other by virtual links and one network in their middle.
pub struct Networks {
    middle: Namespace,
    crossing: Crossing,
    /// At the ends of links in the middle: answers of the kernel's come by them only to who has a program that receives.
    passing: Mutex<Vec<OwnedFd>>,
}

impl Networks {
    /// Moves this thread into the middle. `None` where that cannot be: then it is said that the test is skipped.
    pub fn new() -> Option<Networks> {
        let middle = namespaces::own(IpAddr::V4(MIDDLE))?;
        let crossing = Crossing::new(Namespace::here().unwrap(), MIDDLE).unwrap();
        Some(Networks { middle, crossing, passing: Mutex::default() })
    }

    /// One more, by a link of this name in the middle.
    pub fn add(&self, name: &str, address: Ipv4Addr) -> Namespace {
        let network = Namespace::new().unwrap();
        self.crossing.connect(name, &network, &[address]).unwrap();
        let passing = self.middle.enter(|| interface::pass_all(name).unwrap()).unwrap();
        self.passing.lock().unwrap().push(passing);
        network
    }
}
