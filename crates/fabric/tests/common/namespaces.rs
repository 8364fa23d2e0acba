//! Network namespaces, which are gone with the threads and processes in them: one that the test's thread moves into, and others beside it.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, gettid, move_into_link_name_space};
use verbena_fabric::{FabricConfig, Provider, try_out};

/// The one that this thread is in.
pub struct Own(());

/// One beside it, at the other end of a virtual link.
pub struct Other(File);

/// Whether this machine lets programs into its kernel. `None` where nobody may: then it is said that the test is skipped.
pub fn may_load() -> Option<()> {
    match try_out(Provider::Xdp, &FabricConfig::default()) {
        Ok(_) => Some(()),
        Err(error) if error.to_string().contains("Operation not permitted") => {
            println!("skipped: nobody may load a program into this kernel");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

impl Own {
    /// Moves this thread, and all that it starts from now on, into a namespace of its own, which has these addresses for itself. `None`
    /// where that is not allowed: then it is said that the test is skipped.
    pub fn new(address: IpAddr) -> Option<Self> {
        if enter_new().is_none() {
            println!("skipped: only root can make network namespaces");
            return None;
        }
        ip(&["link", "set", "lo", "up"]);
        ip(&["address", "add", &address.to_string(), "dev", "lo"]);
        Some(Own(()))
    }

    /// Another one, with a virtual link between the two whose ends have these names and addresses.
    pub fn other(&self, own_end: (&str, IpAddr), other_end: (&str, IpAddr)) -> Other {
        let other = Other(std::thread::spawn(|| enter_new().map(|()| here())).join().unwrap().unwrap());
        // A thread's number stands for its namespace.
        let this = gettid().as_raw_nonzero().to_string();
        let (own_end, own_address) = own_end;
        other.enter(|| {
            ip(&["link", "set", "lo", "up"]);
            ip(&["link", "add", other_end.0, "type", "veth", "peer", "name", own_end, "netns", &this]);
        });
        up(own_end, own_address);
        other.enter(|| {
            up(other_end.0, other_end.1);
            ip(&["route", "add", "default", "via", &own_address.to_string()]);
        });
        other
    }
}

impl Other {
    /// What is started in `act` stays there.
    pub fn enter<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let there = || {
                move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                act()
            };
            scope.spawn(there).join().unwrap()
        })
    }
}

fn up(name: &str, address: IpAddr) {
    ip(&["address", "add", &format!("{address}/24"), "dev", name]);
    ip(&["link", "set", name, "up"]);
}

fn enter_new() -> Option<()> {
    // SAFETY: no file descriptors or the like are shared less than before, only the network is another one.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.ok()
}

fn here() -> File {
    File::open("/proc/thread-self/ns/net").unwrap()
}

fn ip(words: &[&str]) {
    let output = Command::new("ip").args(words).output().unwrap();
    assert!(output.status.success(), "ip {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}
