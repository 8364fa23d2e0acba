//! Views (rule C3): the members of the cluster, under a number that is used once.

use serde::{Deserialize, Serialize};
use verbena_terms::{Incarnation, Rank, ViewNumber};

use crate::rendezvous::name_key;
use crate::{Role, Roles};

/// Members that a view may have; a longer configuration is refused.
pub const MAX_MEMBERS: usize = 256;
/// Departed incarnations that a view lists. When that many are unsettled no node joins until some are settled (rule P6
/// settles each of them within its `max_transaction_time`).
pub const MAX_DEPARTED: usize = 1024;
/// Bytes of a name or an address.
pub const MAX_TEXT_BYTES: usize = 255;

/// The members of the cluster. Immutable: a number names the same view for ever, so views can be compared by their
/// numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Parts")]
pub struct View {
    number: ViewNumber,
    members: Vec<Member>,
    departed: Vec<Departed>,
    /// Of the homes: what their lots are drawn with.
    #[serde(skip)]
    lots: Vec<(u64, Incarnation)>,
    #[serde(skip)]
    pool_lots: Vec<(u64, Incarnation)>,
}

/// One incarnation that is in (rule C1).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Member {
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The node's name in the configuration.
    pub name: String,
    /// Where it is reached; this crate does not look into it.
    pub address: String,
    /// What it is there for.
    pub roles: Roles,
}

/// An incarnation that left and is not settled: a home may still hold updates that it opened (rule P6). It holds no lease
/// once the view that lists it is in effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "DepartedParts", into = "DepartedParts")]
pub struct Departed {
    /// The departed incarnation.
    pub incarnation: Incarnation,
    /// The first view without it.
    pub since: ViewNumber,
    /// It said when it left that nothing of it was open and that it would begin nothing more: its own word settles it, and
    /// the next view drops it. It is listed until then because it may hold a lease until this view is in effect.
    pub at_rest: bool,
    /// A relay ran in it, whose connections of applications may outlive its lease by a time (rule Q19).
    pub is_relay: bool,
}

/// Incarnation, view, and flags: 1 at rest, 2 a relay. Without the second as it was before there were relays.
type DepartedParts = (Incarnation, ViewNumber, u8);

#[derive(Deserialize)]
struct Parts {
    number: ViewNumber,
    members: Vec<Member>,
    departed: Vec<Departed>,
}

impl View {
    /// A view, or what is wrong with it: members are in order of rank and each rank is there once; departed are in
    /// order and are not members; no rank is 0 or beyond the last, and no start number is 0; the limits hold.
    pub fn new(number: ViewNumber, members: Vec<Member>, departed: Vec<Departed>) -> Result<Self, String> {
        if number == ViewNumber(0) {
            return Err("a view numbered 0".into());
        }
        if members.len() > MAX_MEMBERS || departed.len() > MAX_DEPARTED + MAX_MEMBERS {
            return Err(format!("{} members and {} departed are too many", members.len(), departed.len()));
        }
        for member in &members {
            member.check()?;
        }
        if !members.is_sorted_by(|a, b| a.incarnation.rank < b.incarnation.rank) {
            return Err("members that are not in order of rank, each once".into());
        }
        if !departed.is_sorted_by(|a, b| a.incarnation < b.incarnation) {
            return Err("departed that are not in order, each once".into());
        }
        let lot = |home: &Member| (name_key(&home.name), home.incarnation);
        let lots = members.iter().filter(|member| member.roles.has(Role::Home)).map(lot).collect();
        let pool_lots = members.iter().filter(|member| member.is_pool_home()).map(lot).collect();
        let view = View { number, members, departed, lots, pool_lots };
        for gone in &view.departed {
            let who = gone.incarnation;
            check_incarnation(who)?;
            if gone.since > number || gone.since == ViewNumber(0) || view.member(who).is_some() {
                return Err(format!("{who} departed since {} of {number}", gone.since));
            }
        }
        Ok(view)
    }

    /// Its number.
    pub fn number(&self) -> ViewNumber {
        self.number
    }

    /// The members, in order of rank.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The departed incarnations that are not settled, in order.
    pub fn departed(&self) -> &[Departed] {
        &self.departed
    }

    /// The member that is this incarnation, if it is in.
    pub fn member(&self, who: Incarnation) -> Option<&Member> {
        self.of_rank(who.rank).filter(|member| member.incarnation == who)
    }

    /// The incarnation of node `rank` that is a member, if one is.
    pub fn of_rank(&self, rank: Rank) -> Option<&Member> {
        let at = self.members.binary_search_by_key(&rank, |member| member.incarnation.rank).ok()?;
        Some(&self.members[at])
    }

    /// The departed that must be settled. One that left at rest need not be.
    pub fn unsettled(&self) -> impl Iterator<Item = Incarnation> {
        self.departed.iter().filter(|gone| !gone.at_rest).map(|gone| gone.incarnation)
    }

    /// Whether this view lists the incarnation as departed.
    pub fn has_departed(&self, who: Incarnation) -> bool {
        self.departed.binary_search_by_key(&who, |gone| gone.incarnation).is_ok()
    }

    pub(crate) fn lots(&self) -> &[(u64, Incarnation)] {
        &self.lots
    }

    pub(crate) fn pool_lots(&self) -> &[(u64, Incarnation)] {
        &self.pool_lots
    }

    /// The homes of the cooperative cache, in order of rank.
    pub fn pool_homes(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.is_pool_home())
    }

    /// The members that own words.
    pub fn homes(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.roles.has(Role::Home))
    }
}

impl Member {
    /// Whether it is a home of the cooperative cache.
    pub fn is_pool_home(&self) -> bool {
        self.roles.has(Role::Home) && self.roles.has(Role::Pool) && !self.roles.has(Role::Passive)
    }

    /// What is wrong with it, if something is.
    pub(crate) fn check(&self) -> Result<(), String> {
        check_incarnation(self.incarnation)?;
        for (what, text) in [("name", &self.name), ("address", &self.address)] {
            if text.len() > MAX_TEXT_BYTES {
                return Err(format!("a {what} of {} bytes; at most {MAX_TEXT_BYTES}", text.len()));
            }
        }
        Ok(())
    }
}

fn check_incarnation(who: Incarnation) -> Result<(), String> {
    let is_nobody = who.rank == Rank::NOBODY || who.rank > Rank::LAST || who.start == 0;
    if is_nobody { Err(format!("{who} is nobody")) } else { Ok(()) }
}

impl From<Departed> for DepartedParts {
    fn from(gone: Departed) -> DepartedParts {
        (gone.incarnation, gone.since, u8::from(gone.at_rest) | u8::from(gone.is_relay) << 1)
    }
}

impl TryFrom<DepartedParts> for Departed {
    type Error = String;
    fn try_from((incarnation, since, flags): DepartedParts) -> Result<Self, String> {
        match flags {
            0..=3 => Ok(Departed { incarnation, since, at_rest: flags & 1 != 0, is_relay: flags & 2 != 0 }),
            _ => Err(format!("{incarnation} departed with flags {flags}")),
        }
    }
}

impl TryFrom<Parts> for View {
    type Error = String;
    fn try_from(parts: Parts) -> Result<Self, String> {
        View::new(parts.number, parts.members, parts.departed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::member;

    fn view(members: &[(u32, u32)], departed: &[(u32, u32)]) -> Result<View, String> {
        let members = members.iter().map(|(rank, start)| member(*rank, *start)).collect();
        let gone = |(rank, start): &(u32, u32)| Departed {
            incarnation: Incarnation::new(*rank, *start),
            since: ViewNumber(2),
            at_rest: *start % 2 == 0,
            is_relay: false,
        };
        View::new(ViewNumber(3), members, departed.iter().map(gone).collect())
    }

    #[test]
    fn members_are_found_by_life_and_by_rank() {
        let view = view(&[(1, 4), (3, 1)], &[(1, 3), (2, 9)]).unwrap();
        assert!(view.member(Incarnation::new(1, 4)).is_some() && view.member(Incarnation::new(1, 3)).is_none());
        assert_eq!(view.of_rank(Rank(3)).unwrap().incarnation.start, 1);
        assert!(view.has_departed(Incarnation::new(2, 9)) && !view.has_departed(Incarnation::new(2, 8)));
        let all = super::tests::view(&[], &[(1, 3), (2, 8)]).unwrap();
        assert_eq!(all.unsettled().collect::<Vec<_>>(), [Incarnation::new(1, 3)], "2.8 left at rest");
    }

    #[test]
    fn a_view_that_contradicts_itself_is_refused() {
        for (members, departed) in [
            (&[(2, 1), (1, 1)][..], &[][..]),
            (&[(1, 1), (1, 2)], &[]),
            (&[(0, 1)], &[]),
            (&[(1, 0)], &[]),
            (&[(1, 1)], &[(1, 1)]),
            (&[], &[(2, 1), (1, 1)]),
            (&[], &[(2, 1), (2, 1)]),
            (&[], &[(0, 1)]),
        ] {
            assert!(view(members, departed).is_err(), "{members:?} {departed:?} was taken");
        }
        assert!(View::new(ViewNumber(0), vec![], vec![]).is_err());
        let late =
            Departed { incarnation: Incarnation::new(1, 1), since: ViewNumber(9), at_rest: false, is_relay: false };
        assert!(View::new(ViewNumber(3), vec![], vec![late]).is_err());
        let long = Member { address: "x".repeat(MAX_TEXT_BYTES + 1), ..member(1, 1) };
        assert!(View::new(ViewNumber(3), vec![long], vec![]).is_err());
    }
}
