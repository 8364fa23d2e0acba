//! Where a test of what crosses a network can run.

use std::net::IpAddr;

use verbena_fabric::{FabricConfig, Provider, try_out};
use verbena_namespaces::{Namespace, or_skipped};

/// Moves this thread, and all that it starts from now on, into a network of its own, which has this address for itself. `None` where
/// the kernel takes no program, or no network can be made: then it is said that the test is skipped.
pub fn own(address: IpAddr) -> Option<Namespace> {
    match try_out(Provider::Xdp, &FabricConfig::default()) {
        Err(error) if error.to_string().contains("Operation not permitted") => {
            println!("skipped: nobody may load a program into this kernel");
            return None;
        }
        tried => tried.unwrap(),
    };
    let own = or_skipped(Namespace::new()).unwrap()?;
    own.join().unwrap();
    own.add_own_address(address).unwrap();
    Some(own)
}
