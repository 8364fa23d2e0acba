//! Which logs there are, which of them can be read, and when a relay that has gone is settled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{Lease, Role, View};
use verbena_fabric::RegionKey;
use verbena_service::driver::Machine;
use verbena_terms::{Incarnation, Time, ViewNumber};

use super::header::{Header, ReadHeader};
use crate::layout::Layout;
use crate::wire::{Frame, Message};

/// How long a relay that was asked for its log's key has to answer.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(100);

/// A node's logs of reads: those of the relays of its view, and the relays that have left it.
///
/// One that died, or that the others have given up, may have connections of applications for some time more: it is listed as departed until it is back, or until it has
/// surely stopped passing what it reads. While one is listed no page has a list (rule Q19).
pub(super) struct Logs {
    /// What two nodes compare to know that their names are hashed under one key.
    names: u64,
    /// For so long a relay that has left may pass statements.
    passes_for: Duration,
    me: Incarnation,
    /// Of this node's own log; none where no relay runs here.
    own: Option<RegionKey>,
    view: Option<Arc<View>>,
    relays: BTreeMap<Incarnation, Stage>,
    departed: BTreeMap<Incarnation, Departed>,
}

/// How far a relay's log is.
enum Stage {
    /// Its key is asked for, again at this time.
    Asked(Time),
    /// Its region is opened, and its header read.
    Opening(RegionKey),
    Open(Layout),
}

/// A relay that has left the cluster.
struct Departed {
    /// From then on it passes nothing.
    at: Time,
    is_settled: bool,
}

/// What the machine wants done.
pub(super) enum Action {
    Send(Incarnation, Message),
    /// Opens a relay's region.
    Open(RegionKey),
    /// Reads the header of a relay's region, once it is open.
    Read(Incarnation),
    /// This log cannot be used, or what this member says of its log.
    Refuse(Incarnation, String),
    /// Says that this home has settled a departed incarnation (rule P6).
    Settle(Incarnation),
    /// Fills see the logs as they are now.
    Publish,
}

impl Logs {
    pub fn new(names: u64, passes_for: Duration) -> Logs {
        let (me, relays, departed) = (Incarnation::default(), BTreeMap::new(), BTreeMap::new());
        Logs { names, passes_for, me, own: None, view: None, relays, departed }
    }

    pub fn view_number(&self) -> ViewNumber {
        self.view.as_ref().map_or(ViewNumber(0), |view| view.number())
    }

    /// Whether this incarnation is in the view, or in an earlier one that it has learnt.
    pub fn is_in(&self, number: ViewNumber) -> bool {
        self.view.as_ref().is_some_and(|view| view.number() <= number && view.member(self.me).is_some())
    }

    /// Whether every relay that has left has surely stopped.
    pub fn is_settled(&self) -> bool {
        self.departed.values().all(|gone| gone.is_settled)
    }

    /// The relays of other nodes; no layout where the log is not open yet.
    pub fn relays(&self) -> impl Iterator<Item = (Incarnation, Option<Layout>)> {
        self.relays.iter().map(|(who, stage)| match stage {
            Stage::Open(layout) => (*who, Some(*layout)),
            Stage::Asked(_) | Stage::Opening(_) => (*who, None),
        })
    }

    /// A relay's log could not be read: its key is asked for again. Many fills may say so of one log, and late ones of a log that is being opened anew already.
    pub fn lost(&mut self, owner: Incarnation, now: Time, out: &mut Vec<Action>) {
        if let Some(stage @ Stage::Open(_)) = self.relays.get_mut(&owner) {
            *stage = Stage::Asked(now);
            out.push(Action::Publish);
        }
    }

    /// Lists who has left in this view. One that is settled stays so, and this home says it again: the view is another one.
    fn departed(&mut self, view: &View, now: Time, out: &mut Vec<Action>) {
        self.departed.retain(|who, _| view.has_departed(*who));
        for gone in view.departed().iter().filter(|gone| gone.is_relay) {
            // In this view it is another life of the same node: its process has ended, or knows of its new life.
            let is_back = view.of_rank(gone.incarnation.rank).is_some();
            let at = if is_back || gone.at_rest { now } else { now + self.passes_for };
            let known = self.departed.entry(gone.incarnation).or_insert(Departed { at, is_settled: false });
            known.at = known.at.min(at);
        }
        // What is no relay passes nothing.
        let others = view.departed().iter().filter(|gone| !gone.is_relay).map(|gone| gone.incarnation);
        let settled = self.departed.iter().filter(|(_, gone)| gone.is_settled).map(|(who, _)| *who);
        out.extend(others.chain(settled).map(Action::Settle));
    }
}

impl Machine for Logs {
    type Action = Action;
    type Frame = Frame;
    type Batch = ReadHeader;

    fn start_incarnation(&mut self, me: Incarnation, _: &mut Vec<Action>) {
        (self.me, self.own, self.view) = (me, None, None);
        self.relays.clear();
        self.departed.clear();
    }

    /// What a relay passes rests on its lease, and [`Recorder`](super::Recorder) looks at it.
    fn lease(&mut self, _: Lease, _: Time, _: &mut Vec<Action>) {}

    fn view(&mut self, view: &Arc<View>, region: Option<RegionKey>, now: Time, out: &mut Vec<Action>) {
        (self.own, self.view) = (region, Some(view.clone()));
        let is_relay = |who: &Incarnation| view.member(*who).is_some_and(|member| member.roles.has(Role::Relay));
        // What is open stays open: a region is its incarnation's.
        self.relays.retain(|who, _| is_relay(who));
        let relays = view.members().iter().map(|member| member.incarnation).filter(is_relay);
        for who in relays.filter(|who| *who != self.me) {
            let stage = self.relays.entry(who).or_insert(Stage::Asked(now));
            // What was to be read in the view before is not any more.
            if matches!(stage, Stage::Opening(_)) {
                out.push(Action::Read(who));
            }
        }
        self.departed(view, now, out);
        out.push(Action::Publish);
    }

    fn frame(&mut self, frame: Frame, _: Time, out: &mut Vec<Action>) {
        match (frame.message, &self.own, self.relays.get_mut(&frame.from)) {
            // A node that is not reached yet asks again.
            (Message::Ask, Some(own), _) => out.push(Action::Send(frame.from, Message::Key(own.clone()))),
            // It has learnt the view before this node has: it asks again.
            (Message::Ask, None, _) if self.view.is_none() => {}
            (Message::Ask, None, _) => {
                out.push(Action::Refuse(frame.from, "asked for the log of a node without a relay".into()));
            }
            (Message::Key(key), _, Some(stage @ Stage::Asked(_))) => {
                *stage = Stage::Opening(key.clone());
                out.extend([Action::Open(key), Action::Read(frame.from)]);
            }
            // It comes twice, or of a node that was a relay in a view that is over.
            (Message::Key(_), _, _) => {}
        }
    }

    fn completed(&mut self, owner: Incarnation, header: Option<Header>, now: Time, out: &mut Vec<Action>) {
        let Some(stage) = self.relays.get_mut(&owner) else { return };
        let Stage::Opening(key) = stage else {
            // One that was read twice: its region may have been opened between.
            return out.push(Action::Publish);
        };
        let header = header.ok_or_else(|| "its header was not read".to_owned());
        match header.and_then(|header| Layout::check(owner, header, self.names, key.bytes)) {
            Ok(layout) => *stage = Stage::Open(layout),
            Err(why) => {
                *stage = Stage::Asked(now + ASK_AGAIN);
                out.push(Action::Refuse(owner, why));
            }
        }
        out.push(Action::Publish);
    }

    fn connected(&mut self, member: Incarnation, now: Time, _: &mut Vec<Action>) {
        // The question before was not sent.
        if let Some(Stage::Asked(at)) = self.relays.get_mut(&member) {
            *at = now;
        }
    }

    fn tick(&mut self, now: Time, out: &mut Vec<Action>) {
        for (who, stage) in &mut self.relays {
            if let Stage::Asked(at) = stage
                && *at <= now
            {
                *at = now + ASK_AGAIN;
                out.push(Action::Send(*who, Message::Ask));
            }
        }
        let due = self.departed.iter_mut().filter(|(_, gone)| !gone.is_settled && gone.at <= now);
        let before = out.len();
        for (who, gone) in due {
            gone.is_settled = true;
            out.push(Action::Settle(*who));
        }
        if out.len() > before {
            out.push(Action::Publish);
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        let asks = self.relays.values().filter_map(|stage| match stage {
            Stage::Asked(at) => Some(*at),
            Stage::Opening(_) | Stage::Open(_) => None,
        });
        asks.chain(self.departed.values().filter(|gone| !gone.is_settled).map(|gone| gone.at)).min()
    }
}
