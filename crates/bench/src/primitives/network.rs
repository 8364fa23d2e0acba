//! Two networks of this machine with a virtual link between them: the caller is in one and the target in the other.

use std::net::Ipv4Addr;

use verbena_namespaces::{End, Namespace, Result};

use super::steering::Receivers;

pub(crate) const CALLER_AT: Ipv4Addr = Ipv4Addr::new(10, 81, 0, 1);
pub(crate) const TARGET_AT: Ipv4Addr = Ipv4Addr::new(10, 81, 0, 2);

/// Both are there for as long as this is held, or a process is in them.
pub(crate) struct Network {
    pub(crate) caller: Namespace,
    pub(crate) target: Namespace,
    /// The target's interface. The kernel's threads for it bear its name, and are seen from every network: no other process has the same.
    far: String,
}

impl Network {
    pub(crate) fn new() -> Result<Self> {
        let (caller, target) = (Namespace::new()?, Namespace::new()?);
        let far = format!("far{}", std::process::id());
        caller.link(End::new("near", CALLER_AT), &target, End::new(&far, TARGET_AT))?;
        Ok(Network { caller, target, far })
    }

    /// Has `core` do what the target receives, from now on. Its interface has a program.
    pub(super) fn receive_on(&self, core: usize) -> std::result::Result<Receivers, String> {
        self.target.enter(|| Receivers::on_core(&self.far, core)).map_err(|error| error.to_string())?
    }
}
