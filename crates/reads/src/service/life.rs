//! What belongs to one incarnation of a node, and ends with it: the region of its relay, and the relays that it has open.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{Role, View};
use verbena_fabric::{Address, Class, Fabric, Pool, Port, Region, RegionKey, Result, Rights, SharedRemote};
use verbena_service::peers::{OpenResult, OpenTask, Peers};
use verbena_terms::{HasFormat, Incarnation, Time, ViewNumber};

use super::RelaySettings;
use super::watching::Log;
use crate::layout::{Layout, RING_WORDS};
use crate::wire::Message;

/// The port of messages about logs.
pub(super) const PORT: Port = Port(22);
/// How long a relay that was asked for its log's key has to answer.
const ASK_AGAIN: Duration = Duration::from_millis(100);

pub(super) struct Life {
    fabric: Arc<dyn Fabric>,
    /// The region of this process's relay, where one runs.
    pub log: Option<(Arc<dyn Region>, Layout)>,
    peers: Peers,
    view: ViewNumber,
    keys: BTreeMap<Incarnation, RegionKey>,
    asked: BTreeMap<Incarnation, Time>,
    /// Relays whose header is being read.
    reading: BTreeSet<Incarnation>,
    open: BTreeMap<Incarnation, Log>,
    sent: u64,
}

impl Life {
    pub fn begin(fabric: Arc<dyn Fabric>, relay: Option<&RelaySettings>, names: u64) -> Result<Life> {
        let log = |relay: &RelaySettings| {
            let owner = fabric.identity();
            let layout = Layout { owner, ring_words: RING_WORDS, names, is_complete: relay.is_complete };
            let region: Arc<dyn Region> = Arc::from(fabric.register(layout.bytes(), ViewNumber(0))?);
            Ok((region, layout))
        };
        let log = relay.map(log).transpose()?;
        let peers = Peers::new(fabric.clone());
        let (keys, asked, reading, open) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Ok(Life { fabric, log, peers, view: ViewNumber(0), keys, asked, reading, open, sent: 0 })
    }

    pub fn me(&self) -> Incarnation {
        self.fabric.identity()
    }

    pub fn pool(&self) -> Pool {
        self.fabric.pool().clone()
    }

    /// The relays of other nodes.
    pub fn relays<'a>(&self, view: &'a View) -> impl Iterator<Item = Incarnation> + use<'a> {
        let me = self.me();
        let relays = view.members().iter().filter(|member| member.roles.has(Role::Relay));
        relays.map(|member| member.incarnation).filter(move |who| *who != me)
    }

    pub fn view(&mut self, view: &View, now: Time) {
        self.view = view.number();
        let members = view.members().iter().map(|member| (member.incarnation, Address(member.address.clone())));
        self.peers.view(members, now);
        self.keys.retain(|who, _| view.member(*who).is_some());
        self.asked.retain(|who, _| view.member(*who).is_some());
        // What is open stays open: a region is its incarnation's.
        self.open.retain(|who, _| view.member(*who).is_some());
        self.keys
            .values()
            .filter(|key| !self.open.contains_key(&key.owner))
            .for_each(|key| self.peers.learn(key.clone(), now));
    }

    /// Asks relays for their keys.
    pub fn ask(&mut self, view: &View, now: Time) {
        for who in self.relays(view) {
            let is_asked = self.asked.get(&who).is_some_and(|asked| now.since(*asked) < ASK_AGAIN);
            if !self.keys.contains_key(&who) && !is_asked && self.send(who, &Message::Ask) {
                self.asked.insert(who, now);
            }
        }
    }

    fn send(&mut self, to: Incarnation, message: &Message) -> bool {
        let Some(peer) = self.peers.peer(to) else { return false };
        self.sent += 1;
        if let Err(error) = peer.send(Class::Control, self.view, PORT, self.sent, &message.encode()) {
            tracing::debug!(%to, %error, "a message about a log of reads was not sent");
        }
        true
    }

    /// # Errors
    /// What is wrong with it.
    pub fn hear(&mut self, from: Incarnation, message: Message, now: Time) -> std::result::Result<(), String> {
        match message {
            Message::Ask => {
                let key = self.log.as_ref().map(|(region, _)| region.key(Rights::Change));
                // A node that is not reached yet asks again.
                self.send(from, &Message::Key(key.ok_or("asked for the log of a node without a relay")?));
                Ok(())
            }
            Message::Key(key) if key.owner == from => {
                if self.asked.contains_key(&from) && self.keys.insert(from, key.clone()).is_none() {
                    self.peers.learn(key, now);
                }
                Ok(())
            }
            Message::Key(key) => Err(format!("a key of {}", key.owner)),
        }
    }

    pub fn open_tasks(&mut self, now: Time) -> Vec<OpenTask> {
        self.peers.open_tasks(now)
    }

    pub fn opened(&mut self, result: OpenResult, now: Time) {
        self.peers.opened(result, now);
    }

    /// Relays whose region is open and whose header is not read: it is being read from now on.
    pub fn unread(&mut self, view: &View) -> Vec<(Incarnation, SharedRemote)> {
        let mut unread = Vec::new();
        for who in self.relays(view) {
            if let Some(remote) = self.peers.region(who).filter(|_| !self.open.contains_key(&who))
                && self.reading.insert(who)
            {
                unread.push((who, remote.clone()));
            }
        }
        unread
    }

    pub fn opened_log(&mut self, who: Incarnation, log: Log) {
        self.reading.remove(&who);
        self.open.insert(who, log);
    }

    pub fn open_log(&self, who: Incarnation) -> Option<&Log> {
        self.open.get(&who)
    }

    /// Its log cannot be read: it is opened anew, by a key that is asked for again.
    pub fn forget(&mut self, who: Incarnation) {
        self.reading.remove(&who);
        self.open.remove(&who);
        self.keys.remove(&who);
    }
}
