//! What a provider brings to the suite, and what the suite can ask of it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use verbena_terms::{Incarnation, ViewNumber};

use super::processes::Processes;
use crate::{Address, Error, Fabric, RegionKey, Rights, Secret};

/// How one provider's nodes are made and treated. What has a default is an ability that a provider may lack.
pub trait Harness {
    /// A node: a fabric of an incarnation that was never used before, of a rank of its own, which every other node of this harness can
    /// reach. It ends when the last handle is dropped.
    fn node(&mut self) -> Arc<dyn Fabric>;

    /// A node whose regions others reach, and which itself makes no calls: where nodes can be further apart than a
    /// process, it is far from the others.
    fn owner(&mut self) -> Arc<dyn Fabric> {
        self.node()
    }

    /// Lets some time pass: a fraction of a millisecond of sleep, or one step of a simulator (which moves its clock on even when nothing else is
    /// to be done).
    fn advance(&mut self);

    /// Whether nodes may be driven from several threads at once. A simulator says no, and is driven in turns.
    fn threads(&self) -> bool;

    /// From now until [`heal`](Self::heal), `fault` happens to what `from` sends to `to`.
    fn fault(&mut self, fault: Fault, _from: Incarnation, _to: Incarnation) -> Able<()> {
        Err(Unable(match fault {
            Fault::Cut => "a link cannot be cut",
            Fault::LoseAnswers => "answers cannot be lost",
            Fault::Hold => "operations cannot be held on their way",
            Fault::Repeat => "requests cannot be repeated",
        }))
    }

    /// Ends every fault from `from` to `to`. What was held arrives from now on, in any order against what is sent later.
    fn heal(&mut self, _from: Incarnation, _to: Incarnation) {}

    /// A node that runs apart from the checks, with one region of `bytes` in [`Target::VIEW`]: the one to stop and to kill.
    fn target(&mut self, _bytes: u64) -> Able<Target> {
        Err(Unable("no node runs apart from the checks"))
    }

    /// Where targets are processes: those that it has started.
    fn processes(&mut self) -> Option<&mut Processes> {
        None
    }

    /// Stops a target's process: nothing of it runs any more, its memory stays.
    fn pause(&mut self, target: Incarnation) -> Able<()> {
        self.processes().map(|processes| processes.pause(target)).ok_or(Unable("a node cannot be stopped"))
    }

    /// Lets a stopped target go on.
    fn resume(&mut self, target: Incarnation) {
        if let Some(processes) = self.processes() {
            processes.resume(target);
        }
    }

    /// Ends a target's process without warning, as `kill -9` does.
    fn kill(&mut self, target: Incarnation) -> Able<()> {
        self.processes().map(|processes| processes.kill(target)).ok_or(Unable("a node cannot be killed"))
    }

    /// Ends `former` (the last handle) and starts the next incarnation of its rank at the same address.
    fn restart(&mut self, _former: Arc<dyn Fabric>) -> Able<Arc<dyn Fabric>> {
        Err(Unable("an address is never used again"))
    }

    /// Goes to `at` in a version of the provider's frames (or of its memory layout) that no node speaks. Returns the
    /// error of the side that refused it.
    fn speak_another_version(&mut self, _at: &dyn Fabric) -> Able<Error> {
        Err(Unable("there are no frames"))
    }
}

/// What a harness can do, or why not.
pub type Able<T> = std::result::Result<T, Unable>;

/// What is missing for a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unable(pub &'static str);

impl fmt::Display for Unable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// What can happen between two nodes, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing that is sent arrives: neither requests, nor answers to the other's requests, nor messages.
    Cut,
    /// Requests arrive and are executed, but their answers do not come back.
    LoseAnswers,
    /// Requests are held on their way, past their deadlines, until the fault is healed; then they arrive.
    Hold,
    /// Every request arrives twice.
    Repeat,
}

/// A node that runs apart from the checks: in a process of its own, or as one of a simulator's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The target's incarnation.
    pub incarnation: Incarnation,
    /// Where.
    pub address: Address,
    /// Its region, with all rights.
    pub key: RegionKey,
}

impl Target {
    /// The view that a target is in.
    pub const VIEW: ViewNumber = super::scene::VIEW;
}

/// One line, so that a process can say on its standard output who it is.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secret = u128::from_be_bytes(self.key.secret.0);
        let Target { incarnation, address, key } = self;
        write!(f, "{} {address} {} {} {} {secret}", incarnation.to_word(), key.region, key.view.0, key.bytes)
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(line: &str) -> std::result::Result<Self, String> {
        let fields: Vec<&str> = line.split(' ').collect();
        let &[who, address, region, view, bytes, secret] = fields.as_slice() else {
            return Err(format!("a target has six fields: {line:?}"));
        };
        let incarnation = Incarnation::from_word(number(who)?);
        let key = RegionKey {
            owner: incarnation,
            region: number(region)?,
            view: ViewNumber(number(view)?),
            bytes: number(bytes)?,
            rights: Rights::Change,
            secret: Secret(number::<u128>(secret)?.to_be_bytes()),
        };
        Ok(Target { incarnation, address: Address(address.into()), key })
    }
}

fn number<T: FromStr>(field: &str) -> std::result::Result<T, String> {
    field.parse().map_err(|_| format!("{field:?} is no number of its kind"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_survives_its_line() {
        let incarnation = Incarnation::new(7, 9);
        let key = RegionKey {
            owner: incarnation,
            region: 3,
            view: Target::VIEW,
            bytes: 4096,
            rights: Rights::Change,
            secret: Secret([200; 16]),
        };
        let target = Target { incarnation, address: Address("any://where:1".into()), key };
        assert_eq!(target.to_string().parse(), Ok(target));
        assert!("1 2 3".parse::<Target>().is_err());
    }
}
