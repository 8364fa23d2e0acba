//! Pages and locks whose home is in another network, reached by `xdp` over a virtual link: pages are never stale, and validated though the home's
//! process is stopped; locks are taken and let go.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use verbena_client::wire::LockMode;
use verbena_client::{Locks, Socket};
use verbena_namespaces::{End, Namespace};
use verbena_testkit::namespaces;
use verbena_testkit::programs::verbena;

use crate::common::makes_networks;
use crate::common::traffic::{Client, application, enough, proxy, started, traffic};

#[test]
fn pages_of_a_home_in_another_network_are_never_stale_and_need_not_wait_for_it() {
    is_never_stale_between(Ipv4Addr::new(10, 78, 0, 1), Ipv4Addr::new(10, 78, 0, 2));
}

#[test]
fn addresses_of_ipv6_do_as_well() {
    let of = |last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last);
    is_never_stale_between(of(1), of(2));
}

fn is_never_stale_between(here: impl Into<IpAddr>, there: impl Into<IpAddr>) {
    let address = IpAddr::V4(Ipv4Addr::new(10, 78, 1, 1));
    let _networks = makes_networks();
    let Some(own) = namespaces::own(address) else { return };
    let other = Namespace::new().unwrap();
    let [here, there] = [here.into(), there.into()];
    own.link(End::new("here", here), &other, End::new("there", there)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let [here, there] = [here, there].map(|address| SocketAddr::new(address, 7001));
    let members = format!(
        r#"[{{ name = "proxy", address = "xdp://{here}", roles = ["reader", "updater"] }},
            {{ name = "home", address = "xdp://{there}", roles = ["home"] }}]"#
    );
    let member = |name| ["--cluster-members", members.as_str(), "--fabric-insecure", "true", "--cluster-name", name];
    let home = other.enter(|| {
        let mut node = verbena(&["node", "--json"]);
        node.args(member("home")).arg("--node-runtime").arg(directory.path().join("there"));
        node.arg("--node-state").arg(directory.path().join("home")).current_dir(directory.path());
        started(&mut node, |line| line.contains(r#""event":"listening""#))
    });
    let (home, _) = home.unwrap();
    let (_application, origin) = application(directory.path());
    let (_proxy, address) = proxy(directory.path(), "proxy", &origin, &member("proxy"));

    let seen = traffic(std::slice::from_ref(&address), Duration::from_secs(4));
    assert_eq!(seen.stale.load(SeqCst), 0);
    enough(&seen);

    // Some answers come before the home has heard that the last write is over.
    let mut client = Client::new(&address);
    let is_hit = (0..50).any(|_| client.ask("GET", "/page/0").hit);
    assert!(is_hit, "no hit any more");
    let socket = Socket::new(Some(&directory.path().join("run")), Some("proxy")).unwrap();
    let mut locks = Locks::connect(&socket, Duration::from_secs(5)).unwrap();
    let mut take = || {
        let hold = locks.acquire(b"x", LockMode::Exclusive, Some(Duration::from_millis(500)))?;
        locks.release(hold)
    };
    // Its home says once where its words are.
    take().unwrap();
    let process = Pid::from_child(&home.0);
    kill_process(process, Signal::STOP).unwrap();
    let hits = (0..20).filter(|_| client.ask("GET", "/page/0").hit).count();
    let taken = (0..20).filter(|_| take().is_ok()).count();
    kill_process(process, Signal::CONT).unwrap();
    assert_eq!((hits, taken), (20, 20), "of 20 requests and 20 locks while the home was stopped");
}
