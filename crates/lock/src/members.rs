//! The members of the view that a node acts in, and what it says to each of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use verbena_cluster::View;
use verbena_terms::{Incarnation, Rank, Time, ViewNumber};

use crate::name::Name;
use crate::stream::{Run, Stream};
use crate::wire::{Frame, MAX_FRAME_BYTES, MemberMessage};

/// Bytes of a frame without its messages.
const FRAME_HEAD_BYTES: usize = 128;

/// The members of one view, as this node sees them. The node may be in no view.
#[derive(Debug, Default)]
pub(crate) struct Members {
    me: Incarnation,
    view: Option<Arc<View>>,
    streams: BTreeMap<Incarnation, Stream<MemberMessage>>,
    to_self: VecDeque<MemberMessage>,
}

impl Members {
    /// Of this view: nothing of an older one is said any more, or listened to (rule F5).
    pub fn new(me: Incarnation, view: Option<Arc<View>>) -> Self {
        let mut members = Members { me, view, ..Members::default() };
        members.streams =
            members.all().filter(|&member| member != me).map(|member| (member, Stream::default())).collect();
        members
    }

    /// Which view that is; `None` before the first, and in one without this node.
    pub fn view(&self) -> Option<ViewNumber> {
        self.view.as_ref().filter(|view| view.member(self.me).is_some()).map(|view| view.number())
    }

    /// Whether a view is newer than this one, member or not.
    pub fn is_news(&self, view: ViewNumber) -> bool {
        self.view.as_ref().is_none_or(|known| known.number() < view)
    }

    /// Whether this node owns words.
    pub fn is_home(&self) -> bool {
        self.view.as_ref().is_some_and(|view| view.homes().any(|home| home.incarnation == self.me))
    }

    /// All members; empty where this node is in no view.
    pub fn all(&self) -> impl Iterator<Item = Incarnation> {
        let view = self.view.as_ref().filter(|view| view.member(self.me).is_some());
        view.into_iter().flat_map(|view| view.members()).map(|member| member.incarnation)
    }

    /// The node that owns the words of this lock.
    pub fn home_of(&self, name: &Name) -> Option<Incarnation> {
        name.home(self.view.as_ref()?)
    }

    /// The member of this rank.
    pub fn of_rank(&self, rank: Rank) -> Option<Incarnation> {
        Some(self.view.as_ref()?.of_rank(rank)?.incarnation)
    }

    /// Says something to a member, this node perhaps.
    pub fn say(&mut self, to: Incarnation, member_message: MemberMessage) {
        if to == self.me {
            self.to_self.push_back(member_message);
        } else if let Some(stream) = self.streams.get_mut(&to) {
            stream.push(member_message);
        }
    }

    /// Says it to all of them, this node too.
    pub fn say_to_all(&mut self, member_message: &MemberMessage) {
        let all: Vec<Incarnation> = self.all().collect();
        all.into_iter().for_each(|member| self.say(member, member_message.clone()));
    }

    /// Says it to those that own words.
    pub fn say_to_homes(&mut self, member_message: &MemberMessage) {
        let Some(view) = self.view.clone().filter(|view| view.member(self.me).is_some()) else { return };
        view.homes().for_each(|home| self.say(home.incarnation, member_message.clone()));
    }

    /// What this node said to itself and has not heard yet.
    pub fn said_to_self(&mut self) -> Option<MemberMessage> {
        self.to_self.pop_front()
    }

    /// Whether there is any of that.
    pub fn says_to_self(&self) -> bool {
        !self.to_self.is_empty()
    }

    /// The new messages of a frame. Empty if its view is over or not learnt of yet: the sender repeats the latter.
    pub fn heard(&mut self, frame: Frame, now: Time) -> Vec<MemberMessage> {
        let Frame { view, from, to, first, heard, messages } = frame;
        match self.streams.get_mut(&from) {
            Some(stream) if to == self.me && self.view.as_ref().is_some_and(|known| known.number() == view) => {
                stream.heard(Run { first, messages, heard }, now).collect()
            }
            _ => vec![],
        }
    }

    /// Earlier messages to this member were lost: they are sent again at once.
    pub fn reached(&mut self, member: Incarnation) {
        if let Some(stream) = self.streams.get_mut(&member) {
            stream.repeat();
        }
    }

    /// What is to be sent now.
    pub fn due(&mut self, now: Time) -> Vec<Frame> {
        let (from, Some(view)) = (self.me, self.view()) else { return vec![] };
        let mut frames = vec![];
        for (&to, stream) in &mut self.streams {
            let runs = stream.due(now, MAX_FRAME_BYTES - FRAME_HEAD_BYTES, MemberMessage::max_bytes).into_iter();
            frames.extend(runs.map(|Run { first, messages, heard }| Frame { view, from, to, first, heard, messages }));
        }
        frames
    }

    /// When there is something to send if nothing happens before; [`Time::ZERO`] if at once.
    pub fn next_deadline(&self) -> Option<Time> {
        self.streams.values().filter_map(Stream::next_deadline).min()
    }
}
