//! A network, and the links between two.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::resume_unwind;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, gettid, move_into_link_name_space};

use crate::command::ip;

/// Why there is no network, or no link.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Making networks takes CAP_SYS_ADMIN.
    #[error("a network namespace cannot be made: {0}")]
    Make(#[source] io::Error),
    /// A thread could not be moved into one, or its own could not be looked at.
    #[error("a network namespace cannot be entered: {0}")]
    Enter(#[source] io::Error),
    /// A network was not made to forward.
    #[error("a network cannot be made to forward: {0}")]
    Forward(#[source] io::Error),
    /// The command that links or queues did not.
    #[error("{command} {words}: {reason}")]
    Command {
        /// `ip`, `tc` or `iptables-restore`.
        command: &'static str,
        /// Its arguments.
        words: String,
        /// What it said.
        reason: String,
    },
}

/// What was made, for a test; `None`, after it was said that the test is skipped, where only root can make networks.
///
/// # Errors
/// Why it was not made otherwise: then the test fails.
pub fn or_skipped<T>(made: Result<T>) -> Result<Option<T>> {
    if let Err(error @ Error::Make(_)) = &made {
        println!("skipped: only root can make network namespaces");
        eprintln!("{error}");
        return Ok(None);
    }
    made.map(Some)
}

/// With [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// A network of this machine: interfaces, addresses, routes and ports of its own.
#[derive(Debug)]
pub struct Namespace(File);

/// One end of a virtual link.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// Name of its interface.
    pub name: &'a str,
    /// Its address, in a network of 24 bits (IPv4) or 64 (IPv6).
    pub address: IpAddr,
}

impl<'a> End<'a> {
    /// The interface `name` with this address.
    pub fn new(name: &'a str, address: impl Into<IpAddr>) -> Self {
        End { name, address: address.into() }
    }
}

impl Namespace {
    /// A new one, with nothing in it but its `lo`, which is up.
    ///
    /// # Errors
    /// [`Error::Make`] for whoever may not.
    pub fn new() -> Result<Self> {
        let made = std::thread::spawn(|| {
            // SAFETY: the thread, which ends after this, shares its files and memory as before; only the network is another one.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
                .map_err(|error| Error::Make(error.into()))?;
            ip(&["link", "set", "dev", "lo", "up"])?;
            Namespace::here()
        });
        made.join().unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// The one that this thread is in.
    ///
    /// # Errors
    /// [`Error::Enter`] where /proc is not mounted.
    pub fn here() -> Result<Self> {
        File::open("/proc/thread-self/ns/net").map(Namespace).map_err(Error::Enter)
    }

    /// The one that the process with this number is in.
    ///
    /// # Errors
    /// [`Error::Enter`] where there is none, or for whoever may not look.
    pub fn of_process(number: u32) -> Result<Self> {
        File::open(format!("/proc/{number}/ns/net")).map(Namespace).map_err(Error::Enter)
    }

    /// Moves this thread into it, with all threads and processes that it starts from now on.
    ///
    /// # Errors
    /// [`Error::Enter`] for whoever may not.
    pub fn join(&self) -> Result<()> {
        move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|error| Error::Enter(error.into()))
    }

    /// What `act` gives, which a thread does that is in it. What it starts stays there.
    ///
    /// # Errors
    /// As [`Namespace::join`].
    pub fn enter<T: Send>(&self, act: impl FnOnce() -> T + Send) -> Result<T> {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| self.join().map(|()| act()));
            inside.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// The same, done by this thread, which goes there and comes back: what it starts stays there, and is its own.
    ///
    /// # Errors
    /// As [`Namespace::join`]; after `act` too, if there is no way back.
    pub fn visit<T>(&self, act: impl FnOnce() -> T) -> Result<T> {
        let own = Namespace::here()?;
        self.join()?;
        let done = act();
        own.join()?;
        Ok(done)
    }

    /// Gives its `lo` one more address.
    ///
    /// # Errors
    /// What `ip` said.
    pub fn add_own_address(&self, address: IpAddr) -> Result<()> {
        self.enter(|| ip(&["address", "add", &address.to_string(), "dev", "lo"]))?
    }

    /// A virtual link to another one, with an end in each. There, whatever is not near goes by this one.
    ///
    /// # Errors
    /// What `ip` said.
    pub fn link(&self, own: End<'_>, other: &Namespace, others: End<'_>) -> Result<()> {
        self.link_bare(own.name, other, others.name)?;
        self.enter(|| own.up())??;
        other.enter(|| {
            others.up()?;
            ip(&["route", "add", "default", "via", &own.address.to_string()])
        })?
    }

    /// The same without addresses, and down.
    ///
    /// # Errors
    /// What `ip` said.
    pub fn link_bare(&self, own: &str, other: &Namespace, others: &str) -> Result<()> {
        self.enter(|| {
            // A thread's number stands for its network.
            let this = gettid().as_raw_nonzero().to_string();
            other.enter(|| ip(&["link", "add", "name", others, "type", "veth", "peer", "name", own, "netns", &this]))?
        })?
    }
}

impl AsFd for Namespace {
    /// To give it to another process.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Namespace {
    /// One that another process gave. Whether it is one is seen when it is entered.
    fn from(network: OwnedFd) -> Self {
        Namespace(network.into())
    }
}

impl End<'_> {
    fn up(&self) -> Result<()> {
        let address = match self.address {
            IpAddr::V4(address) => format!("{address}/24"),
            IpAddr::V6(address) => format!("{address}/64"),
        };
        // An IPv6 address is otherwise not to be used for a second, while it is looked for in the network.
        let more: &[&str] = if self.address.is_ipv6() { &["nodad"] } else { &[] };
        ip(&[&["address", "add", &address, "dev", self.name], more].concat())?;
        ip(&["link", "set", "dev", self.name, "up"])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv6Addr, TcpListener, TcpStream};

    use super::*;

    /// What is listened to at an end of a link is reached from the other one, and from nowhere else.
    fn is_reached(near: impl Into<IpAddr>, far: impl Into<IpAddr>) {
        let (near, far) = (End::new("near", near), End::new("far", far));
        let Some(here) = or_skipped(Namespace::new()).unwrap() else { return };
        let there = Namespace::new().unwrap();
        here.link(near, &there, far).unwrap();
        let listener = there.enter(|| TcpListener::bind((far.address, 0)).unwrap()).unwrap();
        let at = listener.local_addr().unwrap();
        let mut near = here.enter(|| TcpStream::connect(at).unwrap()).unwrap();
        let (mut connection, _) = listener.accept().unwrap();
        connection.write_all(b"x").unwrap();
        near.read_exact(&mut [0]).unwrap();
        assert!(Namespace::new().unwrap().enter(|| TcpStream::connect(at).is_err()).unwrap());
    }

    #[test]
    fn a_link_joins_two_networks() {
        is_reached([10, 79, 0, 1], [10, 79, 0, 2]);
        let of = |last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last);
        is_reached(of(1), of(2));
    }

    #[test]
    fn who_visits_a_network_comes_back() {
        let Some(other) = or_skipped(Namespace::new()).unwrap() else { return };
        let own = || std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        let before = own();
        assert_ne!(other.visit(own).unwrap(), before);
        assert_eq!(own(), before);
    }

    #[test]
    fn what_cannot_be_is_said_with_the_words_of_the_command() {
        let Some(here) = or_skipped(Namespace::new()).unwrap() else { return };
        let end = End::new("a-name-of-more-than-fifteen-letters", [10, 79, 0, 1]);
        let said =
            here.link(End::new("near", [10, 79, 0, 2]), &Namespace::new().unwrap(), end).unwrap_err().to_string();
        assert!(said.contains("ip link add name a-name-of") && said.len() > 60, "{said}");
    }
}
