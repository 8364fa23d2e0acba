//! A connection to the helper.

use std::time::Duration;

use verbena_ipc::Connection;
use verbena_terms::{BootClock, Clock, Incarnation, ViewNumber};

use crate::error::{Error, Result};
use crate::socket::Socket;
use crate::wire::{Answer, Member, Request, Seen, Status};

/// The helper of this machine, as a program sees it. For one thread at a time; other threads connect for themselves.
pub struct Helper {
    connection: Connection,
    patience: Duration,
}

/// How the helper is, with the members of its view.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// How it is.
    pub status: Status,
    /// The members of the view that `status` names, in order of rank.
    pub members: Vec<Member>,
}

/// How often a report is begun again because the view changed while it was read.
const ATTEMPTS: usize = 5;

impl Helper {
    /// Connects to the helper at `socket`. Each call, this one too, waits at most `patience`.
    ///
    /// # Errors
    /// [`Error::NoHelper`] with the path that was tried if nobody listens there.
    pub fn connect(socket: &Socket, patience: Duration) -> Result<Self> {
        let connected = Connection::connect(&socket.path(), BootClock.now() + patience);
        let connection = connected.map_err(|error| match error {
            verbena_ipc::Error::NoHelper { path } => Error::NoHelper { tried: path, running: socket.others() },
            other => other.into(),
        })?;
        Ok(Helper { connection, patience })
    }

    /// How the helper is.
    pub fn report(&mut self) -> Result<Report> {
        for _ in 0..ATTEMPTS {
            let status = match self.ask(Request::Status)? {
                Answer::Status(status) => *status,
                other => return Err(unexpected(&other)),
            };
            if let Some(members) = self.members(&status)? {
                return Ok(Report { status, members });
            }
        }
        Err(Error::Unsteady)
    }

    /// All metrics of the helper as OpenMetrics text.
    pub fn metrics(&mut self) -> Result<String> {
        let mut all = String::new();
        loop {
            let from = u32::try_from(all.len()).map_err(|_| Error::Malformed("4 GiB of metrics".into()))?;
            match self.ask(Request::Metrics { from })? {
                Answer::Metrics { text, more: true } if text.is_empty() => {
                    return Err(Error::Malformed("an empty part".into()));
                }
                Answer::Metrics { text, more } => {
                    all.push_str(&text);
                    if !more {
                        return Ok(all);
                    }
                }
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// The views after `after` that the helper has learnt and remembers, in order; all that it remembers after view 0.
    pub fn views(&mut self, after: ViewNumber) -> Result<Vec<Seen>> {
        let mut all = Vec::new();
        let mut last = after;
        while let Some(seen) = self.view(last)? {
            last = seen.view;
            all.push(seen);
        }
        Ok(all)
    }

    /// Has the keeper asked to give this incarnation no more lease. Who wants to be sure asks again, until there is a view
    /// without it.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is in no view that the helper knows, or is the keeper's own node.
    pub fn expel(&mut self, who: Incarnation) -> Result<()> {
        match self.ask(Request::Expel(who))? {
            Answer::Taken => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// The first view after `after`, whole.
    fn view(&mut self, after: ViewNumber) -> Result<Option<Seen>> {
        let mut whole: Option<Seen> = None;
        loop {
            let from = whole.as_ref().map_or(0, |seen| seen.concerned.len());
            let from = u32::try_from(from).map_err(|_| Error::Malformed("2^32 members".into()))?;
            let part = match self.ask(Request::View { after, from })? {
                Answer::View(Some(part)) => *part,
                Answer::View(None) => return Ok(None),
                other => return Err(unexpected(&other)),
            };
            if part.more && part.concerned.is_empty() {
                return Err(Error::Malformed("an empty part".into()));
            }
            let more = part.more;
            whole = match whole {
                // The oldest was forgotten meanwhile: the next one is another.
                Some(seen) if seen.view != part.view => None,
                Some(mut seen) => {
                    seen.concerned.extend(part.concerned);
                    Some(seen)
                }
                None if from == 0 => Some(part),
                None => None,
            };
            if !more && whole.is_some() {
                return Ok(whole);
            }
        }
    }

    /// The members of the view that `status` names, or nothing if there is another by now.
    fn members(&mut self, status: &Status) -> Result<Option<Vec<Member>>> {
        let mut all = Vec::new();
        loop {
            let from = u32::try_from(all.len()).map_err(|_| Error::Malformed("2^32 members".into()))?;
            match self.ask(Request::Members { from })? {
                Answer::Members { view, .. } if view != status.view => return Ok(None),
                Answer::Members { members, more: true, .. } if members.is_empty() => {
                    return Err(Error::Malformed("an empty part".into()));
                }
                Answer::Members { members, more, .. } => {
                    all.extend(members);
                    if !more {
                        return Ok(Some(all));
                    }
                }
                other => return Err(unexpected(&other)),
            }
        }
    }

    fn ask(&mut self, request: Request) -> Result<Answer> {
        let answer = self.connection.call(&request.encode(), BootClock.now() + self.patience)?;
        match Answer::decode(&answer)? {
            Answer::Refused(why) => Err(Error::Refused(why)),
            answer => Ok(answer),
        }
    }
}

fn unexpected(answer: &Answer) -> Error {
    let mut text = format!("{answer:?}");
    text.truncate(text.floor_char_boundary(80));
    Error::Malformed(format!("another question's: {text}"))
}
