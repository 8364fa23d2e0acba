//! Which machines the origins are on, and how loaded those are.
//!
//! A request that an origin has is seen by the proxy that sent it; what else its machine does is not: other proxies' requests, other programs. The node on
//! that machine publishes how loaded it is, and the proxy reads that one-sidedly several times a second (`verbena_monitor`), so that a machine that is too
//! busy to say so is found out all the same.

use verbena_monitor::{Loads, Watching, Whose};
use verbena_terms::{BootClock, Clock, Load, Time};

use super::Address;

/// Loads that differ by less count as equal, in thousandths of a task on each processor: among machines with little to do each is used in turn.
const STEP_MILLI: u64 = 250;

/// The machines of all origins, in their order.
pub(crate) struct Machines {
    loads: Loads,
    all: Vec<Machine>,
    /// The others' loads are read as long as the proxy runs.
    _watching: Option<Watching>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Machine {
    /// Another one, or this one under its name.
    Of(Whose),
    /// This one.
    Own,
    /// No node and no setting says which.
    Unknown,
}

impl Machine {
    fn of(address: &Address, node: Option<&str>) -> Machine {
        let host = address.authority().map_or("localhost", |authority| authority.host());
        let address: Option<std::net::IpAddr> = host.trim_start_matches('[').trim_end_matches(']').parse().ok();
        match (node, address) {
            (Some(""), _) => Machine::Unknown,
            (Some(node), _) => Machine::Of(Whose::Node(node.to_owned())),
            (None, Some(address)) if address.is_loopback() => Machine::Own,
            (None, Some(address)) => Machine::Of(Whose::Host(address)),
            (None, None) if host == "localhost" => Machine::Own,
            (None, None) => Machine::Unknown,
        }
    }
}

impl Machines {
    /// Those of these origins, on the machines of these nodes, if they are named.
    pub fn new(origins: &[Address], nodes: &[String], loads: Loads) -> Machines {
        let node = |at: usize| nodes.get(at).map(String::as_str);
        let all: Vec<Machine> =
            origins.iter().enumerate().map(|(at, address)| Machine::of(address, node(at))).collect();
        // Among those that are on one machine it says nothing.
        let differ = all.iter().any(|machine| *machine != all[0]);
        let whose = |machine: &Machine| match machine {
            Machine::Of(whose) => Some(whose.clone()),
            Machine::Own | Machine::Unknown => None,
        };
        let watching = differ.then(|| loads.watch(all.iter().filter_map(whose).collect()));
        Machines { loads, all, _watching: watching }
    }

    /// How loaded each origin's machine is, in steps, if its next request comes to those that it has of this proxy. Where nothing is known of one it counts
    /// as the mean of the others; where nothing is known at all, all are alike.
    pub fn steps(&self, under_way: impl Fn(usize) -> u32) -> Vec<u64> {
        if self._watching.is_none() {
            return vec![0; self.all.len()];
        }
        let now = BootClock.now();
        let loads: Vec<Option<Load>> = self.all.iter().map(|machine| self.load(machine, now)).collect();
        steps(&loads, under_way)
    }

    fn load(&self, machine: &Machine, now: Time) -> Option<Load> {
        match machine {
            Machine::Of(whose) => self.loads.of(whose, now),
            Machine::Own => self.loads.own(now),
            Machine::Unknown => None,
        }
    }
}

fn steps(loads: &[Option<Load>], under_way: impl Fn(usize) -> u32) -> Vec<u64> {
    let known = loads.iter().flatten().count() as u64;
    if known == 0 {
        return vec![0; loads.len()];
    }
    let mean = |value: fn(&Load) -> u32| {
        let sum: u64 = loads.iter().flatten().map(|load| u64::from(value(load))).sum();
        u32::try_from(sum / known).unwrap_or(u32::MAX)
    };
    let typical =
        Load { cores: mean(|load| load.cores), runnable_milli: mean(|load| load.runnable_milli), ..Load::default() };
    let pressure = |(at, load): (usize, &Option<Load>)| load.unwrap_or(typical).pressure_milli(under_way(at));
    loads.iter().enumerate().map(pressure).map(|pressure| pressure / STEP_MILLI).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(cores: u32, runnable_milli: u32) -> Option<Load> {
        Some(Load { cores, runnable_milli, ..Load::default() })
    }

    #[test]
    fn an_origin_is_on_the_machine_of_its_address_or_of_the_node_that_is_named() {
        let host = |address: &str| Machine::Of(Whose::Host(address.parse().unwrap()));
        let of = |origin: &str, node: Option<&str>| Machine::of(&format!("http://{origin}").parse().unwrap(), node);
        assert_eq!(of("10.0.0.5:80", None), host("10.0.0.5"));
        assert_eq!(of("[fd00::5]:80", None), host("fd00::5"));
        assert_eq!([of("127.0.0.1:80", None), of("localhost:80", None)], [Machine::Own, Machine::Own]);
        assert_eq!(of("app.example:80", None), Machine::Unknown);
        assert_eq!(of("app.example:80", Some("app-1")), Machine::Of(Whose::Node("app-1".into())));
        assert_eq!(of("127.0.0.1:80", Some("")), Machine::Unknown);
    }

    #[test]
    fn others_are_read_only_where_it_makes_a_difference() {
        let origins: Vec<Address> =
            ["http://10.0.0.5:80", "http://10.0.0.5:81"].map(|origin| origin.parse().unwrap()).into();
        assert!(Machines::new(&origins, &[], Loads::default())._watching.is_none());
        let nodes = ["a", "b"].map(String::from);
        assert!(Machines::new(&origins, &nodes, Loads::default())._watching.is_some());
    }

    #[test]
    fn the_least_loaded_is_the_one_with_the_fewest_tasks_for_each_processor() {
        let none = |_| 0;
        assert_eq!(steps(&[load(4, 8000), load(8, 8000), load(2, 100)], none), [8, 4, 0]);
        assert_eq!(steps(&[load(4, 400), load(4, 900)], none), [0, 0], "both have little to do");
        assert_eq!(steps(&[load(2, 1000), load(2, 2000)], |at| [4, 0][at]), [10, 4], "requests under way come to it");
        assert_eq!(steps(&[load(4, 8000), None, load(4, 4000)], none), [8, 6, 4], "who says nothing is the mean");
        assert_eq!(steps(&[None, None], |at| at as u32 * 9), [0, 0], "nothing is known: all are alike");
    }
}
