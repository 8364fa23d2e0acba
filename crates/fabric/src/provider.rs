//! A node's place on an interconnect, and the peers it knows there.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use verbena_terms::{Clock, Incarnation, Time, ViewNumber};

use crate::capability::Capabilities;
use crate::error::Result;
use crate::message::{Class, Inbox, Port, Views};
use crate::pool::Pool;
use crate::region::{Region, RegionKey, SharedRemote};

/// Where a node is reached: `scheme://rest`, made by a provider and read by the same provider elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Address(pub String);

impl Address {
    /// What stands before `://`: which provider made it.
    pub fn scheme(&self) -> &str {
        self.0.split_once("://").map_or("", |(scheme, _)| scheme)
    }

    /// The same place by another provider, where two are at one.
    #[cfg(any(feature = "verbs", feature = "xdp"))]
    pub(crate) fn with_scheme(&self, scheme: &str) -> Self {
        Address(format!("{scheme}://{}", self.rest()))
    }

    /// For people and logs: without what stands behind a `/`, which is a secret of those who were given the address.
    pub fn shown(&self) -> String {
        let place = self.rest().split('/').next().unwrap_or_default();
        format!("{}://{place}", self.scheme())
    }

    /// What stands behind `://`.
    pub fn rest(&self) -> &str {
        self.0.split_once("://").map_or(self.0.as_str(), |(_, rest)| rest)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One incarnation's endpoint on one provider. Dropping it closes it: its regions are gone, its peers see it as unreachable.
pub trait Fabric: Send + Sync {
    /// What it can do.
    fn capabilities(&self) -> &Capabilities;

    /// The incarnation that it is.
    fn identity(&self) -> Incarnation;

    /// Where peers find it.
    fn address(&self) -> Address;

    /// The clock that deadlines are on.
    fn clock(&self) -> &dyn Clock;

    /// Where buffers for [`Operation::Read`](crate::Operation::Read) and `Write` come from.
    fn pool(&self) -> &Pool;

    /// Registers `bytes` of zeroed memory as a region of `view`.
    fn register(&self, bytes: u64, view: ViewNumber) -> Result<Box<dyn Region>>;

    /// A peer by its incarnation and address. Does not wait for it: connections are made, and made again, when they are
    /// needed. An incarnation is never taken for another that has taken over its address. A node can connect to itself:
    /// where the owner must post on its own region, that is how (F3).
    fn connect(&self, peer: Incarnation, address: &Address) -> Result<Arc<dyn Peer>>;

    /// Opens a port for messages. [`Error::Full`](crate::Error::Full) if it is open already.
    fn listen(&self, port: Port, views: Views) -> Result<Inbox>;

    /// The view that the node acts in from now on: what its messages say, and which ones it takes (F5).
    fn set_view(&self, view: ViewNumber);

    /// What it has counted since it was opened; nothing where operations do not travel in frames of its own.
    fn frames(&self) -> Frames {
        Frames::default()
    }

    /// What became of its adapter's connections since it was opened; all zero without an adapter.
    fn connections(&self) -> Connections {
        Connections::default()
    }

    /// What became of messages since it was opened, where adapters carry some; nothing elsewhere.
    fn messages(&self) -> Messages {
        Messages::default()
    }
}

/// A fabric around another one, of which it does some things in its own way and all else as that one does. It is a [`Fabric`] itself.
pub trait Layer: Send + Sync {
    /// The other one.
    fn inner(&self) -> &dyn Fabric;

    /// As [`Fabric::register`].
    fn register(&self, bytes: u64, view: ViewNumber) -> Result<Box<dyn Region>> {
        self.inner().register(bytes, view)
    }

    /// As [`Fabric::connect`].
    fn connect(&self, peer: Incarnation, address: &Address) -> Result<Arc<dyn Peer>> {
        self.inner().connect(peer, address)
    }
}

impl<L: Layer> Fabric for L {
    fn capabilities(&self) -> &Capabilities {
        self.inner().capabilities()
    }

    fn identity(&self) -> Incarnation {
        self.inner().identity()
    }

    fn address(&self) -> Address {
        self.inner().address()
    }

    fn clock(&self) -> &dyn Clock {
        self.inner().clock()
    }

    fn pool(&self) -> &Pool {
        self.inner().pool()
    }

    fn register(&self, bytes: u64, view: ViewNumber) -> Result<Box<dyn Region>> {
        Layer::register(self, bytes, view)
    }

    fn connect(&self, peer: Incarnation, address: &Address) -> Result<Arc<dyn Peer>> {
        Layer::connect(self, peer, address)
    }

    fn listen(&self, port: Port, views: Views) -> Result<Inbox> {
        self.inner().listen(port, views)
    }

    fn set_view(&self, view: ViewNumber) {
        self.inner().set_view(view);
    }

    fn frames(&self) -> Frames {
        self.inner().frames()
    }

    fn connections(&self) -> Connections {
        self.inner().connections()
    }

    fn messages(&self) -> Messages {
        self.inner().messages()
    }
}

/// Frames of one-sided operations, where they travel in such: to this node, and from it to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    /// Of others, answered.
    pub answered: u64,
    /// Not a frame: dropped.
    pub malformed: u64,
    /// With another tag than its caller's: dropped.
    pub forged: u64,
    /// That were there before, or are too old: dropped.
    pub replayed: u64,
    /// Of callers that were not introduced, or were by an earlier incarnation: answered so.
    pub strange: u64,
    /// To others.
    pub sent: u64,
    /// Of those, such as were sent before and not answered.
    pub resent: u64,
}

/// Connections of adapters, where one-sided operations go by such.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// To others, made.
    pub made: u64,
    /// Of others, taken.
    pub taken: u64,
    /// Of those that were made, such as have ended, for whatever reason.
    pub lost: u64,
    /// Requests and calls of others that came to nothing.
    pub refused: u64,
}

/// Messages, where adapters carry those that fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Messages {
    /// To others, by the adapter.
    pub sent: u64,
    /// Of others, by the adapter.
    pub arrived: u64,
    /// To others by a socket, for they are larger than a buffer.
    pub too_large: u64,
    /// To others by a socket, for there was no connection of adapters.
    pub unconnected: u64,
    /// Of those that were sent, such as were under way when their connection ended: they have come or never will.
    pub lost: u64,
    /// What has come by the adapter and is no message: dropped.
    pub malformed: u64,
    /// How often all buffers of a receive queue were found used.
    pub dry: u64,
}

/// Another incarnation, as one node's fabric knows it.
pub trait Peer: Send + Sync {
    /// The incarnation.
    fn incarnation(&self) -> Incarnation;

    /// Opens a region of the peer. May block its thread until `deadline`, where opening takes the peer's help (never on the way of
    /// a request).
    fn open(&self, key: &RegionKey, deadline: Time) -> Result<SharedRemote>;

    /// Sends a message in `view`. Never blocks: [`Error::Full`](crate::Error::Full) when too many wait. That it was taken says nothing about its
    /// arrival.
    fn send(&self, class: Class, view: ViewNumber, port: Port, number: u64, body: &[u8]) -> Result<()>;
}
