//! The page protocol at work over a real fabric, between nodes of one process that share nothing else. Membership is a script here.
use std::time::Duration;

use verbena_cluster::{Lease, Role, Roles};
use verbena_content::service::{Finish, Refused};
use verbena_content::testing::{Node, assemble};
use verbena_content::{Message, Registered, Scope, Verdict, Word};
use verbena_fabric::{Class, Port};
use verbena_terms::{Format, Time, ViewNumber};

const PATIENCE: Duration = Duration::from_secs(10);

fn bounded<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await.unwrap() })
}

#[test]
fn a_node_alone_stores_hits_and_updates() {
    bounded(async {
        let nodes = [Node::start(1, Roles::ALL)];
        assemble(&nodes).await;
        let [node] = &nodes;
        let page = node.fill_eventually(b"/7", node.only(b"seven")).await;
        let other = node.fill_eventually(b"/8", node.only(b"eight")).await;
        assert_eq!(node.verdict(b"/7", &page).await, Verdict::Fresh);

        let ticket = node.content.begin(node.only(b"seven")).await.unwrap();
        assert_eq!(node.verdict(b"/7", &page).await, Verdict::Busy);
        assert_eq!(node.verdict(b"/8", &other).await, Verdict::Fresh);
        assert_eq!(node.fill(b"/7", node.only(b"seven")).await, None, "a page whose update is open is not stored");
        assert_eq!(ticket.answered().await, Finish::Answer);
        assert_eq!(node.verdict(b"/7", &page).await, Verdict::Moved);

        let again = node.fill_eventually(b"/7", node.only(b"seven")).await;
        let update = node.content.begin(Scope::Everything).await.unwrap();
        assert_eq!(node.verdict(b"/8", &other).await, Verdict::Busy);
        // Nothing came of it.
        update.not_sent();
        while node.verdict(b"/8", &other).await == Verdict::Busy {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(node.verdict(b"/8", &other).await, Verdict::Fresh);
        assert_eq!(node.content.begin(Scope::Everything).await.unwrap().answered().await, Finish::Answer);
        for (page, stamp) in [(b"/7", &again), (b"/8", &other)] {
            assert_ne!(node.verdict(page, stamp).await, Verdict::Fresh, "an update of everything spared a page");
        }
    });
}

#[test]
fn a_proxy_reads_at_homes_that_are_elsewhere() {
    bounded(async {
        let home = Roles::of(Role::Home).and(Role::Updater);
        let proxy = Roles::of(Role::Reader).and(Role::Updater);
        let nodes = [Node::start(1, home), Node::start(2, home), Node::start(3, proxy), Node::start(4, proxy)];
        assemble(&nodes).await;
        let [_, _, one, other] = &nodes;
        let pages: Vec<Vec<u8>> = (0..20).map(|page| format!("/{page}").into_bytes()).collect();
        let mut homes = std::collections::BTreeSet::new();
        let mut stamps = vec![];
        for page in &pages {
            let stamp = one.fill_eventually(page, one.only(page)).await;
            homes.insert(stamp.home());
            stamps.push(stamp);
        }
        assert_eq!(homes.len(), 2, "the pages have homes at both");
        for (page, stamp) in pages.iter().zip(&stamps) {
            assert_eq!(one.verdict(page, stamp).await, Verdict::Fresh);
        }
        // What the other proxy writes, this one sees before it is acknowledged.
        for (page, stamp) in pages.iter().zip(&stamps) {
            let ticket = other.content.begin(other.only(page)).await.unwrap();
            assert_eq!(one.verdict(page, stamp).await, Verdict::Busy);
            assert_eq!(ticket.answered().await, Finish::Answer);
        }
        for (page, stamp) in pages.iter().zip(&stamps) {
            assert_ne!(one.verdict(page, stamp).await, Verdict::Fresh);
        }
        other.counts_are(|counts| counts.updater.forwarded + counts.updater.beginning == 0).await;
    });
}

#[test]
fn frames_of_another_version_are_dropped_and_harm_nobody() {
    bounded(async {
        let nodes = [Node::start(1, Roles::ALL), Node::start(2, Roles::of(Role::Reader).and(Role::Updater))];
        assemble(&nodes).await;
        let [node, other] = &nodes;
        let page = other.fill_eventually(b"/7", other.only(b"seven")).await;
        let peer = other.fabric.connect(node.fabric.identity(), &node.fabric.address()).unwrap();
        for (port, magic) in [(16, *b"VCNT"), (17, *b"VCIN")] {
            for number in 0..50 {
                let frame = [&Format::new(magic, 99).header()[..], b"whatever they mean by it"].concat();
                peer.send(Class::Control, ViewNumber(1), Port(port), number, &frame).unwrap();
            }
        }
        node.counts_are(|counts| counts.unusable == 100).await;
        assert_eq!(other.verdict(b"/7", &page).await, Verdict::Fresh);
        let ticket = other.content.begin(other.only(b"seven")).await.unwrap();
        assert_eq!(ticket.answered().await, Finish::Answer);
        let again = other.fill_eventually(b"/7", other.only(b"seven")).await;
        assert_eq!(other.verdict(b"/7", &again).await, Verdict::Fresh);
    });
}

#[test]
fn a_message_is_dropped_whose_view_is_not_that_of_its_port() {
    bounded(async {
        let nodes = [Node::start(1, Roles::ALL), Node::start(2, Roles::of(Role::Reader).and(Role::Updater))];
        assemble(&nodes).await;
        let [node, other] = &nodes;
        let peer = other.fabric.connect(node.fabric.identity(), &node.fabric.address()).unwrap();
        let (from, to, view) = (other.fabric.identity(), node.fabric.identity(), ViewNumber(1));
        let frame = Message::Registered(Registered { view, from, to, request: 0, outcome: Ok(Word(2)) }).encode();
        // As one of no view, of another view, and as it should be.
        for (port, view) in [(17, 1), (16, 2), (16, 1)] {
            peer.send(Class::Control, ViewNumber(view), Port(port), 0, &frame).unwrap();
        }
        node.counts_are(|counts| counts.unusable == 2).await;
        let ticket = other.content.begin(Scope::Everything).await.unwrap();
        assert_eq!(ticket.answered().await, Finish::Answer);
        assert_eq!(node.content.counts().unusable, 2);
    });
}

#[test]
fn a_ticket_that_is_dropped_leaves_the_update_open() {
    bounded(async {
        let nodes = [Node::start(1, Roles::ALL)];
        assemble(&nodes).await;
        let [node] = &nodes;
        let page = node.fill_eventually(b"/7", node.only(b"seven")).await;
        drop(node.content.begin(node.only(b"seven")).await.unwrap());
        node.counts_are(|counts| counts.updater.unknown == 1).await;
        assert_eq!(node.verdict(b"/7", &page).await, Verdict::Busy);
    });
}

#[test]
fn without_a_lease_nothing_is_updated_and_nothing_is_fresh() {
    bounded(async {
        let nodes = [Node::start(1, Roles::ALL)];
        assemble(&nodes).await;
        let [node] = &nodes;
        let page = node.fill_eventually(b"/7", node.only(b"seven")).await;
        node.lease.store(Lease { until: Time::ZERO, acknowledged: ViewNumber(1), in_effect: ViewNumber(1) });
        assert_eq!(node.verdict(b"/7", &page).await, Verdict::NoLease);
        assert_eq!(node.content.begin(node.only(b"seven")).await.map(|_| ()), Err(Refused::NotBegun));
    });
}
