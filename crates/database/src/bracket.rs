//! Updates around commits (rules Q4, Q5, Q9, Q19).

use std::sync::Arc;
use std::time::Instant;

use verbena_content::Scope;
use verbena_content::service::{Content, Finish, Ticket};
use verbena_metrics::{Counter, Family};
use verbena_relay::{Bracket, Outcome, Rejection};
use verbena_statements::{Names, Rules, Side};

use crate::capture::Held;
use crate::explain::said;
use crate::turns::{Purpose, Tables};
use crate::waiting::{Queue, Turn};
use crate::watch::{Watched, Watchers};

/// Begins and ends them at the homes of the cluster.
pub(crate) struct Homes {
    pub content: Content,
    pub identity: Arc<[u8]>,
    pub begun: Family<Counter, 1>,
    pub watchers: Arc<Watchers>,
    /// What is expected in the database's log.
    pub held: Held,
    /// Where reads and updates take turns.
    pub turns: Option<Arc<Queue>>,
}

/// For what a command is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bracketed {
    /// Until every home knows of what it writes. The flag: it ends a transaction, which may hold locks.
    Commit(Names, bool),
    /// Until it is its turn to read these tables.
    Read(Tables),
}

/// For what a command is held, if for anything.
pub(crate) fn bracketed(write: Option<&Names>, ends: bool, read: Option<&Tables>) -> Option<Bracketed> {
    let commit = write.map(|write| Bracketed::Commit(write.clone(), ends));
    commit.or_else(|| read.map(|read| Bracketed::Read(read.clone())))
}

/// What was begun. Dropped, its turn is over.
pub(crate) struct Begun {
    update: Option<Update>,
    _turn: Option<Turn>,
}

/// An update, and the commits that it was begun for, as they are expected in the database's log.
struct Update {
    ticket: Ticket,
    commits: Vec<u64>,
}

/// What the homes are told that a set of names is.
pub(crate) fn scope(content: &Content, identity: &[u8], names: &Names) -> Scope {
    match verbena_statements::spelled(names, identity) {
        Some(all) => Scope::of(all.iter().map(|name| content.names().dependency(name))),
        None => Scope::Everything,
    }
}

impl Bracket for Homes {
    type Write = Bracketed;
    type Ticket = Begun;

    /// In turns each has its own.
    fn shares(&self, _: &Bracketed) -> bool {
        self.turns.is_none()
    }

    async fn begin(&self, held: Vec<Bracketed>) -> Result<Begun, Rejection> {
        let (mut writes, mut reads, mut purpose) = (Vec::new(), None, Purpose::Update);
        for one in held {
            match one {
                Bracketed::Commit(names, ends_transaction) => {
                    writes.push(names);
                    purpose = if ends_transaction { Purpose::Commit } else { purpose };
                }
                Bracketed::Read(tables) => reads = Some(tables),
            }
        }
        match (&self.turns, reads) {
            (Some(turns), Some(tables)) => {
                Ok(Begun { update: None, _turn: Some(turns.turn(Purpose::Read, tables).await) })
            }
            (Some(turns), None) => {
                self.check_lease()?;
                let names = Names::joined(Rules::default(), Side::Write, &writes);
                let turn = turns.turn(purpose, Tables::of(&names)).await;
                self.begin_update(writes).await.map(|update| Begun { update: Some(update), _turn: Some(turn) })
            }
            (None, _) => self.begin_update(writes).await.map(|update| Begun { update: Some(update), _turn: None }),
        }
    }

    async fn end(&self, Begun { update, _turn }: Begun, outcome: Outcome) -> bool {
        match update {
            Some(update) => self.end_update(update, outcome).await,
            None => true,
        }
    }
}

impl Homes {
    async fn begin_update(&self, writes: Vec<Names>) -> Result<Update, Rejection> {
        let began = Instant::now();
        let names = Names::joined(Rules::default(), Side::Write, &writes);
        let begun = self.begin_for(&names).await;
        if self.watchers.are_there() {
            let result = match &begun {
                Ok(_) => "begun",
                Err(Rejection::ReadOnly) => "no lease",
                Err(_) => "refused",
            };
            let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            let (commits, touches) = (writes.len(), said(&names));
            self.watchers.tell(&Watched::Update { commits, touches, result: result.into(), micros });
        }
        // In place before a commit is forwarded, for the log may show it at once.
        begun.map(|ticket| Update { ticket, commits: self.held.held(writes) })
    }

    async fn end_update(&self, Update { ticket, commits }: Update, outcome: Outcome) -> bool {
        match outcome {
            Outcome::Answered => self.held.answered(&commits),
            Outcome::Unsent => self.held.unsent(&commits),
            Outcome::Unknown => self.held.unknown(&commits),
        }
        let is_confirmed = match outcome {
            Outcome::Answered => ticket.answered().await == Finish::Answer,
            Outcome::Unsent => {
                ticket.not_sent();
                true
            }
            // Dropped, it is of unknown outcome.
            Outcome::Unknown => false,
        };
        if self.watchers.are_there() {
            let outcome = match outcome {
                Outcome::Answered => "answered",
                Outcome::Unsent => "unsent",
                Outcome::Unknown => "unknown",
            };
            self.watchers.tell(&Watched::Ended { outcome: outcome.into(), is_confirmed });
        }
        is_confirmed
    }

    fn check_lease(&self) -> Result<(), Rejection> {
        if self.content.lease().valid_at(self.content.now()).is_none() {
            self.begun.with(["no-lease"]).increment();
            return Err(Rejection::ReadOnly);
        }
        Ok(())
    }

    async fn begin_for(&self, names: &Names) -> Result<Ticket, Rejection> {
        self.check_lease()?;
        let scope = scope(&self.content, &self.identity, names);
        let kind = if scope == Scope::Everything { "everything" } else { "names" };
        match self.content.begin(scope).await {
            Ok(ticket) => {
                self.begun.with([kind]).increment();
                Ok(ticket)
            }
            Err(error) => {
                tracing::warn!(%error, "a commit was held back, rolled back and refused");
                self.begun.with(["refused"]).increment();
                Err(Rejection::Retry)
            }
        }
    }
}
