//! Two networks of this machine with a virtual link between them: the caller is in one and the target in the other.

use std::net::Ipv4Addr;

use verbena_namespaces::{End, Namespace, Result};

pub(crate) const CALLER_AT: Ipv4Addr = Ipv4Addr::new(10, 81, 0, 1);
pub(crate) const TARGET_AT: Ipv4Addr = Ipv4Addr::new(10, 81, 0, 2);

/// Both are there for as long as this is held, or a process is in them.
pub(crate) struct Network {
    pub(crate) caller: Namespace,
    pub(crate) target: Namespace,
}

impl Network {
    pub(crate) fn new() -> Result<Self> {
        let (caller, target) = (Namespace::new()?, Namespace::new()?);
        caller.link(End::new("near", CALLER_AT), &target, End::new("far", TARGET_AT))?;
        Ok(Network { caller, target })
    }
}
