//! Which way the messages to one target go in one class, decided without input or output.
//!
//! ```text
//!            a message             connected              counted
//!   Apart ---------------> Asking ------------> Turning ------------> Open
//!     ^   after a rest       |  refused            |  no answer         |  lost, stands still
//!     +----------------------+---------------------+--------------------+
//! ```
//!
//! *Order.* Before a connection is used the target is asked, by the channel that messages took until then, where it counts what it takes; it hears that behind all of
//! them. Messages wait meanwhile, so none by the adapter overtakes one by the channel.
//!
//! *Credit.* The target says how many may be sent that it has not taken, and counts in its memory those that it has. The adapter reads that count where half of the
//! credit is used. So the receive queue of a target that is stopped takes what it has promised and no more, and what is read tells nothing new: messages wait, and
//! then there is no room. The adapter need not be told to wait unless a target has promised more than it has.
//!
//! *Order of completions.* One stands for all before it. That is not so on soft-iWARP, where a message is complete when it is sent, and overtakes a reading that
//! is still to be answered; there nothing is sent meanwhile.
//!
//! *Loss.* What was under way when a connection ended has come or never will; nothing is sent twice. What waited goes by the channel.

use std::collections::VecDeque;
use std::time::Duration;

use verbena_terms::Time;

use crate::error::{Error, Result};

/// Messages to one target in one class that can wait.
const MOST_WAITING: usize = 1024;
/// How long a connection is asked for: longer than the manager may take to make one.
const ASKING: Duration = Duration::from_secs(5);
/// How long messages wait for a target to say where it counts.
const TURNING: Duration = Duration::from_millis(500);
/// After so long without a completion a connection has failed without a word.
const STALLED: Duration = Duration::from_secs(3);
/// Rest after a connection that was refused or lost, doubled with each up to the second; after one that was of use it begins with the third.
const SHORTEST_REST: Duration = Duration::from_millis(100);
const LONGEST_REST: Duration = Duration::from_secs(60);
const REST_AFTER_USE: Duration = Duration::from_millis(500);
/// From a count that tells nothing new to the next reading, doubled with each.
const SHORTEST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The messages to one target, each a `P`.
pub(super) struct Sends<P> {
    state: State,
    waiting: VecDeque<P>,
    /// By number of the work request, ascending; a reading of the count is none.
    under_way: VecDeque<(u64, Option<P>)>,
    /// Number of the next work request on this connection.
    next: u64,
    credit: Credit,
    /// Whether messages go while the count is read.
    goes_on: bool,
    rest: Duration,
    /// When something completed last, or was posted where nothing was under way.
    moved: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is no connection; before this time none is asked for.
    Apart(Time),
    /// One is asked for, until then.
    Asking(Time),
    /// The target is asked where it counts, until then.
    Turning(Time),
    Open,
    Closed,
}

/// What may be sent on a connection.
#[derive(Default)]
struct Credit {
    window: u64,
    sent: u64,
    /// As the target has counted, when that was read last.
    taken: u64,
    /// What was sent when it was read last.
    sent_then: u64,
    is_reading: bool,
    again: Time,
    pause: Duration,
}

/// By what a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Channel,
    Adapter,
}

/// What a connection leaves that has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Left<P> {
    /// To go by the channel, in this order.
    pub(super) waited: VecDeque<P>,
    /// What was under way: the adapter may still reach it.
    pub(super) retired: Vec<P>,
}

impl<P> Sends<P> {
    /// `goes_on` where a completion stands for all requests before it, whatever they are.
    pub(super) fn new(goes_on: bool) -> Self {
        Sends {
            state: State::Apart(Time::ZERO),
            waiting: VecDeque::new(),
            under_way: VecDeque::new(),
            next: 0,
            credit: Credit::default(),
            goes_on,
            rest: SHORTEST_REST,
            moved: Time::ZERO,
        }
    }

    /// By what the next message goes.
    ///
    /// # Errors
    /// [`Error::Full`] where too many wait, [`Error::Closed`].
    pub(super) fn way(&mut self, now: Time) -> Result<Way> {
        match self.state {
            State::Closed => Err(Error::Closed),
            State::Apart(until) => {
                if now >= until {
                    self.state = State::Asking(now + ASKING);
                }
                Ok(Way::Channel)
            }
            State::Asking(_) => Ok(Way::Channel),
            State::Turning(_) | State::Open if self.waiting.len() >= MOST_WAITING => {
                Err(Error::Full { what: "the queue of messages to a node", most: MOST_WAITING })
            }
            State::Turning(_) | State::Open => Ok(Way::Adapter),
        }
    }

    /// Takes a message that goes by the adapter.
    pub(super) fn put(&mut self, message: P) {
        self.waiting.push_back(message);
    }

    pub(super) fn is_asking(&self) -> bool {
        matches!(self.state, State::Asking(_))
    }

    pub(super) fn is_turning(&self) -> bool {
        matches!(self.state, State::Turning(_))
    }

    /// A connection is made; whether it is of use.
    pub(super) fn connected(&mut self, now: Time) -> bool {
        let is_of_use = self.is_asking();
        if is_of_use {
            self.state = State::Turning(now + TURNING);
        }
        is_of_use
    }

    /// No connection is made.
    pub(super) fn refused(&mut self, now: Time) {
        if self.is_asking() {
            self.part(now);
        }
    }

    /// The target has said where it counts, and how many may be under way that it has not taken.
    pub(super) fn counted(&mut self, window: u64) {
        if self.is_turning() {
            self.state = State::Open;
            self.next = 0;
            self.credit = Credit { window, ..Credit::default() };
        }
    }

    /// Has as many be under way as may; how many more there are.
    pub(super) fn begin(&mut self, now: Time) -> usize {
        if self.state != State::Open || (self.credit.is_reading && !self.goes_on) {
            return 0;
        }
        let room = self.credit.window.saturating_sub(self.credit.sent - self.credit.taken);
        let more = self.waiting.len().min(room as usize);
        for message in self.waiting.drain(..more) {
            if self.under_way.is_empty() {
                self.moved = now;
            }
            self.under_way.push_back((self.next, Some(message)));
            self.next += 1;
        }
        self.credit.sent += more as u64;
        more
    }

    /// The last so many that are under way, with their numbers.
    pub(super) fn newest(&self, count: usize) -> impl Iterator<Item = (u64, &P)> {
        let newest = self.under_way.range(self.under_way.len() - count..);
        newest.filter_map(|(number, message)| Some((*number, message.as_ref()?)))
    }

    /// By which number the count is to be read now, if it is: that is under way then.
    pub(super) fn read(&mut self, now: Time) -> Option<u64> {
        let credit = &mut self.credit;
        let is_half = credit.sent - credit.taken >= credit.window.div_ceil(2);
        let is_news = credit.sent > credit.sent_then || !self.waiting.is_empty();
        if self.state != State::Open || credit.is_reading || !is_half || !is_news || now < credit.again {
            return None;
        }
        (credit.is_reading, credit.sent_then) = (true, credit.sent);
        if self.under_way.is_empty() {
            self.moved = now;
        }
        let number = self.next;
        self.under_way.push_back((number, None));
        self.next += 1;
        Some(number)
    }

    /// All requests up to this number are complete; `word` is what the one of a number has read. Whether that can be: if not, the connection is to be ended.
    pub(super) fn completed(&mut self, now: Time, last: u64, word: impl Fn(u64) -> u64) -> bool {
        self.moved = now;
        while let Some((number, message)) = self.under_way.pop_front_if(|(number, _)| *number <= last) {
            if message.is_some() {
                continue;
            }
            let (credit, taken) = (&mut self.credit, word(number));
            credit.is_reading = false;
            if taken < credit.taken || taken > credit.sent {
                return false;
            }
            if taken > credit.taken {
                self.rest = REST_AFTER_USE;
                (credit.taken, credit.again, credit.pause) = (taken, now, Duration::ZERO);
            } else {
                credit.pause = (credit.pause * 2).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
                credit.again = now + credit.pause;
            }
        }
        true
    }

    /// Whether the connection that is there or asked for is to be given up.
    pub(super) fn is_over(&self, now: Time) -> bool {
        match self.state {
            State::Asking(until) | State::Turning(until) => now >= until,
            State::Open => !self.under_way.is_empty() && now.since(self.moved) >= STALLED,
            State::Apart(_) | State::Closed => false,
        }
    }

    /// There is no connection any more, nor is one being made.
    pub(super) fn lost(&mut self, now: Time) -> Left<P> {
        if self.state != State::Closed {
            self.part(now);
        }
        let retired = self.under_way.drain(..).filter_map(|(_, message)| message).collect();
        Left { waited: std::mem::take(&mut self.waiting), retired }
    }

    /// The fabric is closed.
    pub(super) fn close(&mut self) -> Left<P> {
        self.state = State::Closed;
        self.lost(Time::ZERO)
    }

    /// When to look again, at the latest; `None` where nothing is waited for.
    pub(super) fn due(&self) -> Option<Time> {
        match self.state {
            State::Asking(until) | State::Turning(until) => Some(until),
            State::Open => {
                let stalls = (!self.under_way.is_empty()).then(|| self.moved + STALLED);
                let reads = (!self.waiting.is_empty() && !self.credit.is_reading).then_some(self.credit.again);
                stalls.into_iter().chain(reads).min()
            }
            State::Apart(_) | State::Closed => None,
        }
    }

    fn part(&mut self, now: Time) {
        self.state = State::Apart(now + self.rest);
        self.rest = (self.rest * 2).min(LONGEST_REST);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    const NOW: Time = Time::from_nanos(1 << 40);
    const WINDOW: u64 = 4;

    fn open() -> Sends<u32> {
        let mut sends = Sends::new(true);
        assert_eq!(sends.way(NOW), Ok(Way::Channel));
        assert!(sends.is_asking() && sends.connected(NOW) && sends.is_turning());
        sends.counted(WINDOW);
        sends
    }

    fn put(sends: &mut Sends<u32>, messages: std::ops::Range<u32>) {
        for message in messages {
            assert_eq!(sends.way(NOW), Ok(Way::Adapter));
            sends.put(message);
        }
    }

    /// Posts what may be; what that is.
    fn post(sends: &mut Sends<u32>) -> Vec<(u64, u32)> {
        let count = sends.begin(NOW);
        sends.newest(count).map(|(number, message)| (number, *message)).collect()
    }

    #[test]
    fn messages_wait_until_what_went_before_has_come() {
        let mut sends = Sends::new(true);
        assert_eq!(sends.way(NOW), Ok(Way::Channel));
        assert_eq!(sends.way(NOW), Ok(Way::Channel), "while a connection is asked for");
        assert!(sends.connected(NOW));
        put(&mut sends, 0..3);
        assert_eq!((post(&mut sends), sends.read(NOW)), (vec![], None));
        sends.counted(WINDOW);
        assert_eq!(post(&mut sends), [(0, 0), (1, 1), (2, 2)]);
    }

    #[test]
    fn no_more_is_under_way_than_the_target_has_taken_and_promised() {
        let mut sends = open();
        put(&mut sends, 0..10);
        assert_eq!(post(&mut sends).len(), 4);
        assert_eq!(sends.read(NOW), Some(4));
        assert_eq!(sends.read(NOW), None, "one reading at a time");
        assert!(sends.completed(NOW, 4, |_| 0), "the adapter has delivered them, and nobody has taken one");
        assert!(post(&mut sends).is_empty());
        assert_eq!(sends.due(), Some(NOW + SHORTEST_PAUSE));
        assert_eq!(sends.read(NOW), None, "not without a pause");
        let later = NOW + SHORTEST_PAUSE;
        assert_eq!(sends.read(later), Some(5));
        assert!(sends.completed(later, 5, |_| 3));
        assert_eq!(post(&mut sends), [(6, 4), (7, 5), (8, 6)]);
    }

    #[test]
    fn nothing_is_read_where_less_than_half_is_used_or_nothing_was_sent_since() {
        let mut sends = open();
        put(&mut sends, 0..1);
        assert_eq!((post(&mut sends).len(), sends.read(NOW)), (1, None));
        put(&mut sends, 1..2);
        assert_eq!((post(&mut sends).len(), sends.read(NOW)), (1, Some(2)));
        assert!(sends.completed(NOW, 2, |_| 0));
        assert_eq!((sends.read(NOW + LONGEST_PAUSE), sends.due()), (None, None));
    }

    #[test]
    fn nothing_overtakes_a_reading_where_completions_do() {
        for goes_on in [true, false] {
            let mut sends = Sends { goes_on, ..open() };
            put(&mut sends, 0..4);
            assert_eq!((sends.begin(NOW), sends.read(NOW)), (4, Some(4)));
            assert!(sends.completed(NOW, 3, |_| 0));
            put(&mut sends, 4..6);
            assert!(post(&mut sends).is_empty());
            assert!(sends.completed(NOW, 4, |_| 3));
            assert_eq!(post(&mut sends).len(), 2);
            assert_eq!(sends.read(NOW), Some(7));
            assert!(sends.completed(NOW, 6, |_| 0));
            sends.credit.taken = 6;
            put(&mut sends, 6..7);
            assert_eq!(post(&mut sends).len(), usize::from(goes_on));
        }
    }

    #[test]
    fn a_count_that_cannot_be_ends_the_connection() {
        for (first, second) in [(5, 0), (2, 1)] {
            let mut sends = open();
            put(&mut sends, 0..5);
            assert_eq!((post(&mut sends).len(), sends.read(NOW)), (4, Some(4)));
            let is_first_good = sends.completed(NOW, 4, |_| first);
            assert_eq!(is_first_good, first <= 4);
            if is_first_good {
                post(&mut sends);
                let number = sends.read(NOW).unwrap();
                assert!(!sends.completed(NOW, number, |_| second));
            }
        }
    }

    #[test]
    fn what_was_under_way_is_lost_and_what_waited_goes_by_the_channel() {
        let mut sends = open();
        put(&mut sends, 0..6);
        post(&mut sends);
        assert!(sends.completed(NOW, 1, |_| 0));
        let left = sends.lost(NOW);
        assert_eq!((left.retired, Vec::from(left.waited)), (vec![2, 3], vec![4, 5]));
        assert_eq!(sends.way(NOW), Ok(Way::Channel));
        assert!(!sends.is_asking(), "it rests first");
        assert_eq!(sends.way(NOW + SHORTEST_REST), Ok(Way::Channel));
        assert!(sends.is_asking());
    }

    #[test]
    fn rests_grow_until_a_connection_is_of_use() {
        let mut sends = Sends::<u32>::new(true);
        let mut now = NOW;
        for _ in 0..20 {
            sends.way(now).unwrap();
            assert!(sends.is_asking());
            sends.refused(now);
            let State::Apart(until) = sends.state else { panic!("apart") };
            now = until;
        }
        assert_eq!(sends.rest, LONGEST_REST);
        sends.way(now).unwrap();
        assert!(sends.connected(now));
        sends.counted(1);
        put(&mut sends, 0..1);
        assert_eq!((post(&mut sends).len(), sends.read(now)), (1, Some(1)));
        assert!(sends.completed(now, 1, |_| 1));
        sends.lost(now);
        assert_eq!(sends.state, State::Apart(now + REST_AFTER_USE));
    }

    #[test]
    fn what_waits_is_bounded_and_nothing_is_waited_for_without_end() {
        let mut sends = open();
        put(&mut sends, 0..MOST_WAITING as u32);
        assert!(matches!(sends.way(NOW), Err(Error::Full { most: MOST_WAITING, .. })));
        post(&mut sends);
        assert_eq!(sends.way(NOW), Ok(Way::Adapter));
        assert!(!sends.is_over(NOW) && sends.is_over(NOW + STALLED));

        let mut sends = Sends::<u32>::new(true);
        sends.way(NOW).unwrap();
        assert!(!sends.is_over(NOW) && sends.is_over(NOW + ASKING) && sends.due() == Some(NOW + ASKING));
        assert!(sends.connected(NOW) && sends.due() == Some(NOW + TURNING) && sends.is_over(NOW + TURNING));
        sends.lost(NOW);
        assert!(!sends.connected(NOW), "too late");
        sends.counted(WINDOW);
        assert_eq!(sends.due(), None);
        sends.close();
        assert_eq!(sends.way(NOW), Err(Error::Closed));
    }
}
