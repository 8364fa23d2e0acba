//! Pages whose home changes with the view, and those whose home stays: nodes of one process over shared memory, views of a script.
use std::collections::BTreeSet;
use std::time::Duration;

use verbena_cluster::{Role, Roles};
use verbena_content::service::Finish;
use verbena_content::testing::{Node, assemble_beside, assemble_in};
use verbena_content::{HomeLimits, Stamp, Verdict};
use verbena_terms::{Incarnation, ViewNumber};

const PATIENCE: Duration = Duration::from_secs(60);
const PAGES: usize = 300;
/// So few that most pages share theirs.
const WORDS: u32 = 256;

fn bounded<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await.unwrap() })
}

fn limits() -> HomeLimits {
    HomeLimits { slots: WORDS, ..HomeLimits::default() }
}

fn home(rank: u32) -> Node {
    home_with(rank, limits())
}

fn home_with(rank: u32, limits: HomeLimits) -> Node {
    Node::with_home(rank, Roles::of(Role::Home).and(Role::Updater), limits)
}

fn proxy(rank: u32) -> Node {
    Node::start(rank, Roles::of(Role::Reader).and(Role::Updater))
}

/// Pages with a dependency of their own each, as a proxy has stored them.
struct Cached(Vec<(Vec<u8>, Stamp)>);

impl Cached {
    async fn fill(proxy: &Node) -> Cached {
        let mut pages = Vec::new();
        for page in 0..PAGES {
            let page = format!("/{page}").into_bytes();
            let stamp = proxy.fill_eventually(&page, proxy.only(&page)).await;
            pages.push((page, stamp));
        }
        Cached(pages)
    }

    fn homes(&self) -> BTreeSet<Incarnation> {
        self.0.iter().map(|(_, stamp)| stamp.home()).collect()
    }

    /// The pages that are no hits, and what a look at them says.
    async fn lost(&self, proxy: &Node) -> Vec<(usize, Verdict)> {
        let mut lost = Vec::new();
        for (at, (page, stamp)) in self.0.iter().enumerate() {
            match proxy.verdict(page, stamp).await {
                Verdict::Fresh => {}
                verdict => lost.push((at, verdict)),
            }
        }
        lost
    }

    /// Fetches these once more.
    async fn refill(&mut self, proxy: &Node, lost: &[(usize, Verdict)]) {
        for &(at, _) in lost {
            let (page, stamp) = &mut self.0[at];
            *stamp = proxy.fill_eventually(page, proxy.only(page)).await;
        }
    }
}

#[test]
fn a_home_that_joins_or_leaves_costs_only_the_pages_that_move() {
    bounded(async {
        let (one, two, proxy) = (home(1), home(2), proxy(3));
        assemble_in(ViewNumber(1), [&one, &two, &proxy]).await;
        let mut cached = Cached::fill(&proxy).await;
        assert_eq!(cached.homes().len(), 2);
        assert_eq!(cached.lost(&proxy).await, [], "a page that is stored costs others their word");

        let three = home(4);
        assemble_in(ViewNumber(2), [&one, &two, &proxy, &three]).await;
        let lost = cached.lost(&proxy).await;
        assert!(!lost.is_empty() && lost.iter().all(|(_, verdict)| *verdict == Verdict::OtherHome), "{lost:?}");
        cached.refill(&proxy, &lost).await;
        for (at, _) in &lost {
            assert_eq!(cached.0[*at].1.home(), three.fabric.identity(), "it moved to another home than the new one");
        }
        assert_eq!(cached.lost(&proxy).await, [], "to fetch what moved costs what stayed");

        assemble_in(ViewNumber(3), [&one, &proxy, &three]).await;
        let left = two.fabric.identity();
        let of_left = (0..PAGES).filter(|&at| cached.0[at].1.home() == left).collect::<Vec<_>>();
        let lost = cached.lost(&proxy).await;
        assert_eq!(lost.iter().map(|(at, _)| *at).collect::<Vec<_>>(), of_left, "not those whose home left");
        cached.refill(&proxy, &lost).await;
        assert_eq!(cached.lost(&proxy).await, [], "to fetch what moved costs what stayed");
    });
}

#[test]
fn a_copy_of_a_page_that_went_and_came_back_is_served_only_if_nothing_moved() {
    bounded(async {
        let (stays, comes, proxy, other) = (home(1), home(2), proxy(3), proxy(4));
        assemble_in(ViewNumber(1), [&stays, &proxy, &other]).await;
        let cached = Cached::fill(&proxy).await;

        assemble_in(ViewNumber(2), [&stays, &comes, &proxy, &other]).await;
        let moved: Vec<usize> = cached.lost(&proxy).await.into_iter().map(|(at, _)| at).collect();
        assert!(moved.len() > 20, "only {} of {PAGES} pages moved", moved.len());
        // Of those that moved: a third is fetched at the new home, a third is changed there, and a third nobody touches.
        let (mut fetched, mut changed, mut untouched) = (vec![], vec![], vec![]);
        for (nth, &at) in moved.iter().enumerate() {
            let page = &cached.0[at].0;
            match nth % 3 {
                0 => fetched.push((at, other.fill_eventually(page, other.only(page)).await)),
                1 => changed.push(at),
                _ => untouched.push(at),
            }
        }
        for &at in &changed {
            let page = &cached.0[at].0;
            let ticket = other.content.begin(other.only(page)).await.unwrap();
            assert_eq!(ticket.answered().await, Finish::Answer);
        }

        assemble_in(ViewNumber(3), [&stays, &proxy, &other]).await;
        for (at, at_new_home) in fetched {
            let (page, stamp) = &cached.0[at];
            assert_eq!(other.verdict(page, &at_new_home).await, Verdict::OtherHome);
            // The words may be shared with a page that was changed.
            assert!(matches!(proxy.verdict(page, stamp).await, Verdict::Fresh | Verdict::Moved));
        }
        for at in changed {
            let (page, stamp) = &cached.0[at];
            assert_eq!(proxy.verdict(page, stamp).await, Verdict::Moved, "a copy that an update made stale came back");
        }
        let mut came_back = 0;
        for at in untouched {
            let (page, stamp) = &cached.0[at];
            came_back += usize::from(proxy.verdict(page, stamp).await == Verdict::Fresh);
        }
        assert!(came_back > 0, "the home that stayed forgot the pages that it had given away");
    });
}

#[test]
fn the_next_life_of_a_home_takes_nothing_over_from_the_last() {
    bounded(async {
        let (stays, mut again, proxy) = (home(1), home(2), proxy(3));
        assemble_in(ViewNumber(1), [&stays, &again, &proxy]).await;
        let cached = Cached::fill(&proxy).await;
        let former = again.fabric.identity();
        again.lives_again();
        assemble_in(ViewNumber(2), [&stays, &again, &proxy]).await;
        for (page, stamp) in &cached.0 {
            let expected = if stamp.home() == former { Verdict::OtherHome } else { Verdict::Fresh };
            assert_eq!(proxy.verdict(page, stamp).await, expected);
        }
    });
}

#[test]
fn a_member_that_says_nothing_keeps_a_new_home_busy_until_it_is_settled_and_nobody_else() {
    bounded(async {
        let (stays, proxy, stuck) = (home(1), proxy(2), proxy(3));
        assemble_in(ViewNumber(1), [&stays, &proxy, &stuck]).await;
        let cached = Cached::fill(&proxy).await;
        let times = (Duration::from_millis(100), Duration::from_millis(400));
        let comes = home_with(4, HomeLimits { lease: times.0, max_transaction_time: times.1, ..limits() });
        assemble_beside(ViewNumber(2), [&stays, &proxy, &comes], &[&stuck], &[]).await;
        let moved = cached.lost(&proxy).await;
        assert!(moved.iter().all(|(_, verdict)| *verdict == Verdict::OtherHome), "{moved:?}");
        let (page, _) = &cached.0[moved[0].0];
        assert!(proxy.words(page).await.1.everything.is_busy());
        comes.counts_are(|counts| counts.home.awaiting == 1).await;

        // Its lease has run out.
        assemble_beside(ViewNumber(3), [&stays, &proxy, &comes], &[], &[&stuck]).await;
        assert_eq!(cached.lost(&proxy).await, moved);
        let stamp = proxy.fill_eventually(page, proxy.only(page)).await;
        assert_eq!(proxy.verdict(page, &stamp).await, Verdict::Fresh);
        assert_eq!(cached.lost(&proxy).await, moved, "those that stayed are served all the while");
    });
}
