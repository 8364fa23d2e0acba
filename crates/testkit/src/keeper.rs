//! Who is in: what rules C1 to C3 say of a keeper, without a network of its own. Its questions and answers take their time, or are lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{Member, Role, Roles, View};
use verbena_terms::{Incarnation, Rank, Time, ViewNumber};

/// What the keeper grants, in the time of the world.
pub const LEASE: Duration = Duration::from_millis(100);
/// How much longer the keeper waits, for clocks that run apart.
pub const DRIFT: Duration = Duration::from_millis(2);

pub struct Keeper {
    homes: usize,
    waits_for_leases: bool,
    members: BTreeMap<Rank, Kept>,
    gone: BTreeSet<Incarnation>,
    /// The leases of all that have gone are over then.
    gone_at: Time,
    pub view: Option<Arc<View>>,
    since: Time,
    in_effect: ViewNumber,
}

struct Kept {
    incarnation: Incarnation,
    /// On the keeper's clock, which is the world's.
    over_at: Time,
    acknowledged: ViewNumber,
}

#[derive(Clone, Debug)]
pub enum Reply {
    Expelled,
    Told { is_renewed: bool, view: Arc<View>, in_effect: ViewNumber },
}

impl Keeper {
    /// The first `homes` ranks are homes. Rule C3 can be switched off: then no view waits for the leases of those who left.
    pub fn new(homes: usize, waits_for_leases: bool) -> Keeper {
        Keeper {
            homes,
            waits_for_leases,
            members: BTreeMap::new(),
            gone: BTreeSet::new(),
            gone_at: Time::ZERO,
            view: None,
            since: Time::ZERO,
            in_effect: ViewNumber(0),
        }
    }

    /// A node renews its lease, and says what it has acknowledged; or joins.
    pub fn asked(&mut self, from: Incarnation, acknowledged: ViewNumber, now: Time) -> Reply {
        self.look(now);
        if self.gone.contains(&from) {
            return Reply::Expelled;
        }
        let number = self.number();
        let over_at = now + LEASE + DRIFT;
        let is_renewed = match self.members.get_mut(&from.rank) {
            Some(kept) if kept.incarnation == from => {
                kept.acknowledged = kept.acknowledged.max(acknowledged);
                // Nobody blocks a view for ever (rule C2).
                let follows = kept.acknowledged == number || now < self.since + LEASE;
                if follows {
                    kept.over_at = over_at;
                }
                follows
            }
            earlier => {
                if let Some(kept) = earlier {
                    self.gone.insert(kept.incarnation);
                    self.gone_at = self.gone_at.max(kept.over_at);
                }
                let kept = Kept { incarnation: from, over_at, acknowledged: ViewNumber(0) };
                self.members.insert(from.rank, kept);
                self.next_view(now);
                true
            }
        };
        self.look(now);
        let view = self.view.clone().expect("invariant: who asks is in a view, or was");
        Reply::Told { is_renewed, view, in_effect: self.in_effect }
    }

    fn number(&self) -> ViewNumber {
        self.view.as_ref().map_or(ViewNumber(0), |view| view.number())
    }

    /// Whose leases are over, and whether the view is in effect.
    pub fn look(&mut self, now: Time) {
        let over: Vec<Rank> =
            self.members.iter().filter(|(_, kept)| kept.over_at <= now).map(|(rank, _)| *rank).collect();
        for rank in &over {
            self.gone.extend(self.members.remove(rank).map(|kept| kept.incarnation));
        }
        if !over.is_empty() {
            self.next_view(now);
        }
        let number = self.number();
        let have_all = self.members.values().all(|kept| kept.acknowledged == number);
        if have_all && (self.gone_at <= now || !self.waits_for_leases) {
            self.in_effect = number;
        }
    }

    fn next_view(&mut self, now: Time) {
        let number = self.number().next().unwrap();
        let member = |kept: &Kept| {
            let rank = kept.incarnation.rank.0;
            let is_home = rank as usize <= self.homes;
            Member {
                incarnation: kept.incarnation,
                name: format!("n{rank}"),
                address: format!("sim://{rank}"),
                roles: if is_home { Roles::ALL } else { Roles::of(Role::Reader) },
            }
        };
        let members = self.members.values().map(member).collect();
        self.view = Some(Arc::new(View::new(number, members, vec![]).unwrap()));
        self.since = now;
    }
}
