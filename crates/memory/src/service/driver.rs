//! The driver of a node's memory: what the node does with the machine's actions beside the fabric.

use std::collections::VecDeque;
use std::sync::Arc;

use verbena_cluster::{Lease, View};
use verbena_fabric::{Message, Port, RegionKey};
use verbena_service::driver::{self, Host, Machine};
use verbena_service::endpoint::{Endpoint, Ports};
use verbena_terms::{Clock, Incarnation, Time, ViewNumber};

use super::Metrics;
use super::batches::SegmentPost;
use super::own::Own;
use super::region::OwnRegion;
use crate::wire::{Frame, FrameError};
use crate::{Action, Answer, Memory, MemoryOptions, Outcome, PostId, RequestId, Standing};

/// The driver of a node's memory.
pub(super) type Running = driver::Driver<Memory, MemoryHost>;

/// What the node does with the actions of [`Memory`].
pub(super) struct MemoryHost {
    region: OwnRegion,
    answers: Vec<(RequestId, Answer)>,
    metrics: Metrics,
    own: Arc<Own>,
    /// The node's share has changed since its metrics were set.
    has_changed: bool,
}

/// A driver between two incarnations.
pub(super) fn new(options: MemoryOptions, clock: Arc<dyn Clock>, metrics: Metrics, own: Arc<Own>) -> Running {
    let host = MemoryHost { region: OwnRegion::default(), answers: vec![], metrics, own, has_changed: true };
    driver::Driver::new(Memory::new(options), host, clock)
}

impl MemoryHost {
    /// What became of requests since the last call.
    pub(super) fn answers(&mut self) -> Vec<(RequestId, Answer)> {
        std::mem::take(&mut self.answers)
    }

    #[cfg(feature = "testing")]
    pub(super) fn region(&self) -> &OwnRegion {
        &self.region
    }
}

impl Host<Memory> for MemoryHost {
    /// Messages about memory.
    const PORTS: Ports = Ports::of_view(Port(19));

    fn act(
        &mut self,
        action: Action,
        memory: &mut Memory,
        endpoint: Option<&mut Endpoint<SegmentPost>>,
        now: Time,
        more: &mut VecDeque<Action>,
    ) {
        match (action, endpoint) {
            (Action::Answer(id, answer), _) => self.answers.push((id, answer)),
            (Action::Renew(renewal), Some(endpoint)) => {
                let view = memory.view_number();
                let made = self.region.renew(&renewal, view, endpoint.fabric()).inspect_err(|error| {
                    tracing::error!(%error, "there is no memory for segments (memory.share): this home serves none");
                });
                if made.is_ok() {
                    self.own.set(self.region.readable().map(|memory| (view, memory)));
                }
                let mut actions = vec![];
                memory.renewed(made.ok(), &mut actions);
                self.own.say_forgets(memory.forgets());
                more.extend(actions);
            }
            (Action::Post(post, until), Some(endpoint)) => {
                self.metrics.batches.increment();
                let post = SegmentPost::new(post, until, endpoint.fabric());
                endpoint.submit(post, now);
            }
            (Action::Send(frame), Some(endpoint)) => {
                if endpoint.send(frame.to, frame.view, || frame.encode()) {
                    self.metrics.frames.increment();
                }
            }
            (Action::Store { at, word }, Some(_)) => {
                self.region.store(at, word);
                self.has_changed = true;
            }
            (Action::Open(key), Some(endpoint)) => endpoint.learn(key, now),
            (Action::Discard { at, bytes }, Some(_)) => self.region.discard(at, bytes),
            (Action::Note(note), _) => {
                self.has_changed = true;
                self.metrics.note(&note);
            }
            // Between two incarnations there is no member to hear it.
            (_, None) => {}
        }
    }

    /// Programs that read values in place must know of it before anything else is done.
    fn before_actions(&mut self, memory: &Memory) {
        self.own.say_forgets(memory.forgets());
    }

    /// Its own memory stays as it is until the view is in effect.
    fn enter_view(&mut self, _: &Memory, _: &View, _: &Endpoint<SegmentPost>) -> Option<RegionKey> {
        self.has_changed = true;
        None
    }

    fn end_incarnation(&mut self) {
        self.own.set(None);
        (self.region, self.has_changed) = (OwnRegion::default(), true);
    }

    fn message_dropped(&mut self) {
        self.metrics.unusable.increment();
    }

    /// Sets the metrics of its copies and of what is in flight, and of the node's share, if that has changed.
    fn idle(&mut self, memory: &Memory) {
        let gauges = &self.metrics;
        gauges.copies.set(memory.copied_bytes() as i64);
        gauges.under_way.set(memory.under_way() as i64);
        if !std::mem::take(&mut self.has_changed) {
            return;
        }
        let Standing { segments, share, free, largest, offered, going, .. } = memory.standing();
        let values = [segments as u64, share, free, largest, offered, going];
        let all = [&gauges.segments, &gauges.share, &gauges.free, &gauges.largest, &gauges.offered, &gauges.going];
        all.into_iter().zip(values).for_each(|(gauge, value)| gauge.set(value as i64));
    }
}

impl Machine for Memory {
    type Action = Action;
    type Frame = Frame;
    type Batch = SegmentPost;

    fn start_incarnation(&mut self, me: Incarnation, out: &mut Vec<Action>) {
        Memory::start_incarnation(self, me, out);
    }

    fn lease(&mut self, lease: Lease, now: Time, out: &mut Vec<Action>) {
        Memory::lease(self, lease, now, out);
    }

    fn view(&mut self, view: &Arc<View>, _: Option<RegionKey>, now: Time, out: &mut Vec<Action>) {
        Memory::view(self, view, now, out);
    }

    fn frame(&mut self, frame: Frame, now: Time, out: &mut Vec<Action>) {
        self.heard(frame, now, out);
    }

    fn completed(&mut self, id: PostId, outcome: Outcome, now: Time, out: &mut Vec<Action>) {
        Memory::completed(self, id, outcome, now, out);
    }

    fn tick(&mut self, now: Time, out: &mut Vec<Action>) {
        Memory::tick(self, now, out);
    }

    fn next_deadline(&self) -> Option<Time> {
        Memory::next_deadline(self)
    }
}

impl driver::Frame for Frame {
    type Error = FrameError;

    fn decode(message: &Message) -> Result<Frame, FrameError> {
        Frame::decode(&message.body)
    }

    fn sender(&self) -> Incarnation {
        self.from
    }

    fn view(&self) -> Option<ViewNumber> {
        Some(self.view)
    }
}
