//! The helper's status: written by membership, read by the thread that answers programs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use verbena_cluster::{LeaseWord, Membership, Notice, Parting, Refusal, View, home_of};
use verbena_content::KeptOut;
use verbena_content::service::Content;
use verbena_fabric::Address;
use verbena_protocol::wire::{self, PART_NAMES, SAMPLED_KEYS};
use verbena_terms::{BootClock, Clock, Incarnation, Rank, Time, ViewNumber};

use crate::membership::history::{History, millis};

/// The shared state.
pub(crate) struct Status {
    name: String,
    membership: Membership,
    lease: Arc<LeaseWord>,
    started: Time,
    facts: Mutex<Facts>,
    /// Of all incarnations.
    history: Mutex<History>,
    shares: Mutex<Shares>,
}

/// How many of [`SAMPLED_KEYS`] names each home has, in one view. Counted on request, 4 ms for each home or less.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares {
    view: ViewNumber,
    keys: Arc<BTreeMap<Incarnation, u32>>,
}

/// What membership knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) incarnation: Incarnation,
    pub(crate) provider: String,
    pub(crate) why: String,
    pub(crate) address: String,
    pub(crate) keeper: Option<Incarnation>,
    /// For whom it waits and why, if it has had no lease for a while.
    pub(crate) waits: Option<String>,
    /// Set when a program asked the node to leave.
    pub(crate) leaving: Option<wire::Leaving>,
    view: Option<Arc<View>>,
    acknowledged: BTreeSet<Incarnation>,
    out: BTreeSet<Incarnation>,
    /// That `view` is in effect was heard.
    in_effect: bool,
    refused: Option<String>,
}

impl Facts {
    fn note(&mut self, notice: &Notice) {
        match notice {
            Notice::ViewLearnt(view) => {
                self.acknowledged.clear();
                self.out.clear();
                self.refused = None;
                self.in_effect = false;
                self.view = Some(view.clone());
            }
            Notice::MemberAcknowledged { incarnation, view } if self.is_in(*view) => {
                self.acknowledged.insert(*incarnation);
            }
            Notice::MemberOut { incarnation, view } if self.is_in(*view) => {
                self.out.insert(*incarnation);
            }
            Notice::ViewInEffect(view) if self.is_in(*view) => self.in_effect = true,
            Notice::Refused(refusal) => self.refused = Some(refusal.to_string()),
            Notice::Expelled(next) => {
                let incarnation = next.unwrap_or(self.incarnation);
                *self = Facts { incarnation, keeper: self.keeper, leaving: self.leaving, ..Facts::default() };
            }
            _ => {}
        }
    }

    fn as_wire(&self, member: &verbena_cluster::Member) -> wire::Member {
        wire::Member {
            name: member.name.clone(),
            incarnation: member.incarnation,
            address: Address(member.address.clone()).shown(),
            roles: member.roles.to_string(),
            acknowledged: self.acknowledged.contains(&member.incarnation),
            out: self.out.contains(&member.incarnation),
        }
    }

    fn is_in(&self, view: ViewNumber) -> bool {
        self.view.as_ref().is_some_and(|newest| newest.number() == view)
    }
}

impl Status {
    pub(crate) fn new(name: String, membership: Membership, lease: Arc<LeaseWord>) -> Self {
        Status {
            name,
            membership,
            lease,
            started: BootClock.now(),
            facts: Mutex::default(),
            history: Mutex::default(),
            shares: Mutex::default(),
        }
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Facts)) {
        change(&mut self.facts.lock());
    }

    /// Notes what services are notified of.
    pub(crate) fn note(&self, notice: &Notice) {
        self.facts.lock().note(notice);
        match notice {
            Notice::ViewLearnt(view) => self.history.lock().learn(view.clone(), BootClock.now()),
            Notice::ViewInEffect(view) => self.history.lock().is_in_effect(*view, BootClock.now()),
            _ => {}
        }
    }

    /// Takes note of why those went whom a view dropped.
    pub(crate) fn explain(&self, dropped: Vec<(Incarnation, Parting)>) {
        self.history.lock().explain(dropped);
    }

    /// The first view after this one that is remembered, for [`wire::Request::View`].
    pub(crate) fn view_after(&self, after: ViewNumber, from: u32) -> wire::Answer {
        wire::Answer::View(self.history.lock().part(after, from as usize, BootClock.now()).map(Box::new))
    }

    /// Why this incarnation cannot be expelled, as far as is known here; the keeper has the last word.
    pub(crate) fn expellable(&self, who: Incarnation) -> Result<(), String> {
        let facts = self.facts.lock();
        let Some(view) = &facts.view else { return Err("this node is in no view itself".into()) };
        if view.member(who).is_none() {
            return Err(format!("{who} is not in {}", view.number()));
        }
        let keeper = self.membership.keeper().or(facts.keeper.map(|who| who.rank));
        if keeper == Some(who.rank) {
            return Err(Refusal::KeepersOwn(who).to_string());
        }
        Ok(())
    }

    /// How it is, for [`wire::Request::Status`].
    pub(crate) fn read(&self, clients: u32) -> wire::Status {
        let facts = self.facts.lock().clone();
        let now = BootClock.now();
        let lease = self.lease.load();
        let left = lease.until.since(now);
        wire::Status {
            version: env!("CARGO_PKG_VERSION").into(),
            name: self.name.clone(),
            incarnation: facts.incarnation,
            pid: std::process::id(),
            uptime_ms: millis(now.since(self.started)),
            state: match &facts.view {
                _ if facts.leaving.is_some() => wire::State::Leaving,
                None => wire::State::Joining,
                Some(_) if left.is_zero() => wire::State::Lapsed,
                Some(_) => wire::State::Member,
            },
            fabric: wire::Interconnect { provider: facts.provider, why: facts.why, address: facts.address },
            keeper: self.membership.keeper().or(facts.keeper.map(|who| who.rank)).unwrap_or(Rank::NOBODY).0,
            keeper_incarnation: facts.keeper,
            lease_ms: millis(self.membership.terms().lease()),
            lease_left_ms: millis(left),
            view: facts.view.as_ref().map_or(ViewNumber(0), |view| view.number()),
            acknowledged: lease.acknowledged,
            in_effect: lease.in_effect,
            members: facts.view.as_ref().map_or(0, |view| view.members().len() as u32),
            departed: facts.view.as_ref().map_or(0, |view| view.unsettled().count() as u32),
            refused: facts.refused,
            waits: facts.waits,
            clients,
        }
    }

    /// The members from the `from`th on, for [`wire::Request::Members`].
    pub(crate) fn members(&self, from: u32) -> wire::Answer {
        let facts = self.facts.lock();
        let Some(view) = &facts.view else {
            return wire::Answer::Members { view: ViewNumber(0), members: vec![], more: false };
        };
        let rest = view.members().get(from as usize..).unwrap_or_default();
        wire::Answer::Members {
            view: view.number(),
            members: rest.iter().take(wire::PART_MEMBERS).map(|member| facts.as_wire(member)).collect(),
            more: rest.len() > wire::PART_MEMBERS,
        }
    }

    /// Of each home of the newest view: how many of [`SAMPLED_KEYS`] names it has.
    pub(crate) fn shares(&self) -> Arc<BTreeMap<Incarnation, u32>> {
        let Some(view) = self.facts.lock().view.clone() else { return Arc::default() };
        let mut shares = self.shares.lock();
        if shares.view != view.number() {
            let mut keys: BTreeMap<_, _> = view.homes().map(|home| (home.incarnation, 0)).collect();
            for home in (0..u64::from(SAMPLED_KEYS)).filter_map(|key| home_of(key, &view)) {
                *keys.entry(home).or_default() += 1;
            }
            *shares = Shares { view: view.number(), keys: Arc::new(keys) };
        }
        shares.keys.clone()
    }

    /// The departed incarnations that are not settled, from the `from`th on, for [`wire::Request::Departed`].
    pub(crate) fn departed(&self, from: u32, content: &Content) -> wire::Answer {
        let (view, all) = self.all_departed(content);
        let more = all.len() > (from as usize).saturating_add(PART_NAMES);
        let departed = all.into_iter().skip(from as usize).take(PART_NAMES).collect();
        wire::Answer::Departed { view, departed, more }
    }

    /// The newest view, and the departed incarnations that are not settled, with what each keeps out of the cache here.
    pub(crate) fn all_departed(&self, content: &Content) -> (ViewNumber, Vec<wire::Departed>) {
        let Some(view) = self.facts.lock().view.clone() else { return (ViewNumber(0), vec![]) };
        let history = self.history.lock();
        let (kept, now) = (content.kept_out(), content.now());
        let keeps_out = |kept: &KeptOut| wire::KeepsOut {
            everything: kept.everything,
            updates: kept.updates as u64,
            unread: kept.is_unread,
            left_ms: u64::try_from(kept.until.since(now).as_millis()).unwrap_or(u64::MAX),
        };
        let unsettled = view.departed().iter().filter(|gone| !gone.at_rest);
        let departed = unsettled.map(|gone| wire::Departed {
            name: history.name_of(gone.incarnation).map(str::to_owned),
            incarnation: gone.incarnation,
            since: gone.since,
            keeps_out: kept.iter().find(|kept| kept.by == gone.incarnation).map(keeps_out),
        });
        (view.number(), departed.collect())
    }

    /// How far leaving is.
    pub(crate) fn leaving(&self) -> Option<wire::Leaving> {
        self.facts.lock().leaving
    }

    /// How the node has left.
    pub(crate) fn departure(&self) -> wire::Departure {
        let facts = self.facts.lock();
        let exit = match &facts.view {
            None => wire::Exit::WasInNone,
            Some(view) if facts.in_effect && view.member(facts.incarnation).is_none() => {
                wire::Exit::InEffect(view.number())
            }
            Some(_) => wire::Exit::LeaseRunsOut,
        };
        wire::Departure { at_rest: facts.leaving == Some(wire::Leaving::AtRest), exit }
    }

    /// All of them.
    pub(crate) fn all_members(&self) -> Vec<wire::Member> {
        let facts = self.facts.lock();
        let members = facts.view.iter().flat_map(|view| view.members());
        members.map(|member| facts.as_wire(member)).collect()
    }

    /// What they are called.
    pub(crate) fn names(&self) -> Names {
        Names(self.all_members().into_iter().map(|member| (member.incarnation, member.name)).collect())
    }
}

/// The names of members at one moment. An incarnation that is looked up later may have left by then.
pub(crate) struct Names(HashMap<Incarnation, String>);

impl Names {
    /// The name of this incarnation, or the incarnation itself if it has none.
    pub(crate) fn of(&self, who: Incarnation) -> String {
        self.0.get(&who).cloned().unwrap_or_else(|| who.to_string())
    }
}
