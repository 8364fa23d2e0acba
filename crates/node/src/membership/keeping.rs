//! This node's part in keeping the cluster: it is the keeper permanently, never, or while it holds the keeper's office.

use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{
    Answer, EarlierLife, Keeper, KeeperEvent, KeeperRecord, Membership, Office, OfficeAction, OfficeEvent, Question,
    Rules, Term, View,
};
use verbena_etcd::Etcd;
use verbena_fabric::tcp::{Names, Roster};
use verbena_terms::{Incarnation, Time};

use crate::error::{Error, Result};
use crate::membership::mailbox::Mailbox;

/// How long a starting helper waits for the rank of its first incarnation. After that it keeps trying while it runs.
const FIRST_LIFE: Duration = Duration::from_secs(3);

/// The keeper, if this node is it now, and the office, where it moves.
pub(crate) struct Keeping {
    pub(crate) keeper: Option<Keeper>,
    office: Option<(Office, Arc<Etcd>)>,
    /// The names of incarnations, against which certificates are checked.
    roster: Option<Roster>,
    membership: Membership,
    mailbox: Arc<Mailbox>,
    /// The register did not answer the last time.
    is_cut_off: bool,
}

/// What a cluster that etcd keeps is asked by.
pub(crate) struct Register {
    etcd: Arc<Etcd>,
    roster: Roster,
}

/// What [`Keeping`] leaves to the driver.
pub(crate) enum Kept {
    /// This node's next incarnation.
    Enrolled(Incarnation),
    /// Say it to the keeper.
    ToKeeper(KeeperEvent),
    /// Follow this one.
    Follow(verbena_cluster::Holder),
}

impl Register {
    pub(crate) fn new(etcd: Etcd) -> Self {
        let etcd = Arc::new(etcd);
        let asks = etcd.clone();
        let roster = Roster::new(move |rank, found| {
            asks.name(rank, move |name| match name {
                Ok(Some(name)) => found.is(&name),
                // No node has that rank, or the register did not answer. The roster asks again when the rank is met
                // again.
                Ok(None) | Err(_) => drop(found),
            });
        });
        Register { etcd, roster }
    }

    /// By which names the nodes of `membership` prove who they are.
    pub(crate) fn names(&self, membership: &Membership) -> Names {
        Names { own: membership.own().name.clone(), roster: self.roster.clone() }
    }
}

impl Keeping {
    /// For a cluster with one keeper for good. `record` is what its earlier incarnation left; `tells_its_end` is whether that
    /// incarnation's programs saw its end at once.
    pub(crate) fn fixed(
        membership: &Membership,
        mailbox: Arc<Mailbox>,
        own: Incarnation,
        record: Option<KeeperRecord>,
        tells_its_end: bool,
        now: Time,
    ) -> Self {
        // The process that ran as this node before held the lock of the state directory, which this process holds now.
        // Its programs also act by its lease, but stop when they see its end (rule L6).
        let earlier = if tells_its_end { EarlierLife::Ended } else { EarlierLife::MayRun };
        let start = || Keeper::start(membership.clone(), own, record, earlier, now);
        let keeper = (membership.rank() == membership.keeper()).then(start);
        Keeping { keeper, office: None, roster: None, membership: membership.clone(), mailbox, is_cut_off: false }
    }

    /// For a cluster whose keeper is the holder of the office.
    pub(crate) fn office(membership: &Membership, mailbox: Arc<Mailbox>, register: Register, now: Time) -> Self {
        let office = Some((Office::new(membership, now), register.etcd));
        let roster = Some(register.roster);
        Keeping { keeper: None, office, roster, membership: membership.clone(), mailbox, is_cut_off: false }
    }

    /// Whether the keeper is looked for where the configuration says that it is.
    pub(crate) fn is_fixed(&self) -> bool {
        self.office.is_none()
    }

    /// Takes note of whose ranks these are, where that is not known before.
    pub(crate) fn know(&self, view: &View) {
        if let Some(roster) = &self.roster {
            view.members().iter().for_each(|member| roster.know(member.incarnation.rank, &member.name));
        }
    }

    pub(crate) fn wake_at(&self) -> Time {
        let keeper = self.keeper.as_ref().map_or(Time::FAR, Keeper::wake_at);
        keeper.min(self.office.as_ref().map_or(Time::FAR, |(office, _)| office.wake_at()))
    }

    /// Enrols the first incarnation, waiting up to `FIRST_LIFE`, so that the caller that starts a helper gets an
    /// error at once. The inner result is a reason if the node has to ask again.
    ///
    /// # Errors
    /// What stands under the cluster's keys cannot be read.
    pub(crate) fn first_life(&self) -> Result<std::result::Result<Incarnation, String>> {
        let Some((_, etcd)) = &self.office else { return Ok(Err("ranks stand in the configuration".into())) };
        let question = Question::Enrol { name: self.membership.own().name.clone() };
        match etcd.ask_now(question, FIRST_LIFE) {
            Ok(Answer::Enrolled(life)) => Ok(Ok(life)),
            Ok(other) => Ok(Err(format!("etcd answers {other:?}"))),
            Err(error @ verbena_etcd::Error::Unanswered { .. }) => Ok(Err(error.to_string())),
            Err(error) => Err(Error::Etcd(error)),
        }
    }

    /// What the register answered. Says once that it does not.
    ///
    /// # Errors
    /// It is not the one that this node enrolled in.
    pub(crate) fn answered(
        &mut self,
        now: Time,
        own: Incarnation,
        number: u64,
        answer: verbena_etcd::Result<Answer>,
    ) -> Result<(Vec<Kept>, Option<String>)> {
        let (answer, reason) = match answer {
            Ok(answer) => (Some(answer), None),
            Err(error @ verbena_etcd::Error::AnotherEra { .. }) => return Err(Error::Etcd(error)),
            Err(error) => (None, Some(error.to_string())),
        };
        let was_cut_off = std::mem::replace(&mut self.is_cut_off, reason.is_some());
        if was_cut_off && !self.is_cut_off {
            tracing::info!("etcd answers again");
        }
        Ok((self.preside(now, own, OfficeEvent::Answered(number, answer)), reason.filter(|_| !was_cut_off)))
    }

    /// Passes an event to the office, for incarnation `own`, and returns what is left to the driver.
    pub(crate) fn preside(&mut self, now: Time, own: Incarnation, event: OfficeEvent) -> Vec<Kept> {
        let Some((office, etcd)) = &mut self.office else { return vec![] };
        let mut kept = Vec::new();
        for action in office.handle(now, event) {
            match action {
                OfficeAction::Ask(number, question) => {
                    let mailbox = self.mailbox.clone();
                    etcd.ask(question, move |answer| mailbox.answered(number, answer));
                }
                OfficeAction::Appoint(record, term) => {
                    self.keeper = Some(appointed(&self.membership, own, record.map(|record| *record), term, now));
                }
                OfficeAction::Dismiss => {
                    tracing::info!("this node keeps the cluster no longer");
                    self.keeper = None;
                }
                OfficeAction::Authority(until) => {
                    kept.push(Kept::ToKeeper(KeeperEvent::Authority(until)));
                }
                OfficeAction::Stored => kept.push(Kept::ToKeeper(KeeperEvent::Persisted)),
                OfficeAction::Enrolled(life) => kept.push(Kept::Enrolled(life)),
                OfficeAction::Follow(holder) => {
                    // Its rank may be older than those whose names the register keeps.
                    if let Some(roster) = &self.roster {
                        roster.know(holder.who.rank, &holder.name);
                    }
                    kept.push(Kept::Follow(holder));
                }
            }
        }
        kept
    }

    /// Gives the office up, if this node has it, and waits for that for `at_most`: so that the others need not wait for its authority to end.
    pub(crate) fn give_up(&mut self, now: Time, at_most: Duration) {
        let Some((office, etcd)) = &mut self.office else { return };
        self.keeper = None;
        for action in office.handle(now, OfficeEvent::Left) {
            if let OfficeAction::Ask(_, question @ Question::Beat { .. }) = action
                && let Err(error) = etcd.ask_now(question, at_most)
            {
                tracing::debug!(%error, "the office was not given up: its time runs out instead");
            }
        }
    }
}

fn appointed(membership: &Membership, own: Incarnation, record: Option<KeeperRecord>, term: Term, now: Time) -> Keeper {
    let view = record.as_ref().and_then(|record| record.view.as_ref()).map_or(0, |view| view.number().0);
    tracing::info!(view, "this node keeps the cluster");
    Keeper::appointed(membership.clone(), own, record, term, now, Rules::ALL)
}
