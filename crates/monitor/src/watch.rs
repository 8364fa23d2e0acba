//! Decides which boards to ask for and read, and what is news.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use verbena_cluster::View;
use verbena_fabric::Address;
use verbena_terms::{Incarnation, Load, Time};

use crate::board::Answer;
use crate::loads::{Seen, Wanted};

/// How long a member that was asked for its board's key has to answer.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask this member by which key its board is read.
    Ask(Incarnation),
    /// Read this member's board.
    Read(Incarnation),
}

/// A node's part in watching the members of its view: a plain state machine. Bounded by the members of a view.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    members: BTreeMap<Incarnation, Member>,
}

#[derive(Clone, Debug)]
struct Member {
    name: String,
    /// Where its machine is reached, if its address says that.
    host: Option<IpAddr>,
    board: Board,
    /// The newest load that was seen, its round, and when it was seen to be new.
    news: Option<(u64, Load, Time)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Board {
    /// Its key is not known; it was asked at this moment.
    Unknown(Option<Time>),
    /// The key is known.
    Known,
    /// It is being read.
    Read,
}

impl Watch {
    /// A view has these members. What is known of those who stay is kept.
    pub fn view(&mut self, view: &View) {
        let mut before = std::mem::take(&mut self.members);
        for member in view.members() {
            let known = before.remove(&member.incarnation);
            let (board, news) = known.map_or((Board::Unknown(None), None), |known| (known.board, known.news));
            let (name, host) = (member.name.clone(), host_of(&Address(member.address.clone())));
            self.members.insert(member.incarnation, Member { name, host, board, news });
        }
    }

    /// A member has told its board's key. Whether it is one of the view.
    pub fn told(&mut self, who: Incarnation) -> bool {
        let member = self.members.get_mut(&who);
        member.map(|member| member.board = Board::Known).is_some()
    }

    /// The actions due at `now` for the node `me`, given the loads that are wanted.
    pub fn due(&mut self, me: Incarnation, wanted: &Wanted, now: Time) -> Vec<Action> {
        let mut actions = vec![];
        let others = self.members.iter_mut().filter(|(who, _)| **who != me);
        for (who, member) in others.filter(|(_, member)| wanted.has(&member.name, member.host)) {
            match member.board {
                Board::Unknown(Some(asked)) if now.since(asked) < ASK_AGAIN => {}
                Board::Unknown(_) => {
                    member.board = Board::Unknown(Some(now));
                    actions.push(Action::Ask(*who));
                }
                Board::Known => {
                    member.board = Board::Read;
                    actions.push(Action::Read(*who));
                }
                Board::Read => {}
            }
        }
        actions
    }

    /// A board was read, or could not be. Then its key is asked for again, because the node may be in another
    /// incarnation.
    pub fn read(&mut self, who: Incarnation, found: Option<Answer>, now: Time) {
        let Some(member) = self.members.get_mut(&who) else { return };
        if member.board == Board::Read {
            // Ask a second later, so that a departed node is not asked all the time.
            member.board = if found.is_some() { Board::Known } else { Board::Unknown(Some(now)) };
        }
        if let Some(Answer::Load(round, load)) = found {
            member.learn(round, load, now);
        }
    }

    /// It cannot be done yet: the member is not reached, or its board not open. It is due again.
    pub fn not_yet(&mut self, action: Action) {
        let (who, board) = match action {
            Action::Ask(who) => (who, Board::Unknown(None)),
            Action::Read(who) => (who, Board::Known),
        };
        if let Some(member) = self.members.get_mut(&who) {
            member.board = board;
        }
    }

    /// What this node itself has published.
    pub fn published(&mut self, me: Incarnation, round: u64, load: Load, now: Time) {
        if let Some(member) = self.members.get_mut(&me) {
            member.learn(round, load, now);
        }
    }

    /// What is known, by the node `me`.
    pub fn seen(&self, me: Incarnation) -> Vec<Seen> {
        let seen = self.members.iter().filter_map(|(who, member)| {
            let (_, load, at) = member.news?;
            let name = member.name.clone();
            Some(Seen { who: *who, name, is_own: *who == me, host: member.host, load, at })
        });
        seen.collect()
    }
}

/// The IP address in a node's address, behind which there may be a secret.
fn host_of(address: &Address) -> Option<IpAddr> {
    let place = address.rest().split('/').next().unwrap_or_default();
    place.parse().map(|address: SocketAddr| address.ip()).ok()
}

impl Member {
    fn learn(&mut self, round: u64, load: Load, now: Time) {
        if self.news.is_none_or(|(before, ..)| before != round) {
            self.news = Some((round, load, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use verbena_cluster::Roles;
    use verbena_terms::ViewNumber;

    use super::*;
    use crate::Whose;

    const ME: Incarnation = Incarnation::new(1, 1);
    const PEER: Incarnation = Incarnation::new(2, 1);

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn watch(members: &[Incarnation]) -> Watch {
        let mut watch = Watch::default();
        watch.view(&view(1, members));
        watch
    }

    fn view(number: u32, members: &[Incarnation]) -> View {
        let member = |who: &Incarnation| verbena_cluster::Member {
            incarnation: *who,
            name: format!("n{}", who.rank.0),
            address: format!("tcp://10.0.0.{}:7001/secret", who.rank.0),
            roles: Roles::ALL,
        };
        View::new(ViewNumber(number), members.iter().map(member).collect(), vec![]).unwrap()
    }

    fn busy(n: u32) -> Load {
        Load { busy_milli: n, every_ms: 100, ..Load::default() }
    }

    #[test]
    fn a_board_is_asked_for_once_a_second_until_its_key_is_there_and_read_whenever_it_may_be() {
        let mut watch = watch(&[ME, PEER]);
        assert_eq!(watch.due(ME, &Wanted::All, at(0)), [Action::Ask(PEER)]);
        watch.not_yet(Action::Ask(PEER));
        assert_eq!(watch.due(ME, &Wanted::All, at(0)), [Action::Ask(PEER)], "it was not reached");
        assert_eq!(watch.due(ME, &Wanted::All, at(999)), []);
        assert_eq!(watch.due(ME, &Wanted::All, at(1000)), [Action::Ask(PEER)]);
        assert!(watch.told(PEER) && !watch.told(Incarnation::new(9, 1)));
        assert_eq!(watch.due(ME, &Wanted::All, at(1001)), [Action::Read(PEER)]);
        assert_eq!(watch.due(ME, &Wanted::All, at(1101)), [], "one at a time");
        watch.read(PEER, Some(Answer::Torn), at(1102));
        assert_eq!(watch.due(ME, &Wanted::All, at(1103)), [Action::Read(PEER)]);
        watch.not_yet(Action::Read(PEER));
        assert_eq!(watch.due(ME, &Wanted::All, at(1104)), [Action::Read(PEER)]);
        watch.read(PEER, None, at(1105));
        assert_eq!(watch.due(ME, &Wanted::All, at(2104)), [], "it may be gone");
        assert_eq!(watch.due(ME, &Wanted::All, at(2105)), [Action::Ask(PEER)], "or have another key");
    }

    #[test]
    fn only_those_who_are_wanted_are_asked() {
        let third = Incarnation::new(3, 1);
        let mut watch = watch(&[ME, PEER, third]);
        assert_eq!(watch.due(ME, &Wanted::These(vec![]), at(0)), []);
        let these = Wanted::These(vec![Whose::Node("n3".into()), Whose::Host([10, 0, 0, 9].into())]);
        assert_eq!(watch.due(ME, &these, at(0)), [Action::Ask(third)]);
        assert_eq!(watch.due(ME, &Wanted::These(vec![Whose::Host([10, 0, 0, 2].into())]), at(0)), [Action::Ask(PEER)]);
    }

    #[test]
    fn a_board_that_does_not_change_is_no_news() {
        let mut watch = watch(&[ME, PEER]);
        watch.told(PEER);
        let mut read = |round, load, ms| {
            watch.due(ME, &Wanted::All, at(ms));
            watch.read(PEER, Some(Answer::Load(round, busy(load))), at(ms));
            watch.seen(ME).pop().unwrap()
        };
        assert!(read(4, 7, 0).is_fresh(at(1000)));
        let stopped = read(4, 7, 1000);
        assert!(!stopped.is_fresh(at(1001)), "its node was stopped: {stopped:?}");
        let goes_on = read(5, 8, 1100);
        assert!(goes_on.is_fresh(at(2100)) && goes_on.load == busy(8));
        let slow = Seen { load: Load { every_ms: 5000, ..busy(1) }, ..goes_on };
        assert!(slow.is_fresh(at(16_100)) && !slow.is_fresh(at(16_101)));
    }

    #[test]
    fn who_stays_in_the_view_is_known_and_who_comes_again_is_another() {
        let mut watch = watch(&[ME, PEER]);
        watch.told(PEER);
        watch.due(ME, &Wanted::All, at(0));
        watch.read(PEER, Some(Answer::Load(1, busy(3))), at(0));
        watch.published(ME, 1, busy(4), at(0));
        let seen = watch.seen(ME);
        assert_eq!(seen.iter().map(|seen| seen.load.busy_milli).collect::<Vec<_>>(), [4, 3]);
        assert_eq!((seen[1].name.as_str(), seen[1].host), ("n2", Some([10, 0, 0, 2].into())));
        watch.view(&view(2, &[ME, PEER]));
        assert_eq!(watch.seen(ME), seen);
        watch.view(&view(3, &[ME, Incarnation::new(2, 2)]));
        assert_eq!(watch.seen(ME), seen[..1]);
        assert_eq!(watch.due(ME, &Wanted::All, at(1)), [Action::Ask(Incarnation::new(2, 2))]);
    }
}
