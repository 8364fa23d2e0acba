//! What two members of a view say to each other: numbered each way, kept until acknowledged, sent again, and handled
//! once and in order (rules F5, L4).
//!
//! The fabric may lose messages and repeat them. The machines of a lock need each exactly once: a lost grant would
//! leave the lock with no holder for ever.

use std::collections::VecDeque;
use std::time::Duration;

use verbena_terms::Time;

/// After this long without an answer everything that was not heard is said again; then after twice as long, and so on.
const REPEAT_AFTER: Duration = Duration::from_millis(20);
/// But not less often than this.
const REPEAT_AT_LEAST: Duration = Duration::from_millis(160);
/// Messages in flight to one member, at most. An acknowledgement makes room for more.
const WINDOW: usize = 1024;
/// So long an acknowledgement waits for something to say with it.
const ACKNOWLEDGE_AFTER: Duration = Duration::from_millis(5);

/// One member's stream with one other, both ways, in one view.
#[derive(Clone, Debug)]
pub(crate) struct Stream<T> {
    /// Number of the last message that the other has acknowledged.
    heard_there: u64,
    /// What it has not, or has not said that it has.
    queue: VecDeque<T>,
    /// Of these, how many were never sent.
    unsent: usize,
    /// When all that waits was said, or the other was last heard to have heard something.
    since: Time,
    /// How long after that it is said again.
    patience: Duration,
    /// Number of the last message received here.
    heard_here: u64,
    /// Since when the other waits for the acknowledgement.
    owed_since: Option<Time>,
}

/// What goes to the other at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run<T> {
    /// Number of the first message; of the next one if the run is empty.
    pub first: u64,
    /// Without gaps.
    pub messages: Vec<T>,
    /// Number of the last message received by the sender of the run.
    pub heard: u64,
}

impl<T> Default for Stream<T> {
    fn default() -> Self {
        Stream {
            heard_there: 0,
            queue: VecDeque::new(),
            unsent: 0,
            since: Time::ZERO,
            patience: REPEAT_AFTER,
            heard_here: 0,
            owed_since: None,
        }
    }
}

impl<T: Clone> Stream<T> {
    /// Something is to be said.
    pub fn push(&mut self, member_message: T) {
        self.queue.push_back(member_message);
        self.unsent += 1;
    }

    /// What was said until now was lost: it counts as if it had not been.
    pub fn repeat(&mut self) {
        (self.unsent, self.patience) = (self.queue.len(), REPEAT_AFTER);
    }

    /// A run from the other member. Returns its new messages: an empty list if earlier messages are missing.
    pub fn heard(&mut self, run: Run<T>, now: Time) -> impl Iterator<Item = T> + use<T> {
        let sent = self.heard_there + (self.queue.len() - self.unsent) as u64;
        // A number that was never sent cannot have been received: such an acknowledgement is ignored.
        if run.heard > self.heard_there && run.heard <= sent {
            self.queue.drain(..(run.heard - self.heard_there) as usize);
            self.heard_there = run.heard;
            (self.since, self.patience) = (now, REPEAT_AFTER);
        }
        if !run.messages.is_empty() {
            self.owed_since.get_or_insert(now);
        }
        let known = (self.heard_here + 1).saturating_sub(run.first);
        let is_next = run.first <= self.heard_here + 1;
        let skipped = if is_next { (known as usize).min(run.messages.len()) } else { run.messages.len() };
        self.heard_here += (run.messages.len() - skipped) as u64;
        run.messages.into_iter().skip(skipped)
    }

    /// What is to be sent now, in runs of at most `bytes` as `size` counts them. A run has at least one message.
    pub fn due(&mut self, now: Time, bytes: usize, size: impl Fn(&T) -> usize) -> Vec<Run<T>> {
        let sent = self.queue.len() - self.unsent;
        let is_late = sent > 0 && now >= self.since + self.patience;
        let (from, end) = (if is_late { 0 } else { sent }, self.queue.len().min(WINDOW));
        let is_owed = self.owed_since.is_some_and(|since| now >= since + ACKNOWLEDGE_AFTER);
        if from == end && !is_owed {
            return vec![];
        }
        if from == 0 {
            self.since = now;
        }
        if is_late {
            self.patience = (2 * self.patience).min(REPEAT_AT_LEAST);
        }
        (self.unsent, self.owed_since) = (self.queue.len() - end, None);
        let run =
            |first: usize| Run { first: self.heard_there + 1 + first as u64, messages: vec![], heard: self.heard_here };
        let (mut runs, mut room) = (vec![run(from)], bytes);
        for (at, member_message) in self.queue.iter().enumerate().take(end).skip(from) {
            let size = size(member_message);
            if size > room && runs.last().is_some_and(|run| !run.messages.is_empty()) {
                runs.push(run(at));
                room = bytes;
            }
            room = room.saturating_sub(size);
            if let Some(run) = runs.last_mut() {
                run.messages.push(member_message.clone());
            }
        }
        runs
    }

    /// When there is something to be sent; [`Time::ZERO`] if at once.
    pub fn next_deadline(&self) -> Option<Time> {
        let sent = self.queue.len() - self.unsent;
        if sent < self.queue.len().min(WINDOW) {
            return Some(Time::ZERO);
        }
        let repeat = (!self.queue.is_empty()).then(|| self.since + self.patience);
        let acknowledge = self.owed_since.map(|since| since + ACKNOWLEDGE_AFTER);
        repeat.into_iter().chain(acknowledge).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn heard(stream: &mut Stream<u32>, run: &Run<u32>, now: Time) -> Vec<u32> {
        stream.heard(run.clone(), now).collect()
    }

    #[test]
    fn an_answer_carries_the_acknowledgement_and_nothing_else_is_sent() {
        let (mut me, mut you) = (Stream::default(), Stream::default());
        me.push(7);
        let said = me.due(at(0), 100, |_| 1);
        assert_eq!(heard(&mut you, &said[0], at(1)), [7]);
        assert_eq!(you.due(at(2), 100, |_| 1), []);
        you.push(8);
        let answer = you.due(at(3), 100, |_| 1);
        assert_eq!(heard(&mut me, &answer[0], at(3)), [8]);
        assert_eq!(me.due(at(8), 100, |_| 1), [Run { first: 2, messages: vec![], heard: 1 }]);
        assert_eq!((me.next_deadline(), you.next_deadline()), (None, Some(at(23))));
    }

    #[test]
    fn what_is_lost_is_said_again_however_much_is_said_after_it() {
        let mut me = Stream::default();
        me.push(1);
        me.due(at(0), 100, |_| 1);
        me.push(2);
        assert_eq!(me.due(at(15), 100, |_| 1)[0].messages, [2]);
        assert_eq!(me.next_deadline(), Some(at(20)));
        assert_eq!(me.due(at(20), 100, |_| 1)[0].messages, [1, 2]);
        let until_again: Vec<u64> = (0..5)
            .map(|_| {
                let again = me.next_deadline().unwrap();
                me.due(again, 100, |_| 1);
                again.since(Time::ZERO).as_millis() as u64
            })
            .collect();
        assert_eq!(until_again, [60, 140, 300, 460, 620]);
    }

    #[test]
    fn no_more_is_on_its_way_than_a_window_and_what_is_heard_makes_room() {
        let (mut me, mut you) = (Stream::default(), Stream::default());
        let all = 2 * WINDOW as u32 + 7;
        (1..=all).for_each(|member_message| me.push(member_message));
        let first = me.due(at(0), usize::MAX, |_| 1);
        assert_eq!(first[0].messages.len(), WINDOW);
        assert_eq!((me.next_deadline(), me.due(at(1), usize::MAX, |_| 1)), (Some(at(20)), vec![]));
        assert_eq!(me.due(at(20), usize::MAX, |_| 1), first);
        let mut got = heard(&mut you, &first[0], at(20));
        for round in 1..=2 {
            let now = at(20 + 5 * round);
            heard(&mut me, &you.due(now, usize::MAX, |_| 1)[0], now);
            assert_eq!(me.next_deadline(), Some(Time::ZERO));
            got.extend(heard(&mut you, &me.due(now, usize::MAX, |_| 1)[0], now));
        }
        assert_eq!(got, (1..=all).collect::<Vec<_>>());
    }

    #[test]
    fn runs_have_their_size_and_at_least_one_letter() {
        let mut me = Stream::default();
        (1..=5).for_each(|member_message| me.push(member_message));
        let runs = me.due(at(0), 7, |member_message| 2 * *member_message as usize);
        let messages: Vec<(u64, &[u32])> = runs.iter().map(|run| (run.first, &run.messages[..])).collect();
        assert_eq!(messages, [(1, &[1, 2][..]), (3, &[3][..]), (4, &[4][..]), (5, &[5][..])]);
    }

    #[test]
    fn who_claims_to_have_heard_what_was_not_said_is_not_believed() {
        let mut me = Stream::default();
        me.push(1);
        me.due(at(0), 100, |_| 1);
        me.push(2);
        heard(&mut me, &Run { first: 1, messages: vec![], heard: 2 }, at(1));
        assert_eq!(me.due(at(20), 100, |_| 1)[0].messages, [1, 2]);
        heard(&mut me, &Run { first: u64::MAX, messages: vec![9], heard: u64::MAX }, at(21));
        assert_eq!(me.due(at(60), 100, |_| 1)[0].messages, [1, 2]);
    }

    proptest! {
        /// Each message is handled once and in order, whatever is lost, repeated or late.
        #[test]
        fn letters_arrive_once_and_in_order(chances in proptest::collection::vec(0..6u8, 200)) {
            let mut ends = [Stream::default(), Stream::default()];
            let (mut said, mut got) = ([0; 2], [0; 2]);
            let mut wire: Vec<(usize, Run<u32>)> = vec![];
            for (step, chance) in chances.iter().enumerate() {
                let (now, who) = (at(3 * step as u64), step % 2);
                match chance {
                    0 | 1 => {
                        said[who] += 1;
                        ends[who].push(said[who]);
                    }
                    2 if !wire.is_empty() => drop(wire.remove(step % wire.len())),
                    3 if !wire.is_empty() => {
                        let (to, run) = wire[step % wire.len()].clone();
                        for member_message in ends[to].heard(run, now) {
                            got[to] += 1;
                            prop_assert_eq!(member_message, got[to]);
                        }
                    }
                    _ => {}
                }
                wire.extend(ends[who].due(now, 4, |_| 1).into_iter().map(|run| (1 - who, run)));
            }
            for round in 0..100 {
                let (now, who) = (at(1000 + 45 * round), round as usize % 2);
                for run in ends[who].due(now, 4, |_| 1) {
                    for member_message in ends[1 - who].heard(run, now) {
                        got[1 - who] += 1;
                        prop_assert_eq!(member_message, got[1 - who]);
                    }
                }
            }
            prop_assert_eq!([got[1], got[0]], said);
            prop_assert!(ends.iter().all(|end| end.next_deadline().is_none()));
        }
    }
}
