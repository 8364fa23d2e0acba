//! Gives the machine what arrives, and does what it says, in turns. It never waits; who gives it its turns does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use verbena_cluster::{Lease, LeaseWord, View};
use verbena_fabric::{Fabric, Inbox, Message};
use verbena_service::executor::{self, Driver as _};
use verbena_service::peers::{OpenResult, OpenTask};
use verbena_terms::{Clock, Complaints, Incarnation, Time};

use super::Metrics;
use super::own::Own;
use super::own_region::OwnRegion;
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
    pub(super) own_region: Option<OwnRegion>,
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
        Driver {
            clock,
            lease: None,
            memory,
            own_region: None,
            answers: vec![],
            complaints,
            metrics,
            own,
            has_changed: true,
        }
    }

    pub(super) fn life_begins(
        &mut self,
        fabric: Arc<dyn Fabric>,
        lease: &Arc<LeaseWord>,
    ) -> verbena_fabric::Result<()> {
        self.lease = Some(lease.clone());
        let own = OwnRegion::start(fabric, self.metrics.clone())?;
        self.act(|memory, out| memory.life_begins(own.endpoint.me(), out));
        self.own_region = Some(own);
        Ok(())
    }

    /// Drops all that belongs to the life, the fabric and its regions too.
    pub(super) fn life_ends(&mut self) {
        self.act(|memory, out| memory.life_begins(Incarnation::default(), out));
        self.own.set(None);
        (self.own_region, self.has_changed) = (None, true);
    }

    /// When this returns it has ended what it did in older views.
    pub(super) fn view(&mut self, view: &Arc<View>) {
        self.has_changed = true;
        self.check_lease();
        let Some(own) = &mut self.own_region else { return };
        let now = self.clock.now();
        // Its own memory stays as it is until the view is in effect.
        own.endpoint.enter_view(view, now);
        self.act(|memory, out| memory.view(view, now, out));
        self.advance();
    }

    pub(super) fn request(&mut self, id: RequestId, wish: Wish, patience: Duration) {
        self.check_lease();
        let now = self.clock.now();
        self.act(|memory, out| memory.request(id, wish, now + patience, now, out));
        self.advance();
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
            match (action, &mut self.own_region) {
                (Action::Answer(id, answer), _) => self.answers.push((id, answer)),
                (Action::Renew(renewal), Some(own)) => {
                    let view = self.memory.view_number();
                    let made = own.renew(&renewal, view).inspect_err(|error| {
                        tracing::error!(%error, "there is no memory for segments: this home serves none");
                    });
                    let mut more = vec![];
                    if made.is_ok() {
                        self.own.set(own.readable().map(|memory| (view, memory)));
                    }
                    self.memory.renewed(made.ok(), &mut more);
                    self.own.say_forgets(self.memory.forgets());
                    actions.extend(more);
                }
                (Action::Post(post, until), Some(own)) => own.post(post, until, now),
                (Action::Send(frame), Some(own)) => own.send(&frame),
                (Action::Store { at, word }, Some(own)) => {
                    own.store(at, word);
                    self.has_changed = true;
                }
                (Action::Open(key), Some(own)) => own.endpoint.learn(key, now),
                (Action::Discard { at, bytes }, Some(own)) => own.discard(at, bytes),
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

impl executor::Driver for Driver {
    /// Values are copied, and memory is made and given back.
    fn may_be_slow(&self) -> bool {
        true
    }

    fn check_lease(&mut self) {
        let lease = self.lease.as_ref().map_or(Lease::NONE, |lease| lease.load());
        let now = self.clock.now();
        self.act(|memory, out| memory.lease(lease, now, out));
    }

    fn message(&mut self, message: &Message) {
        match Frame::decode(&message.body) {
            Ok(frame) if frame.from == message.from && frame.view == message.view => {
                let now = self.clock.now();
                self.act(|memory, out| memory.heard(frame, now, out));
            }
            Ok(frame) => self.complain(message.from, &format_args!("a frame of {} in {}", frame.from, frame.view)),
            Err(error) => self.complain(message.from, &error),
        }
    }

    fn advance(&mut self) {
        let now = self.clock.now();
        self.act(|memory, out| memory.tick(now, out));
        while let Some(own) = &mut self.own_region {
            let ended = own.endpoint.poll(self.clock.now());
            if ended.is_empty() {
                break;
            }
            // What came counts if the lease holds after it came (rule C5).
            self.check_lease();
            let now = self.clock.now();
            for (id, outcome) in ended {
                self.act(|memory, out| memory.completed(id, outcome, now, out));
            }
        }
    }

    fn has_batches(&self) -> bool {
        self.own_region.as_ref().is_some_and(|own| own.endpoint.has_batches())
    }

    fn poll_completed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.own_region.as_mut().map_or(Poll::Pending, |own| own.endpoint.poll_completed(context))
    }

    fn inbox(&mut self) -> Option<&mut Inbox> {
        self.own_region.as_mut().map(|own| own.endpoint.inbox())
    }

    fn open_tasks(&mut self) -> Vec<OpenTask> {
        let now = self.clock.now();
        self.own_region.as_mut().map(|own| own.endpoint.open_tasks(now)).unwrap_or_default()
    }

    fn opened(&mut self, result: OpenResult) {
        let now = self.clock.now();
        if let Some(own) = &mut self.own_region {
            own.endpoint.opened(result, now);
        }
        self.advance();
    }

    fn next_deadline(&self) -> Time {
        let batches = self.own_region.as_ref().and_then(|own| own.endpoint.next_deadline());
        let next = [batches, self.memory.next_deadline()].into_iter().flatten().min();
        next.unwrap_or(Time::FAR).min(self.clock.now() + IDLE)
    }
}
