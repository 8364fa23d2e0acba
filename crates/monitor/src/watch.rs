//! Decides when this node's load is published, which boards are asked for and read, and what is news.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{Lease, View};
use verbena_fabric::{Address, RegionKey};
use verbena_service::driver::Machine;
use verbena_terms::{Incarnation, Load, LoadCounts, Time, ViewNumber};

use crate::board::Answer;
use crate::host::ReadBoard;
use crate::loads::{Seen, Wanted};
use crate::meter::{Meter, Reading};
use crate::wire::{Frame, Message};

/// How long a member that was asked for its board's key has to answer.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Find out how loaded this machine is, for [`Watch::measured`], and then which loads are wanted, for [`Watch::wants`].
    Measure,
    /// Publish this load as this round.
    Publish(u64, Load),
    /// Send this member a message.
    Send(Incarnation, Message),
    /// Open the board of this key.
    Open(RegionKey),
    /// Read this member's board.
    Read(Incarnation),
    /// Show what is known of the members.
    Show(Vec<Seen>),
}

/// A node's part in watching the members of its view: a plain state machine. Bounded by the members of a view.
#[derive(Clone, Debug)]
pub struct Watch {
    /// Pause between two publications.
    every: Duration,
    meter: Meter,
    /// When the next publication is due; `None` before the first.
    publish_at: Option<Time>,
    wanted: Wanted,
    me: Incarnation,
    view: ViewNumber,
    /// Of this node's own board; `None` before the first view.
    key: Option<RegionKey>,
    round: u64,
    members: BTreeMap<Incarnation, Member>,
    /// A board may have become available to ask for or read.
    is_due: bool,
    /// What is known has changed since it was shown.
    has_changed: bool,
}

#[derive(Clone, Debug, Default)]
struct Member {
    name: String,
    /// Where its machine is reached, if its address says that.
    host: Option<IpAddr>,
    is_connected: bool,
    board: Board,
    /// The newest load that was seen, its round, and when it was seen to be new.
    news: Option<(u64, Load, Time)>,
}

#[derive(Clone, Debug)]
enum Board {
    /// Its key is not known; it was asked for at this time.
    Unknown(Option<Time>),
    Known {
        key: RegionKey,
        is_being_read: bool,
    },
}

impl Default for Board {
    fn default() -> Self {
        Board::Unknown(None)
    }
}

impl Watch {
    /// Publishes the node's load this often. Reads no boards before the first [`wants`](Self::wants).
    pub fn new(every: Duration) -> Self {
        Watch {
            every,
            meter: Meter::default(),
            publish_at: None,
            wanted: Wanted::These(vec![]),
            me: Incarnation::default(),
            view: ViewNumber(0),
            key: None,
            round: 0,
            members: BTreeMap::new(),
            is_due: false,
            has_changed: false,
        }
    }

    /// The view that it is in.
    pub(crate) fn view_number(&self) -> ViewNumber {
        self.view
    }

    /// How loaded this machine is, what the node has done, and how many programs are connected to it.
    pub fn measured(
        &mut self,
        reading: Reading,
        (counts, programs): (LoadCounts, u32),
        now: Time,
        out: &mut Vec<Action>,
    ) {
        let every_ms = self.every.as_millis() as u32;
        let load = Load { counts, programs, every_ms, ..self.meter.take(reading, now) };
        self.round += 1;
        out.push(Action::Publish(self.round, load));
        if let Some(own) = self.members.get_mut(&self.me) {
            self.has_changed |= own.learn(self.round, load, now);
        }
    }

    /// These loads are wanted: asks for their boards and reads those whose keys are known.
    pub fn wants(&mut self, wanted: Wanted, now: Time, out: &mut Vec<Action>) {
        self.wanted = wanted;
        self.ask_and_read(now, out);
    }

    fn ask_and_read(&mut self, now: Time, out: &mut Vec<Action>) {
        let others = self.members.iter_mut().filter(|(who, _)| **who != self.me);
        for (who, member) in others.filter(|(_, member)| self.wanted.has(&member.name, member.host)) {
            match &mut member.board {
                Board::Unknown(Some(asked)) if now.since(*asked) < ASK_AGAIN => {}
                Board::Unknown(asked) if member.is_connected => {
                    *asked = Some(now);
                    out.push(Action::Send(*who, Message::Ask));
                }
                Board::Known { is_being_read, .. } if !*is_being_read => {
                    *is_being_read = true;
                    out.push(Action::Read(*who));
                }
                Board::Unknown(_) | Board::Known { .. } => {}
            }
        }
    }

    /// What is known of the members.
    fn seen(&self) -> Vec<Seen> {
        let seen = self.members.iter().filter_map(|(who, member)| {
            let (_, load, at) = member.news?;
            let name = member.name.clone();
            Some(Seen { who: *who, name, is_own: *who == self.me, host: member.host, load, at })
        });
        seen.collect()
    }
}

impl Machine for Watch {
    type Action = Action;
    type Frame = Frame;
    type Batch = ReadBoard;

    /// The machine is as loaded in the next incarnation as in this one.
    fn start_incarnation(&mut self, me: Incarnation, _: &mut Vec<Action>) {
        let (meter, wanted) = (std::mem::take(&mut self.meter), self.wanted.clone());
        *self = Watch { me, meter, wanted, publish_at: self.publish_at, ..Watch::new(self.every) };
    }

    /// Boards are read and written under no lease: a load is for people, and for choices that may be wrong.
    fn lease(&mut self, _: Lease, _: Time, _: &mut Vec<Action>) {}

    /// What is known of the members that stay is kept. What was being read has no outcome, and regions are closed.
    fn view(&mut self, view: &Arc<View>, region: Option<RegionKey>, _: Time, out: &mut Vec<Action>) {
        (self.view, self.key) = (view.number(), region);
        let mut before = std::mem::take(&mut self.members);
        for member in view.members() {
            let (name, host) = (member.name.clone(), host_of(&Address(member.address.clone())));
            let known = before.remove(&member.incarnation).unwrap_or_default();
            let mut member_now = Member { name, host, ..known };
            if let Board::Known { key, is_being_read } = &mut member_now.board {
                *is_being_read = false;
                out.push(Action::Open(key.clone()));
            }
            self.members.insert(member.incarnation, member_now);
        }
        (self.is_due, self.has_changed) = (true, true);
    }

    fn frame(&mut self, frame: Frame, _: Time, out: &mut Vec<Action>) {
        match frame.message {
            Message::Ask => {
                out.extend(self.key.clone().map(|key| Action::Send(frame.from, Message::Key(key))));
            }
            Message::Key(key) => {
                let Some(member) = self.members.get_mut(&frame.from) else { return };
                if let Board::Unknown(_) = member.board {
                    out.push(Action::Open(key.clone()));
                    member.board = Board::Known { key, is_being_read: false };
                    self.is_due = true;
                }
            }
        }
    }

    /// A board was read, or could not be. Then its key is asked for again.
    fn completed(&mut self, who: Incarnation, found: Option<Answer>, now: Time, _: &mut Vec<Action>) {
        let Some(member) = self.members.get_mut(&who) else { return };
        match (&mut member.board, found) {
            // Ask a second later, so that a departed node is not asked all the time.
            (board, None) => *board = Board::Unknown(Some(now)),
            (Board::Known { is_being_read, .. }, Some(_)) => *is_being_read = false,
            (Board::Unknown(_), Some(_)) => {}
        }
        if let Some(Answer::Load(round, load)) = found {
            self.has_changed |= member.learn(round, load, now);
        }
    }

    fn connected(&mut self, member: Incarnation, _: Time, _: &mut Vec<Action>) {
        if let Some(member) = self.members.get_mut(&member) {
            (member.is_connected, self.is_due) = (true, true);
        }
    }

    fn tick(&mut self, now: Time, out: &mut Vec<Action>) {
        let publish_at = self.publish_at.unwrap_or(now);
        if publish_at <= now {
            // A late publication delays those after it.
            self.publish_at = Some((publish_at + self.every).max(now));
            out.push(Action::Measure);
        }
        if std::mem::take(&mut self.is_due) {
            self.ask_and_read(now, out);
        }
    }

    /// What has come together is shown at once: each time all members are.
    fn flush(&mut self, _: Time, out: &mut Vec<Action>) {
        if std::mem::take(&mut self.has_changed) {
            out.push(Action::Show(self.seen()));
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        Some(self.publish_at.unwrap_or(Time::ZERO))
    }
}

/// The IP address in a node's address, behind which there may be a secret.
fn host_of(address: &Address) -> Option<IpAddr> {
    let place = address.rest().split('/').next().unwrap_or_default();
    place.parse().map(|address: SocketAddr| address.ip()).ok()
}

impl Member {
    /// Whether that is news.
    fn learn(&mut self, round: u64, load: Load, now: Time) -> bool {
        let is_news = self.news.is_none_or(|(before, ..)| before != round);
        if is_news {
            self.news = Some((round, load, now));
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use verbena_cluster::Roles;
    use verbena_fabric::{Rights, Secret};

    use super::*;
    use crate::Whose;
    use crate::board::BOARD_BYTES;

    const ME: Incarnation = Incarnation::new(1, 1);
    const PEER: Incarnation = Incarnation::new(2, 1);
    const EVERY: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn key(owner: Incarnation) -> RegionKey {
        let (view, rights) = (ViewNumber(0), Rights::Read);
        RegionKey { owner, region: 1, view, bytes: BOARD_BYTES, rights, secret: Secret([7; 16]) }
    }

    fn actions(event: impl FnOnce(&mut Vec<Action>)) -> Vec<Action> {
        let mut out = vec![];
        event(&mut out);
        out
    }

    fn watch(members: &[Incarnation]) -> Watch {
        let mut watch = Watch::new(EVERY);
        watch.start_incarnation(ME, &mut vec![]);
        enter(&mut watch, 1, members);
        members.iter().for_each(|member| watch.connected(*member, at(0), &mut vec![]));
        watch
    }

    fn enter(watch: &mut Watch, number: u32, members: &[Incarnation]) -> Vec<Action> {
        actions(|out| watch.view(&Arc::new(view(number, members)), Some(key(ME)), at(0), out))
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

    fn wants(watch: &mut Watch, wanted: Wanted, ms: u64) -> Vec<Action> {
        actions(|out| watch.wants(wanted, at(ms), out))
    }

    fn wants_all(watch: &mut Watch, ms: u64) -> Vec<Action> {
        wants(watch, Wanted::All, ms)
    }

    fn hear(watch: &mut Watch, from: Incarnation, message: Message) -> Vec<Action> {
        actions(|out| watch.frame(Frame { from, message }, at(0), out))
    }

    fn read(watch: &mut Watch, found: Option<Answer>, ms: u64) {
        watch.completed(PEER, found, at(ms), &mut vec![]);
    }

    fn ask(who: Incarnation) -> Action {
        Action::Send(who, Message::Ask)
    }

    fn busy(n: u32) -> Load {
        Load { busy_milli: n, every_ms: 100, ..Load::default() }
    }

    fn reading() -> Reading {
        let (ticks, idle_ticks, cores, running) = (0, 0, 4, 1);
        Reading { ticks, idle_ticks, cores, running, memory_bytes: 100, available_bytes: 50, connections: 7 }
    }

    fn measured(watch: &mut Watch, ms: u64) -> Vec<Action> {
        actions(|out| watch.measured(reading(), (LoadCounts::default(), 3), at(ms), out))
    }

    #[test]
    fn a_board_is_asked_for_once_a_second_until_its_key_is_there_and_read_whenever_it_may_be() {
        let mut watch = watch(&[ME, PEER]);
        assert_eq!(wants_all(&mut watch, 0), [ask(PEER)]);
        assert_eq!(wants_all(&mut watch, 999), []);
        assert_eq!(wants_all(&mut watch, 1000), [ask(PEER)]);
        let open = || Action::Open(key(PEER));
        assert_eq!(hear(&mut watch, PEER, Message::Key(key(PEER))), [open()]);
        let stranger = Incarnation::new(9, 1);
        assert_eq!(hear(&mut watch, stranger, Message::Key(key(stranger))), []);
        assert_eq!(wants_all(&mut watch, 1001), [Action::Read(PEER)]);
        assert_eq!(hear(&mut watch, PEER, Message::Key(key(PEER))), [], "a key that comes twice is known");
        assert_eq!(wants_all(&mut watch, 1101), [], "one at a time");
        read(&mut watch, Some(Answer::Torn), 1102);
        assert_eq!(wants_all(&mut watch, 1103), [Action::Read(PEER)]);
        assert_eq!(enter(&mut watch, 2, &[ME, PEER]), [open()]);
        assert_eq!(wants_all(&mut watch, 1104), [Action::Read(PEER)], "the last read has no outcome");
        read(&mut watch, None, 1105);
        assert_eq!(wants_all(&mut watch, 2104), [], "it may be gone");
        assert_eq!(wants_all(&mut watch, 2105), [ask(PEER)], "or have another key");
    }

    #[test]
    fn a_member_is_asked_once_it_is_connected() {
        let mut watch = watch(&[ME]);
        enter(&mut watch, 2, &[ME, PEER]);
        assert_eq!(wants_all(&mut watch, 0), []);
        watch.connected(PEER, at(0), &mut vec![]);
        assert!(actions(|out| watch.tick(at(1), out)).contains(&ask(PEER)), "at once");
    }

    #[test]
    fn only_boards_that_are_wanted_are_asked_for() {
        let third = Incarnation::new(3, 1);
        let mut watch = watch(&[ME, PEER, third]);
        assert_eq!(wants(&mut watch, Wanted::These(vec![]), 0), []);
        let these = Wanted::These(vec![Whose::Node("n3".into()), Whose::Host([10, 0, 0, 9].into())]);
        assert_eq!(wants(&mut watch, these, 0), [ask(third)]);
        assert_eq!(wants(&mut watch, Wanted::These(vec![Whose::Host([10, 0, 0, 2].into())]), 0), [ask(PEER)]);
    }

    #[test]
    fn a_member_that_asks_gets_the_key_of_this_view() {
        let mut watch = Watch::new(EVERY);
        watch.start_incarnation(ME, &mut vec![]);
        assert_eq!(hear(&mut watch, PEER, Message::Ask), [], "no member is known yet");
        enter(&mut watch, 1, &[ME, PEER]);
        assert_eq!(hear(&mut watch, PEER, Message::Ask), [Action::Send(PEER, Message::Key(key(ME)))]);
    }

    #[test]
    fn a_load_is_published_on_time_and_a_late_one_delays_those_after_it() {
        let mut watch = watch(&[ME]);
        let mut is_due = |ms| actions(|out| watch.tick(at(ms), out)) == [Action::Measure];
        let times = [(5, true), (6, false), (104, false), (105, true), (204, false), (207, true), (305, true)];
        assert_eq!(times.map(|(ms, _)| (ms, is_due(ms))), times);
        assert!(is_due(700) && is_due(700) && !is_due(799) && is_due(800));
        assert_eq!(watch.next_deadline(), Some(at(900)));
    }

    #[test]
    fn rounds_begin_anew_with_each_incarnation_and_the_mean_does_not() {
        let mut watch = watch(&[ME]);
        let round = |actions: Vec<Action>| match actions[..] {
            [Action::Publish(round, load)] => (round, load.cores, load.programs, load.every_ms),
            _ => panic!("{actions:?}"),
        };
        assert_eq!(round(measured(&mut watch, 0)), (1, 4, 3, 100));
        assert_eq!(round(measured(&mut watch, 100)), (2, 4, 3, 100));
        let looked = format!("{:?}", watch.meter);
        watch.start_incarnation(Incarnation::new(1, 2), &mut vec![]);
        assert_eq!(format!("{:?}", watch.meter), looked);
        assert_eq!(round(measured(&mut watch, 200)), (1, 4, 3, 100));
    }

    #[test]
    fn a_board_that_does_not_change_is_no_news() {
        let mut watch = watch(&[ME, PEER]);
        hear(&mut watch, PEER, Message::Key(key(PEER)));
        let mut read = |round, load, ms| {
            wants_all(&mut watch, ms);
            read(&mut watch, Some(Answer::Load(round, busy(load))), ms);
            let is_shown = !actions(|out| watch.flush(at(ms), out)).is_empty();
            (watch.seen().pop().unwrap(), is_shown)
        };
        let (first, is_shown) = read(4, 7, 0);
        assert!(first.is_fresh(at(1000)) && is_shown);
        let (stopped, is_shown) = read(4, 7, 1000);
        assert!(!stopped.is_fresh(at(1001)) && !is_shown, "its node was stopped: {stopped:?}");
        let (goes_on, is_shown) = read(5, 8, 1100);
        assert!(goes_on.is_fresh(at(2100)) && goes_on.load == busy(8) && is_shown);
        let slow = Seen { load: Load { every_ms: 5000, ..busy(1) }, ..goes_on };
        assert!(slow.is_fresh(at(16_100)) && !slow.is_fresh(at(16_101)));
    }

    #[test]
    fn a_member_that_stays_is_known_and_its_next_incarnation_is_not() {
        let mut watch = watch(&[ME, PEER]);
        hear(&mut watch, PEER, Message::Key(key(PEER)));
        wants_all(&mut watch, 0);
        read(&mut watch, Some(Answer::Load(1, busy(3))), 0);
        measured(&mut watch, 0);
        let seen = watch.seen();
        assert_eq!(
            seen.iter().map(|seen| (seen.is_own, seen.load.busy_milli)).collect::<Vec<_>>(),
            [(true, 0), (false, 3)]
        );
        assert_eq!((seen[1].name.as_str(), seen[1].host), ("n2", Some([10, 0, 0, 2].into())));
        enter(&mut watch, 2, &[ME, PEER]);
        assert_eq!(actions(|out| watch.flush(at(0), out)), [Action::Show(seen.clone())]);
        let again = Incarnation::new(2, 2);
        assert_eq!(enter(&mut watch, 3, &[ME, again]), []);
        assert_eq!(watch.seen(), seen[..1]);
        watch.connected(again, at(0), &mut vec![]);
        assert_eq!(wants_all(&mut watch, 1), [ask(again)]);
    }
}
