//! The data path `nfqueue`: the two ends of a link in one bridge, on which the kernel holds each packet of IP until the router lets it go on.
//!
//! A bridge hands on Ethernet frames as they are, as a wire does. What crosses it is asked of netfilter (bridge-nf-call-iptables, the kernel's
//! Documentation/networking/bridge.rst), where a rule for each end of a link puts it into that end's queue. What is not IP crosses at once.

use std::path::Path;

use verbena_namespaces::{Family, Namespace, ip_batch, netfilter};

use crate::network::{Error, Result, inner, settings};
use crate::plan::Link;
use crate::router::{DataPath, queue};
use crate::way::{Impossible, Way};

/// Settings that make netfilter see packets on bridges.
const ASKS: [(&str, &str); 2] =
    [("net/bridge/bridge-nf-call-iptables", "1"), ("net/bridge/bridge-nf-call-ip6tables", "1")];
const PATH: &str = "path nfqueue";

/// Looks whether this kernel has what it takes, in a network in which nothing is yet, and has netfilter asked in it.
///
/// # Errors
/// [`Error::Lacking`]; what `iptables` said, if it is missing.
pub(crate) fn probe(middle: &Namespace) -> Result<()> {
    let lacks = |part, module, said: String| Error::Lacking { of: PATH, part, module, said };
    middle.enter(|| {
        // Whether there is the command, and whether it may be used.
        netfilter(Family::V4, &[])?;
        let bridge = ip_batch(&["link add probe type bridge".to_owned()]);
        bridge.map_err(|refused| lacks("bridge", "bridge", refused.to_string()))?;
        if !Path::new("/proc/sys/net/bridge").exists() {
            return Err(lacks("netfilter on bridges", "br_netfilter", "there is no /proc/sys/net/bridge".into()));
        }
        settings(&ASKS)?;
        for family in families() {
            let tried = netfilter(family, &[rule("probe", 0)]);
            let modules = "xt_physdev xt_NFQUEUE nfnetlink_queue";
            tried.map_err(|refused| lacks("physdev and NFQUEUE", modules, refused.to_string()))?;
            netfilter(family, &[])?;
        }
        Ok(ip_batch(&["link del probe".to_owned()])?)
    })?
}

/// Puts both ends of each link into a bridge of their own, in the network `middle`. Packets that cross it are dropped
/// until a router has the queues.
///
/// # Errors
/// What `ip` or `iptables` said.
pub(crate) fn make(middle: &Namespace, links: &[Link]) -> Result<()> {
    let of = |(number, link): (usize, &Link)| {
        let (name, mtu) = (format!("l{number}b"), link.mtu);
        [
            // It neither learns who is where, which only one end can be, nor waits before it hands on, nor says anything itself.
            format!("link add name {name} mtu {mtu} type bridge stp_state 0 forward_delay 0 mcast_snooping 0"),
            format!("link set dev {} master {name}", inner(number, 0)),
            format!("link set dev {} master {name}", inner(number, 1)),
            format!("link set dev {} type bridge_slave learning off", inner(number, 0)),
            format!("link set dev {} type bridge_slave learning off", inner(number, 1)),
            format!("link set dev {name} up"),
        ]
    };
    let commands: Vec<String> = links.iter().enumerate().flat_map(of).collect();
    let ends = (0..).zip(links).flat_map(|(link, _)| [0, 1].map(|end| (link, end)));
    let rules: Vec<String> = ends.map(|(link, end)| rule(&inner(link.into(), end), queue(link, end))).collect();
    middle.enter(|| {
        // Nothing crosses before it is held.
        families().try_for_each(|family| netfilter(family, &rules))?;
        ip_batch(&commands)
    })??;
    Ok(())
}

fn rule(end: &str, queue: u16) -> String {
    format!("-A FORWARD -m physdev --physdev-in {end} -j NFQUEUE --queue-num {queue}")
}

/// Those that this kernel has.
fn families() -> impl Iterator<Item = Family> {
    let has_v6 = Path::new("/proc/sys/net/ipv6").exists();
    [Family::V4, Family::V6].into_iter().filter(move |family| has_v6 || *family == Family::V4)
}

/// What a data path cannot do, and why.
pub(crate) fn refuse(path: DataPath, way: &Way) -> std::result::Result<(), Impossible> {
    match way.rule_for_single_packets() {
        Some(option) if path == DataPath::Nfqueue => Err(Impossible {
            option,
            problem: "the path nfqueue cannot do it: it has delay alone, for frames of several packets stay whole"
                .into(),
        }),
        _ => Ok(()),
    }
}
