//! The backend `kernel`: netem between the ends of links, set up by `tc`.
//!
//! For each way the network in the middle has one more pair of virtual interfaces. What comes at one end of a link is handed to the first of the pair (`clsact`,
//! `matchall`, `mirred`), whose queue is that of the rate; what leaves that comes at the second, and is handed to the other end of the link, whose
//! queue is the wire. In the middle nothing knows the sender's socket, so what waits there does not hold it back.
//!
//! All of it goes with that network.

use std::fs;
use std::io;
use std::path::Path;

use rustix::mount::{MountFlags, mount};
use verbena_namespaces::{Namespace, ip_batch, tc, tc_batch};

use crate::netem::{Account, Looked, words};
use crate::network::{Error, Result, inner, own_mounts};
use crate::plan::Link;
use crate::receivers::pin;
use crate::router::Seen;
use crate::way::Way;

/// What the kernel has to have: what it is called, its module, and the words that show it.
const PARTS: [(&str, &str, &str); 3] = [
    ("netem", "sch_netem", "qdisc add dev lo root netem"),
    ("clsact", "sch_ingress", "qdisc add dev lo clsact"),
    (
        "matchall and mirred",
        "cls_matchall act_mirred",
        "filter add dev lo ingress protocol all matchall action mirred egress redirect dev lo",
    ),
];
/// A directory that every system has. Another one is mounted over it where one thread alone sees it.
const TABLES: &str = "/sys";

/// Links that the kernel runs.
#[derive(Debug)]
pub(crate) struct Kernel {
    middle: Namespace,
    accounts: Vec<[Account; 2]>,
}

impl Kernel {
    /// Looks whether this kernel has what it takes, in a network in which nothing is yet.
    ///
    /// # Errors
    /// [`Error::Lacking`]
    pub fn probe(middle: &Namespace) -> Result<()> {
        middle.enter(|| {
            // Whether there is the command, and whether it may be used.
            tc(&["qdisc", "show", "dev", "lo"])?;
            for (part, module, line) in PARTS {
                let tried = tc(&line.split(' ').collect::<Vec<_>>());
                tried.map_err(|refused| Error::Lacking { of: "backend", part, module, said: refused.to_string() })?;
            }
            Ok(tc_batch(&["qdisc del dev lo root", "qdisc del dev lo clsact"].map(String::from), None)?)
        })?
    }

    /// Runs `links` in the network `middle`, where their ends are.
    ///
    /// # Errors
    /// What `ip` or `tc` said.
    pub fn start(middle: Namespace, links: &[Link]) -> Result<Self> {
        let both = || (0..links.len()).flat_map(|link| [0, 1].map(|way| (link, way)));
        let pairs = both().flat_map(|(link, way)| {
            let ([_, queue, behind, _], mtu) = (places(link, way), links[link].mtu);
            [
                format!("link add name {queue} type veth peer name {behind}"),
                format!("link set dev {queue} mtu {mtu} up"),
                format!("link set dev {behind} mtu {mtu} up"),
            ]
        });
        let pairs: Vec<String> = pairs.collect();
        middle.enter(|| ip_batch(&pairs))??;
        for (number, link) in links.iter().enumerate() {
            queues(&middle, "add", number, link.mtu, &link.ways)?;
        }
        let handed = both().flat_map(|(link, way)| {
            let [from, queue, behind, to] = places(link, way);
            let hand = |from, to| {
                let all = "ingress protocol all matchall action mirred egress redirect";
                [format!("qdisc add dev {from} clsact"), format!("filter add dev {from} {all} dev {to}")]
            };
            // The far part first: what comes meanwhile is not handed over, or finds its whole way.
            [hand(behind, to), hand(from, queue)].concat()
        });
        let handed: Vec<String> = handed.collect();
        middle.enter(|| tc_batch(&handed, None))??;
        middle.enter(|| {
            pin(
                both().flat_map(|(link, way)| {
                    let [from, _, behind, _] = places(link, way);
                    [from, behind]
                }),
                0,
            );
        })?;
        Ok(Kernel { middle, accounts: vec![Default::default(); links.len()] })
    }

    /// From now on the link with this number, which was `before`, does this.
    ///
    /// # Errors
    /// What `tc` said.
    pub fn change(&mut self, number: usize, before: &Link, ways: &[Way; 2]) -> Result<()> {
        let looked = self.looked()?;
        for (way, account) in self.accounts[number].iter_mut().enumerate() {
            *account = account.until(looked.places(places(number, way)), &before.ways[way]);
        }
        queues(&self.middle, "change", number, before.mtu, ways)
    }

    /// What each of these links has done, there and back.
    ///
    /// # Errors
    /// What `tc` said.
    pub fn look(&self, links: &[Link]) -> Result<Vec<[Seen; 2]>> {
        let looked = self.looked()?;
        let of = |(number, link): (usize, &Link)| {
            [0, 1]
                .map(|way| self.accounts[number][way].until(looked.places(places(number, way)), &link.ways[way]).seen())
        };
        Ok(links.iter().enumerate().map(of).collect())
    }

    fn looked(&self) -> Result<Looked> {
        let text = self.middle.enter(|| tc(&["-s", "-j", "qdisc", "show"]))??;
        Looked::parse(&text).map_err(|error| Error::Kernel(error.into()))
    }
}

/// The interfaces of a way: where packets come, the one with the queue of the rate, what is behind that, and where they leave, with the wire.
pub(crate) fn places(link: usize, way: usize) -> [String; 4] {
    [inner(link, way), format!("l{link}q{way}"), format!("l{link}b{way}"), inner(link, 1 - way)]
}

/// Adds or changes the four queues of a link.
fn queues(middle: &Namespace, what: &str, number: usize, mtu: u32, ways: &[Way; 2]) -> Result<()> {
    let (mut lines, mut tables) = (vec![], vec![]);
    for (end, (way, name)) in ways.iter().zip(["there", "back"]).enumerate() {
        let [_, queue, _, to] = places(number, end);
        // The caller has checked them before.
        let words = words(way, mtu, name).map_err(|refused| Error::Kernel(io::Error::other(refused)))?;
        lines.push(format!("qdisc {what} dev {queue} root {}", words.queue));
        lines.push(format!("qdisc {what} dev {to} root {}", words.wire));
        tables.push((name, words.table));
    }
    let run = || {
        if tables.iter().all(|(_, table)| table.is_none()) {
            return Ok(tc_batch(&lines, None)?);
        }
        // `tc` takes laws from files alone. These are gone with the thread, also if it is killed.
        let write = || -> io::Result<()> {
            own_mounts()?;
            mount("tmpfs", TABLES, "tmpfs", MountFlags::empty(), None)?;
            for (name, table) in &tables {
                let text = table.as_ref().map_or_else(String::new, |table| table.text());
                fs::write(format!("{TABLES}/{name}.dist"), text)?;
            }
            Ok(())
        };
        write().map_err(Error::Kernel)?;
        Ok(tc_batch(&lines, Some(Path::new(TABLES)))?)
    };
    middle.enter(run)?
}
