//! TCP over it, sites that stand between others, and what is left behind.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use verbena_namespaces::Namespace;
use verbena_wan::probe::Probe;
use verbena_wan::router::Mode;
use verbena_wan::{Backend, Link, Plan, Site, Way};

use super::{PATIENCE, address, stage, there, wan};

pub(super) const MIB: usize = 1 << 20;

/// Something of which no part is like another.
fn content(bytes: usize) -> Vec<u8> {
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

pub(super) fn transfer(from: &Namespace, to: &Namespace, address: IpAddr, bytes: usize) {
    let listener = to.enter(|| TcpListener::bind((address, 0)).unwrap()).unwrap();
    let at = listener.local_addr().unwrap();
    let mut sender = from.enter(|| TcpStream::connect_timeout(&at, PATIENCE).unwrap()).unwrap();
    sender.set_write_timeout(Some(PATIENCE)).unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    let (content, mut came, began) = (content(bytes), vec![], Instant::now());
    let expected = content.clone();
    let sending = std::thread::spawn(move || sender.write_all(&content).unwrap());
    let mut piece = vec![0; MIB];
    loop {
        let length = receiver.read(&mut piece).unwrap();
        if length == 0 {
            break;
        }
        came.extend_from_slice(&piece[..length]);
        // A stream of which only what is sent again arrives would go on for hours.
        assert!(began.elapsed() < 2 * PATIENCE, "{} bytes of {bytes} came", came.len());
    }
    sending.join().unwrap();
    assert!(came == expected, "{} bytes came of {bytes}, or others", came.len());
}

#[test]
fn a_stream_passes_in_large_frames_where_no_rule_counts_packets() {
    let Some(wan) = wan("delay=1ms", Mode::Precise) else { return };
    for is_ipv4 in [true, false] {
        transfer(wan.site("a").unwrap(), wan.site("b").unwrap(), address(&wan, 1, is_ipv4), 16 * MIB);
    }
    let seen = there(&wan);
    assert!(seen.counts.packets > 32 * MIB as u64 / 1500, "{seen:?}");
    assert!(seen.took.unwrap().frames < seen.counts.packets / 2, "{seen:?}");
}

#[test]
fn a_stream_comes_in_single_packets_where_a_rule_does_and_is_whole_nonetheless() {
    let Some(wan) = wan("delay=1ms loss=0.2% corrupt=0.2% duplicate=0.5% ooo_rate=300 ooo_delay=2ms", Mode::Precise)
    else {
        return;
    };
    for is_ipv4 in [true, false] {
        transfer(wan.site("a").unwrap(), wan.site("b").unwrap(), address(&wan, 1, is_ipv4), 2 * MIB);
    }
    let seen = there(&wan);
    assert_eq!((seen.counts.unsplit, seen.took.unwrap().frames), (0, seen.counts.arrived), "{seen:?}");
    let counts = seen.counts;
    assert!(
        counts.packets > 2900 && counts.dropped.loss > 0 && counts.corrupted > 0 && counts.duplicated > 0,
        "{counts:?}"
    );
    assert_eq!(counts.out_of_order, {
        let crossed = counts.packets - counts.dropped.all();
        // One of every block; of the last block it may not have come yet.
        crossed / 300 + u64::from(counts.out_of_order > crossed / 300)
    });
}

#[test]
fn a_stream_is_as_fast_as_the_rate_and_no_faster() {
    let Some(wan) = wan("rate=100mbit delay=1ms", Mode::Precise) else { return };
    let began = Instant::now();
    transfer(wan.site("a").unwrap(), wan.site("b").unwrap(), address(&wan, 1, true), 2 * MIB);
    let took = began.elapsed();
    // 2 MiB are 168 ms, less what the first segments take of the window at the end.
    assert!(took > Duration::from_millis(165) && took < PATIENCE, "{took:?}");
    assert_eq!(there(&wan).counts.unsplit, 0);
}

#[test]
fn packets_go_through_the_sites_between() {
    let way = Way { delay: Duration::from_millis(3), ..Way::default() };
    let link = |name: &str, first, second| Link {
        name: name.into(),
        between: [first, second],
        mtu: 1500,
        ways: [way.clone(), way.clone()],
    };
    let sites =
        ["paris", "delhi", "tokyo"].into_iter().zip(0..).map(|(name, number)| Site::numbered(name, number)).collect();
    let plan = Plan { sites, links: vec![link("west", 0, 1), link("east", 1, 2)], backend: Backend::default() };
    let Some(wan) = stage(plan) else { return };
    for is_ipv4 in [true, false] {
        let to = address(&wan, 2, is_ipv4);
        let (paris, tokyo) = (wan.site("paris").unwrap(), wan.site("tokyo").unwrap());
        let took = Probe::new(paris, tokyo, to).unwrap().one_way(PATIENCE).unwrap().unwrap();
        assert!(took >= Duration::from_micros(5900), "{took:?}");
        transfer(paris, tokyo, to, MIB);
    }
    let seen = wan.look().unwrap();
    assert_eq!(seen[0][0].counts.packets, seen[1][0].counts.packets);
    assert!(wan.site("rome").unwrap_err().to_string().contains("no site \"rome\"; there are paris, delhi, tokyo"));
}

/// Such a name is the interface's too, and `ip` takes for a word of its own what it is not told to be a name.
#[test]
fn a_link_can_have_a_name_that_means_something_to_ip() {
    let ways = [Way::default(), Way::default()];
    let link = |name: &str| Link { name: name.into(), between: [0, 1], mtu: 1500, ways: ways.clone() };
    let plan =
        Plan { links: ["l", "up", "type", "dev"].map(link).into(), ..Plan::two_sites(ways.clone(), Mode::Sleep, 1) };
    let Some(wan) = stage(plan) else { return };
    transfer(wan.site("a").unwrap(), wan.site("b").unwrap(), address(&wan, 1, true), MIB);
    assert!(wan.look().unwrap().iter().any(|[there, _]| there.counts.packets > 0));
}
