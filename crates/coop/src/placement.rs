//! Where an object goes: the schemes of chapter 7, and one that adapts.
//!
//! A scheme answers two questions from what a node knows of itself and from the boards of others ([`Situation`]): where a new object is *stored*, and
//! what becomes of an object that was *fetched* from another node. It touches nothing. So one can take another's place while objects
//! lie where the first put them.
//!
//! | scheme | stores | keeps of what it fetched |
//! |---|---|---|
//! | [`Alone`], the chapter's AC | here | never fetches |
//! | [`Basic`], BCC (7.2.1) | here if there is room, else where there is, else here | a copy, always |
//! | [`WithoutRedundancy`], CCWR (7.2.2) and, with passive nodes, MTACC (7.2.3) | local free, remote free, local redundant, remote redundant, here | one copy in all: it swaps |
//! | [`Hybrid`], HYBCC (7.2.4, 7.3.1) | small: among proxies; large: as MTACC | by size |
//! | [`Adaptive`] | as MTACC | a copy within a share of the memory that follows what copies gain and cost |

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use verbena_terms::Rank;

/// What a node knows when it asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Situation {
    /// Bytes of the object.
    pub bytes: u32,
    /// It fits into free memory here.
    pub has_local_free: bool,
    /// An active node with free memory.
    pub active_free: Option<Rank>,
    /// A passive node with free memory.
    pub passive_free: Option<Rank>,
    /// Redundant copies here would make room.
    pub has_local_redundant: bool,
    /// A node with redundant copies to make room of; a passive one only if no active one has any.
    pub remote_redundant: Option<Rank>,
    /// That node is passive.
    pub is_redundant_passive: bool,
    /// A passive node whose oldest object is older than the oldest here.
    pub passive_older: Option<Rank>,
    /// Copies here beside those that are the only ones, in ten-thousandths of this node's memory.
    pub copies_share: u16,
    /// The object lies at a passive node: of a fetch.
    pub is_at_passive: bool,
}

/// Where a new object goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// Into free memory here.
    Local,
    /// Into free memory there.
    Remote(Rank),
    /// In place of a redundant copy here.
    OverRedundant,
    /// In place of a redundant copy there.
    OverRemoteRedundant(Rank),
    /// In place of what this node's replacement lets go.
    Replace,
    /// In place of what that node's replacement lets go.
    ReplaceAt(Rank),
}

/// What becomes of an object that was read from another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// It stays where it is.
    Stay,
    /// A copy is kept here too, in place of what this node's replacement lets go.
    Copy,
    /// A copy is kept here too, in place of a redundant one here.
    CopyOver,
    /// It comes here, into free memory or over a redundant copy, and leaves there.
    Move,
    /// It changes places with what this node's replacement would let go (rule K8).
    Swap,
}

/// Where objects go.
pub trait Scheme {
    /// Its name, as the configuration has it.
    fn name(&self) -> &'static str;
    /// Whether other nodes' memory is used.
    fn cooperates(&self) -> bool {
        true
    }
    /// Whether passive nodes hold objects of this size.
    fn uses_passive(&self, _bytes: u32) -> bool {
        false
    }
    /// Whether objects that would go next leave for free memory elsewhere before their room is needed.
    fn keeps_room(&self) -> bool {
        false
    }
    /// Whether the least recently used goes where room is needed, as in the chapter, or what S3-FIFO lets go.
    fn replaces_lru(&self) -> bool {
        true
    }
    /// Whether redundant copies go before other objects.
    fn drops_redundant_first(&self) -> bool {
        true
    }
    /// Where a new object goes.
    fn store(&self, situation: &Situation) -> Store;
    /// What becomes of one that was fetched.
    fn fetched(&mut self, situation: &Situation) -> Fetched;
    /// What was measured since the last call: the adaptive scheme follows it.
    fn measured(&mut self, _measures: &Measures) {}
}

/// What a node measured over a while.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measures {
    /// Remote reads of objects of which a copy here left a little while ago: more copies would have saved them.
    pub ghost_reads: u64,
    /// Misses of objects that left this node a little while ago, with no copy elsewhere: fewer copies would have saved them.
    /// Both ghosts reach equally many evictions back.
    pub ghost_misses: u64,
    /// How much longer a remote read takes than a local one.
    pub remote_cost: f64,
    /// How much longer a miss takes than a local read.
    pub miss_cost: f64,
    /// Whether memory is full: while it is not, copies cost nothing.
    pub is_full: bool,
}

/// AC: each node for itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

/// BCC: find, make room, read. A copy wherever it is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Basic;

/// CCWR: no object twice. With passive nodes it is MTACC.
#[derive(Clone, Copy, Debug, Default)]
pub struct WithoutRedundancy {
    /// Passive nodes hold too: MTACC.
    pub with_passive: bool,
}

/// HYBCC: another scheme for small objects than for large ones.
#[derive(Clone, Copy, Debug)]
pub struct Hybrid {
    /// Objects of fewer bytes are small.
    pub small_bytes: u32,
    /// Small ones are duplicated, not checked for duplicates, and kept off passive nodes (7.2.4). Otherwise they are as in CCWR (7.3.1).
    pub duplicates_small: bool,
}

impl Default for Hybrid {
    /// As 7.2.4 has it, where duplicates go first when room is needed: so nothing is missed that 7.3.1's reading would hold.
    fn default() -> Self {
        Hybrid { small_bytes: 16 << 10, duplicates_small: true }
    }
}

/// Hybrid with measures in place of a threshold.
#[derive(Clone, Copy, Debug)]
pub struct Adaptive {
    /// Hundredths of this node's memory that copies may take.
    share_percent: f64,
}

impl Default for Adaptive {
    fn default() -> Self {
        Adaptive { share_percent: Adaptive::LEAST_PERCENT }
    }
}

impl Adaptive {
    /// Some copies always, so that their gain is seen.
    const LEAST_PERCENT: f64 = 0.1;
    const MOST_PERCENT: f64 = 90.0;
    /// In one measure.
    const GROWTH: f64 = 1.03;
    /// In one measure.
    const DECLINE: f64 = 0.95;

    /// Hundredths of this node's memory that copies may take now.
    pub fn share_percent(&self) -> f64 {
        self.share_percent
    }
}

impl Scheme for Alone {
    fn name(&self) -> &'static str {
        "ac"
    }

    fn cooperates(&self) -> bool {
        false
    }

    fn store(&self, situation: &Situation) -> Store {
        if situation.has_local_free { Store::Local } else { Store::Replace }
    }

    fn fetched(&mut self, _situation: &Situation) -> Fetched {
        Fetched::Stay
    }
}

impl Scheme for Basic {
    fn name(&self) -> &'static str {
        "bcc"
    }

    fn drops_redundant_first(&self) -> bool {
        false
    }

    fn store(&self, situation: &Situation) -> Store {
        match situation {
            Situation { has_local_free: true, .. } => Store::Local,
            Situation { active_free: Some(there), .. } => Store::Remote(*there),
            _ => Store::Replace,
        }
    }

    fn fetched(&mut self, _situation: &Situation) -> Fetched {
        Fetched::Copy
    }
}

/// The order of 7.2.2, over active nodes or over all.
fn in_order(situation: &Situation, with_passive: bool) -> Store {
    let passive_free = situation.passive_free.filter(|_| with_passive);
    let redundant = situation.remote_redundant.filter(|_| with_passive || !situation.is_redundant_passive);
    if situation.has_local_free {
        return Store::Local;
    }
    if let Some(there) = situation.active_free.or(passive_free) {
        return Store::Remote(there);
    }
    if situation.has_local_redundant {
        return Store::OverRedundant;
    }
    match (redundant, situation.passive_older.filter(|_| with_passive)) {
        (Some(there), _) => Store::OverRemoteRedundant(there),
        // Nothing is asked of a passive node but what others put there: so its replacement is theirs to begin.
        (None, Some(there)) => Store::ReplaceAt(there),
        (None, None) => Store::Replace,
    }
}

fn in_one_place(situation: &Situation) -> Fetched {
    if situation.has_local_free || situation.has_local_redundant { Fetched::Move } else { Fetched::Swap }
}

impl Scheme for WithoutRedundancy {
    fn name(&self) -> &'static str {
        if self.with_passive { "mtacc" } else { "ccwr" }
    }

    fn uses_passive(&self, _bytes: u32) -> bool {
        self.with_passive
    }

    fn store(&self, situation: &Situation) -> Store {
        in_order(situation, self.with_passive)
    }

    fn fetched(&mut self, situation: &Situation) -> Fetched {
        in_one_place(situation)
    }
}

impl Scheme for Hybrid {
    fn name(&self) -> &'static str {
        "hybcc"
    }

    fn uses_passive(&self, bytes: u32) -> bool {
        bytes >= self.small_bytes
    }

    fn store(&self, situation: &Situation) -> Store {
        in_order(situation, self.uses_passive(situation.bytes))
    }

    fn fetched(&mut self, situation: &Situation) -> Fetched {
        if !self.duplicates_small || situation.bytes >= self.small_bytes {
            in_one_place(situation)
        } else if situation.has_local_redundant && !situation.has_local_free {
            Fetched::CopyOver
        } else {
            Fetched::Copy
        }
    }
}

impl Scheme for Adaptive {
    fn name(&self) -> &'static str {
        "adaptive"
    }

    fn keeps_room(&self) -> bool {
        true
    }

    fn replaces_lru(&self) -> bool {
        false
    }

    fn uses_passive(&self, _bytes: u32) -> bool {
        true
    }

    fn store(&self, situation: &Situation) -> Store {
        in_order(situation, true)
    }

    /// A copy more while there is room for it. At the share, one for another.
    fn fetched(&mut self, situation: &Situation) -> Fetched {
        if situation.has_local_free || f64::from(situation.copies_share) < 100.0 * self.share_percent {
            Fetched::Copy
        } else if situation.has_local_redundant {
            Fetched::CopyOver
        } else if situation.is_at_passive {
            Fetched::Swap
        } else {
            Fetched::Stay
        }
    }

    /// The share grows while more copies would save more than fewer would: ghosts of either kind, times what each is worth. It shrinks faster
    /// than it grows, because a miss is seen late.
    fn measured(&mut self, measures: &Measures) {
        if !measures.is_full {
            return;
        }
        let gain = measures.ghost_reads as f64 * measures.remote_cost;
        let loss = measures.ghost_misses as f64 * (measures.miss_cost - measures.remote_cost).max(0.0);
        let factor = if gain > loss { Adaptive::GROWTH } else { Adaptive::DECLINE };
        self.share_percent = (self.share_percent * factor).clamp(Adaptive::LEAST_PERCENT, Adaptive::MOST_PERCENT);
    }
}

/// The name of a scheme, as the configuration has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SchemeName {
    /// [`Alone`].
    Ac,
    /// [`Basic`].
    Bcc,
    /// [`WithoutRedundancy`] on active nodes.
    Ccwr,
    /// [`WithoutRedundancy`] on all.
    Mtacc,
    /// [`Hybrid`].
    Hybcc,
    /// [`Adaptive`].
    #[default]
    Adaptive,
}

impl SchemeName {
    /// All of them.
    pub const ALL: [SchemeName; 6] =
        [SchemeName::Ac, SchemeName::Bcc, SchemeName::Ccwr, SchemeName::Mtacc, SchemeName::Hybcc, SchemeName::Adaptive];

    /// The scheme, as it begins.
    pub fn scheme(self) -> Box<dyn Scheme + Send> {
        match self {
            SchemeName::Ac => Box::new(Alone),
            SchemeName::Bcc => Box::new(Basic),
            SchemeName::Ccwr => Box::new(WithoutRedundancy { with_passive: false }),
            SchemeName::Mtacc => Box::new(WithoutRedundancy { with_passive: true }),
            SchemeName::Hybcc => Box::new(Hybrid::default()),
            SchemeName::Adaptive => Box::new(Adaptive::default()),
        }
    }
}

impl fmt::Display for SchemeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.scheme().name())
    }
}

impl FromStr for SchemeName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = SchemeName::ALL.into_iter().find(|scheme| scheme.to_string() == name);
        found.ok_or_else(|| format!("{name:?} is no scheme: there are ac, bcc, ccwr, mtacc, hybcc and adaptive"))
    }
}

/// A scheme and when it was chosen: of two the larger goes for all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Chosen {
    /// 0: by the configuration, which each node has its own of. 1: the first node's, which goes for the pool. Then larger at each choice.
    pub nth: u64,
    /// Which.
    pub name: SchemeName,
}

impl Chosen {
    /// Whether a node that goes by this one goes by `other` once it hears of that.
    pub fn yields_to(self, other: Chosen) -> bool {
        other.nth > 0 && other > self
    }
}

/// The scheme with this name.
pub fn scheme(name: &str) -> Option<Box<dyn Scheme + Send>> {
    if name == "hybcc-single" {
        return Some(Box::new(Hybrid { duplicates_small: false, ..Hybrid::default() }));
    }
    name.parse().ok().map(SchemeName::scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_copies_follows_what_they_gain_and_cost() {
        let mut adaptive = Adaptive::default();
        let gains = Measures { ghost_reads: 100, ghost_misses: 1, remote_cost: 1.0, miss_cost: 5.0, is_full: true };
        let costs = Measures { ghost_reads: 10, ghost_misses: 10, ..gains };
        adaptive.measured(&Measures { is_full: false, ..gains });
        assert_eq!(adaptive.share_percent(), Adaptive::LEAST_PERCENT);
        (0..400).for_each(|_| adaptive.measured(&gains));
        assert_eq!(adaptive.share_percent(), Adaptive::MOST_PERCENT);
        let some = Situation { copies_share: 5000, ..Situation::default() };
        assert_eq!(adaptive.fetched(&some), Fetched::Copy);
        (0..400).for_each(|_| adaptive.measured(&costs));
        assert_eq!(adaptive.share_percent(), Adaptive::LEAST_PERCENT);
        assert_eq!(adaptive.fetched(&some), Fetched::Stay);
        assert_eq!(adaptive.fetched(&Situation { has_local_redundant: true, ..some }), Fetched::CopyOver);
    }

    #[test]
    fn room_is_sought_in_the_chapter_s_order() {
        let (there, passive) = (Rank(2), Rank(9));
        let mut situation = Situation {
            has_local_free: true,
            active_free: Some(there),
            passive_free: Some(passive),
            has_local_redundant: true,
            remote_redundant: Some(there),
            ..Situation::default()
        };
        let mtacc = WithoutRedundancy { with_passive: true };
        assert_eq!(mtacc.store(&situation), Store::Local);
        situation.has_local_free = false;
        assert_eq!(mtacc.store(&situation), Store::Remote(there));
        situation.active_free = None;
        assert_eq!(mtacc.store(&situation), Store::Remote(passive));
        assert_eq!(WithoutRedundancy::default().store(&situation), Store::OverRedundant);
        situation.passive_free = None;
        assert_eq!(mtacc.store(&situation), Store::OverRedundant);
        situation.has_local_redundant = false;
        assert_eq!(mtacc.store(&situation), Store::OverRemoteRedundant(there));
        situation.remote_redundant = None;
        assert_eq!(mtacc.store(&situation), Store::Replace);
        for name in ["ac", "bcc", "ccwr", "mtacc", "hybcc", "adaptive"] {
            assert_eq!(scheme(name).unwrap().name(), name);
        }
        assert!(scheme("lru").is_none());
    }
}
