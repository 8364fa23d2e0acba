//! The status of the other members, for requests that show one of them.
//!
//! A node knows from the view which members there are and which of them acknowledged it. It does not know what each
//! member knows: which view the member has, whether its lease runs. So it asks the members when a program looks, and
//! only then. Each answers at once: one message there and one back ([`crate::services::member_status`]). Answers are kept until the next
//! incarnation, each with its time of arrival.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use verbena_cluster::{Notice, View};
use verbena_fabric::{Address, Class, Connections, Fabric, Frames, Inbox, Messages, Port, Views};
use verbena_metrics::Registry;
use verbena_monitor::{Loads, Seen};
use verbena_protocol::api::{Answers, Counted, Heard, Loaded, Node, Told};
use verbena_protocol::wire::{Answer, Detail, LoadOf, PART_MEMBERS};
use verbena_terms::{BootClock, Clock, HasFormat, Incarnation, Time, ViewNumber};

use crate::membership::history::millis;
use crate::membership::life::Life;
use crate::membership::service::{Replies, Service};
use crate::membership::status::Status;
use crate::services::loads::ANSWERS;
use crate::services::member_status::Message;

/// The port of these messages.
const PORT: Port = Port(2);
/// Several looks within this time cost the other members one question.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// How long a look waits for answers.
const PATIENCE: Duration = Duration::from_millis(50);
/// For how long after a look the boards of the others are read.
const READ_FOR: Duration = Duration::from_secs(5);

/// What is known of the others. Bounded by the members of a view.
pub(crate) struct PeerStatus {
    status: Arc<Status>,
    loads: Loads,
    metrics: Arc<Registry>,
    known: Mutex<Known>,
    heard: Notify,
}

#[derive(Default)]
struct Known {
    /// The way to the others in the present incarnation; `None` between two incarnations.
    fabric: Option<Arc<dyn Fabric>>,
    view: Option<Arc<View>>,
    asked: Time,
    told: BTreeMap<Incarnation, (Told, Time)>,
    answers: BTreeMap<Incarnation, Counted>,
}

/// The part that learns of incarnations and views from membership. Membership never waits for it.
pub(crate) struct Watch {
    peers: Arc<PeerStatus>,
    inboxes: mpsc::UnboundedSender<Inbox>,
}

impl PeerStatus {
    /// Returns what is known, the service that follows incarnations, and the receiver of each incarnation's inbox.
    pub(crate) fn new(
        status: Arc<Status>,
        loads: Loads,
        metrics: Arc<Registry>,
    ) -> (Arc<PeerStatus>, Watch, mpsc::UnboundedReceiver<Inbox>) {
        let peers = PeerStatus { status, loads, metrics, known: Mutex::default(), heard: Notify::new() };
        let peers = Arc::new(peers);
        let (inboxes, lives) = mpsc::unbounded_channel();
        (peers.clone(), Watch { peers, inboxes }, lives)
    }

    /// The counters of the present incarnation's fabric; all zero between two incarnations.
    pub(crate) fn frames(&self) -> Frames {
        let fabric = self.known.lock().fabric.clone();
        fabric.map(|fabric| fabric.frames()).unwrap_or_default()
    }

    /// The same of connections.
    pub(crate) fn connections(&self) -> Connections {
        let fabric = self.known.lock().fabric.clone();
        fabric.map(|fabric| fabric.connections()).unwrap_or_default()
    }

    /// The same of messages.
    pub(crate) fn messages(&self) -> Messages {
        let fabric = self.known.lock().fabric.clone();
        fabric.map(|fabric| fabric.messages()).unwrap_or_default()
    }

    /// Receives the messages of one incarnation after the other.
    pub(crate) async fn listen(self: Arc<Self>, mut lives: mpsc::UnboundedReceiver<Inbox>) {
        let Some(mut inbox) = lives.recv().await else { return };
        loop {
            tokio::select! {
                message = inbox.next() => self.hear(&message),
                next = lives.recv() => match next {
                    Some(next) => inbox = next,
                    None => return,
                },
            }
        }
    }

    /// Asks the other members, and says how all are when they have answered or had their time.
    pub(crate) async fn look(&self) -> Vec<Node> {
        let asked = self.ask();
        self.loads.look(READ_FOR);
        let answered = async {
            loop {
                let heard = self.heard.notified();
                if self.known.lock().all_told_since(asked) {
                    return;
                }
                heard.await;
            }
        };
        let all = async {
            answered.await;
            loop {
                let changed = self.loads.changed();
                if self.all_loads_are_fresh() {
                    return;
                }
                changed.await;
            }
        };
        // A silent member is shown as silent.
        let _ = tokio::time::timeout(PATIENCE, all).await;
        self.seen()
    }

    /// Returns the time of the question, which another look may have sent a moment ago.
    fn ask(&self) -> Time {
        let now = BootClock.now();
        let mut known = self.known.lock();
        if now.since(known.asked) >= ASK_EVERY {
            known.asked = now;
            known.others().for_each(|member| known.send(member, Message::Ask));
        }
        known.asked
    }

    /// What is known of the members, from the `from`th on, for [`wire::Request::Details`](verbena_protocol::wire::Request::Details). They
    /// are asked, and not waited for.
    pub(crate) fn details(&self, from: u32) -> Answer {
        self.ask();
        let seen = self.seen();
        let more = seen.len() > (from as usize).saturating_add(PART_MEMBERS);
        let details = seen.into_iter().skip(from as usize).take(PART_MEMBERS).map(|node| Detail {
            incarnation: node.member.incarnation,
            keys: node.keys,
            told: node.heard.map(|heard| (heard.told, heard.age_ms)),
        });
        Answer::Details { view: self.status.read(0).view, details: details.collect(), more }
    }

    /// How loaded the members are whose load is known, from the `from`th on, for [`wire::Request::Loads`](verbena_protocol::wire::Request::Loads).
    pub(crate) fn loads(&self, from: u32) -> Answer {
        self.loads.look(READ_FOR);
        let (all, now) = (self.loads.all(), BootClock.now());
        let rest = all.get(from as usize..).unwrap_or_default();
        let load = |seen: &Seen| LoadOf { incarnation: seen.who, load: seen.load, age_ms: millis(now.since(seen.at)) };
        let loads = rest.iter().take(PART_MEMBERS).map(load).collect();
        Answer::Loads { view: self.status.read(0).view, loads, more: rest.len() > PART_MEMBERS }
    }

    fn all_loads_are_fresh(&self) -> bool {
        let (loads, now) = (self.loads.all(), BootClock.now());
        let is_fresh = |who| loads.iter().any(|seen| seen.who == who && seen.is_fresh(now));
        self.known.lock().others().all(|member| is_fresh(member.incarnation))
    }

    /// What the proxy of this process has answered, if there is one.
    fn answers(&self) -> Option<Answers> {
        let read = self.metrics.snapshot_of(&[ANSWERS], BootClock.now());
        let of = |result| read.counter(ANSWERS, &[("result", result)]).unwrap_or(0);
        read.counter(ANSWERS, &[])?;
        Some(Answers { hit: of("hit"), miss: of("miss"), pass: of("pass"), update: of("update"), error: of("error") })
    }

    fn hear(&self, message: &verbena_fabric::Message) {
        let word = Message::decode(&message.body);
        // Before the lock: some of the metrics are read under it.
        let answers = if word == Ok(Message::Ask) { self.answers() } else { None };
        let mut known = self.known.lock();
        let Some(from) = known.others().find(|member| member.incarnation == message.from) else { return };
        match word {
            Ok(Message::Ask) => {
                if let Some(answers) = answers {
                    known.send(from, Message::Answers(answers));
                }
                known.send(from, Message::Told(Told::from(&self.status.read(0))));
            }
            Ok(Message::Answers(answers)) => {
                known.answers.insert(message.from, Counted { answers, at_ns: BootClock.now().nanos() });
            }
            Ok(Message::Told(told)) => {
                known.told.insert(message.from, (told, BootClock.now()));
                self.heard.notify_waiters();
            }
            Err(error) => tracing::debug!(from = %message.from, error, "a member's word on how it is was dropped"),
        }
    }

    fn seen(&self) -> Vec<Node> {
        let (own, members, shares) = (self.status.read(0), self.status.all_members(), self.status.shares());
        let loads = self.loads.all();
        let own_answers = self.answers();
        let load = |who| loads.iter().find(|seen| seen.who == who).cloned();
        let known = self.known.lock();
        let now = BootClock.now();
        let seen = members.into_iter().map(|member| {
            let is_self = member.incarnation == own.incarnation;
            let told =
                if is_self { Some((Told::from(&own), now)) } else { known.told.get(&member.incarnation).copied() };
            let keys = shares.get(&member.incarnation).copied();
            let load =
                load(member.incarnation).map(|seen| Loaded { load: seen.load, age_ms: millis(now.since(seen.at)) });
            let answers = match is_self {
                true => own_answers.map(|answers| Counted { answers, at_ns: now.nanos() }),
                false => known.answers.get(&member.incarnation).copied(),
            };
            Node { heard: told.map(|(told, at)| heard(told, now.since(at))), is_self, keys, load, answers, member }
        });
        seen.collect()
    }
}

impl Known {
    /// The members of the view except this node; empty between two incarnations.
    fn others(&self) -> impl Iterator<Item = &verbena_cluster::Member> {
        let own = self.fabric.as_ref().map(|fabric| fabric.identity());
        let members = self.view.iter().filter(move |_| own.is_some()).flat_map(|view| view.members());
        members.filter(move |member| Some(member.incarnation) != own)
    }

    /// What cannot be sent is lost.
    fn send(&self, to: &verbena_cluster::Member, message: Message) {
        let Some(fabric) = &self.fabric else { return };
        let view = self.view.as_ref().map_or(ViewNumber(0), |view| view.number());
        let sent = fabric
            .connect(to.incarnation, &Address(to.address.clone()))
            .and_then(|peer| peer.send(Class::Control, view, PORT, 0, &message.encode()));
        if let Err(error) = sent {
            tracing::debug!(to = %to.incarnation, %error, "a question or answer on how a node is was not sent");
        }
    }

    fn all_told_since(&self, asked: Time) -> bool {
        self.others().all(|member| self.told.get(&member.incarnation).is_some_and(|(_, at)| *at >= asked))
    }
}

/// What a member said `age` ago, brought up to date: its lease and its uptime run on meanwhile.
pub(crate) fn heard(told: Told, age: Duration) -> Heard {
    let age_ms = millis(age);
    let lease_left_ms = told.lease_left_ms.saturating_sub(age_ms);
    Heard { told: Told { lease_left_ms, uptime_ms: told.uptime_ms.saturating_add(age_ms), ..told }, age_ms }
}

impl Service for Watch {
    fn name(&self) -> &'static str {
        "peers"
    }

    fn begin(&mut self, life: &Life) -> Result<(), String> {
        let inbox = life.fabric.listen(PORT, Views::Any).map_err(|error| error.to_string())?;
        *self.peers.known.lock() = Known { fabric: Some(life.fabric.clone()), ..Known::default() };
        // The receiver ends only with the helper.
        let _ = self.inboxes.send(inbox);
        Ok(())
    }

    fn notice(&mut self, notice: &Notice, replies: &Replies) {
        match notice {
            Notice::ViewLearnt(view) => {
                let mut known = self.peers.known.lock();
                known.told.retain(|who, _| view.member(*who).is_some());
                known.answers.retain(|who, _| view.member(*who).is_some());
                known.view = Some(view.clone());
                drop(known);
                // Nothing is held in any view, and nothing of the departed.
                view.departed().iter().for_each(|gone| replies.settled(gone.incarnation));
                replies.prepared(view.number());
            }
            Notice::Expelled(_) | Notice::Superseded(_) => self.end(),
            _ => {}
        }
    }

    fn close(&mut self, replies: &Replies) {
        replies.closed(true);
    }

    fn end(&mut self) {
        *self.peers.known.lock() = Known::default();
    }
}
