//! Gives the machine what arrives, and does what it says, in turns. It never waits; who gives it its turns does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use verbena_cluster::{Lease, LeaseWord, View};
use verbena_fabric::contacts::{Opened, Opening};
use verbena_fabric::desk::{self, Driver as _};
use verbena_fabric::{Fabric, Inbox, Message as Arrived};
use verbena_terms::{Clock, Complaints, Incarnation, Time};

use super::Metrics;
use super::life::Life;
use super::own::Own;
use crate::wire::Frame;
use crate::{Action, Answer, Memory, MemoryOptions, RequestId, Standing, Wish};

/// The longest between two turns: that a view is in effect must not be seen late.
const IDLE: Duration = Duration::from_millis(20);

/// The part of a node that acts.
pub(super) struct Driver {
    clock: Arc<dyn Clock>,
    pub(super) lease: Option<Arc<LeaseWord>>,
    memory: Memory,
    /// Between two lives there is none.
    pub(super) life: Option<Life>,
    answers: Vec<(RequestId, Answer)>,
    complaints: Complaints,
    metrics: Metrics,
    own: Arc<Own>,
    /// Something of its share is otherwise than was said last.
    has_changed: bool,
}

impl Driver {
    pub(super) fn new(options: MemoryOptions, clock: Arc<dyn Clock>, metrics: Metrics, own: Arc<Own>) -> Self {
        let (memory, complaints) = (Memory::new(options), Complaints::default());
        Driver { clock, lease: None, memory, life: None, answers: vec![], complaints, metrics, own, has_changed: true }
    }

    pub(super) fn life_begins(
        &mut self,
        fabric: Arc<dyn Fabric>,
        lease: &Arc<LeaseWord>,
    ) -> verbena_fabric::Result<()> {
        self.lease = Some(lease.clone());
        let life = Life::begin(fabric, self.metrics.clone())?;
        self.act(|memory, out| memory.life_begins(life.me(), out));
        self.life = Some(life);
        Ok(())
    }

    /// Drops all that belongs to the life, the fabric and its regions too.
    pub(super) fn life_ends(&mut self) {
        self.act(|memory, out| memory.life_begins(Incarnation::default(), out));
        self.own.set(None);
        (self.life, self.has_changed) = (None, true);
    }

    /// When this returns it has ended what it did in older views.
    pub(super) fn view(&mut self, view: &Arc<View>) {
        self.has_changed = true;
        self.look_at_lease();
        let Some(life) = &mut self.life else { return };
        let now = self.clock.now();
        life.view(view, now);
        self.act(|memory, out| memory.view(view, now, out));
        self.go_on();
    }

    pub(super) fn request(&mut self, id: RequestId, wish: Wish, patience: Duration) {
        self.look_at_lease();
        let now = self.clock.now();
        self.act(|memory, out| memory.request(id, wish, now + patience, now, out));
        self.go_on();
    }

    pub(super) fn answers(&mut self) -> Vec<(RequestId, Answer)> {
        std::mem::take(&mut self.answers)
    }

    /// Whether anything of this request is on its way, or may be yet.
    pub(super) fn has_request(&self, id: RequestId) -> bool {
        self.memory.has_request(id)
    }

    /// Says how its copies and what is under way stand; and its share, if that has changed.
    pub(super) fn publish(&mut self) {
        let gauges = &self.metrics;
        gauges.copies.set(self.memory.copied_bytes as i64);
        gauges.under_way.set(self.memory.under_way() as i64);
        if !std::mem::take(&mut self.has_changed) {
            return;
        }
        let Standing { segments, share, free, largest, offered, going, .. } = self.memory.standing();
        let values = [segments as u64, share, free, largest, offered, going];
        let all = [&gauges.segments, &gauges.share, &gauges.free, &gauges.largest, &gauges.offered, &gauges.going];
        all.into_iter().zip(values).for_each(|(gauge, value)| gauge.set(value as i64));
    }

    #[cfg(feature = "testing")]
    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// What broke the protocol or could not be read, so far.
    #[cfg(feature = "testing")]
    pub(super) fn complained(&self) -> u64 {
        self.complaints.counted()
    }

    fn complain(&mut self, from: Incarnation, what: &dyn std::fmt::Display) {
        self.metrics.unusable.increment();
        if let Some(number) = self.complaints.another(self.clock.now()) {
            tracing::warn!(%from, number, "dropped {what}");
        }
    }

    fn act(&mut self, event: impl FnOnce(&mut Memory, &mut Vec<Action>)) {
        let mut actions = vec![];
        event(&mut self.memory, &mut actions);
        // Before anybody hears of it.
        self.own.say_forgets(self.memory.forgets());
        let now = self.clock.now();
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            match (action, &mut self.life) {
                (Action::Answer(id, answer), _) => self.answers.push((id, answer)),
                (Action::Renew(renewal), Some(life)) => {
                    let view = self.memory.view_number();
                    let made = life.renew(&renewal, view).inspect_err(|error| {
                        tracing::error!(%error, "there is no memory for segments: this home serves none");
                    });
                    let mut more = vec![];
                    if made.is_ok() {
                        self.own.set(life.readable().map(|memory| (view, memory)));
                    }
                    self.memory.renewed(made.ok(), &mut more);
                    self.own.say_forgets(self.memory.forgets());
                    actions.extend(more);
                }
                (Action::Post(post, until), Some(life)) => life.post(post, until, now),
                (Action::Send(frame), Some(life)) => life.send(&frame),
                (Action::Store { at, word }, Some(life)) => {
                    life.store(at, word);
                    self.has_changed = true;
                }
                (Action::Open(key), Some(life)) => life.contacts.learn(key, now),
                (Action::Discard { at, bytes }, Some(life)) => life.discard(at, bytes),
                (Action::Note(note), _) => {
                    self.has_changed = true;
                    self.metrics.note(&note);
                }
                // Between two lives nobody hears it.
                (_, None) => {}
            }
        }
    }
}

impl desk::Driver for Driver {
    /// Values are copied, and memory is made and given back.
    fn takes_long(&self) -> bool {
        true
    }

    fn look_at_lease(&mut self) {
        let lease = self.lease.as_ref().map_or(Lease::NONE, |lease| lease.load());
        let now = self.clock.now();
        self.act(|memory, out| memory.lease(lease, now, out));
    }

    fn arrived(&mut self, message: &Arrived) {
        match Frame::decode(&message.body) {
            Ok(frame) if frame.from == message.from && frame.view == message.view => {
                let now = self.clock.now();
                self.act(|memory, out| memory.heard(frame, now, out));
            }
            Ok(frame) => self.complain(message.from, &format_args!("a frame of {} in {}", frame.from, frame.view)),
            Err(error) => self.complain(message.from, &error),
        }
    }

    fn go_on(&mut self) {
        let now = self.clock.now();
        self.act(|memory, out| memory.tick(now, out));
        while let Some(life) = &mut self.life {
            let ended = life.look(self.clock.now());
            if ended.is_empty() {
                break;
            }
            // What came counts if the lease holds after it came (rule C5).
            self.look_at_lease();
            let now = self.clock.now();
            for (id, outcome) in ended {
                self.act(|memory, out| memory.completed(id, outcome, now, out));
            }
        }
    }

    fn has_posts(&self) -> bool {
        self.life.as_ref().is_some_and(Life::has_posts)
    }

    fn poll_answered(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.life.as_mut().map_or(Poll::Pending, |life| life.poll_answered(context))
    }

    fn inbox(&mut self) -> Option<&mut Inbox> {
        self.life.as_mut().map(|life| &mut life.inbox)
    }

    fn openings(&mut self) -> Vec<Opening> {
        let now = self.clock.now();
        self.life.as_mut().map(|life| life.contacts.openings(now)).unwrap_or_default()
    }

    fn opened(&mut self, opened: Opened) {
        let now = self.clock.now();
        if let Some(life) = &mut self.life {
            life.contacts.opened(opened, now);
        }
        self.go_on();
    }

    fn next_deadline(&self) -> Time {
        let life = self.life.as_ref().and_then(Life::next_deadline);
        let next = [life, self.memory.next_deadline()].into_iter().flatten().min();
        next.unwrap_or(Time::FAR).min(self.clock.now() + IDLE)
    }
}
