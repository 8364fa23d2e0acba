//! A connection to the helper.

use std::time::Duration;

use verbena_ipc::Connection;
use verbena_terms::{BootClock, Clock, Incarnation, Time, ViewNumber};

use crate::api::{Heard, Loaded, Node};
use crate::error::{Error, Result};
use crate::socket::Socket;
use crate::wire::{Answer, Departed, Departure, Detail, LoadOf, Member, Request, Seen, Status, Work};

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

/// How the cluster is, as far as the helper knows.
#[derive(Clone, Debug, PartialEq)]
pub struct Roll {
    /// How the helper is.
    pub status: Status,
    /// The members of its view, in order of rank, each with what it told of itself just now.
    pub nodes: Vec<Node>,
    /// The departed incarnations that are not settled.
    pub departed: Vec<Departed>,
    /// What is open at the helper's node.
    pub work: Work,
}

/// A helper that was asked to leave the cluster and to end.
pub struct Draining {
    helper: Helper,
    request: u64,
    departure: Option<Departure>,
}

/// How long members are given to say how they are.
const TELLING: Duration = Duration::from_millis(100);
/// What they told so short a time before they were asked will do: they are not asked again so soon.
const ASKED_ANEW: Duration = Duration::from_millis(250);
/// How often it is looked whether they have.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How often a report is begun again because the view changed while it was read.
const ATTEMPTS: usize = 5;

/// A connection to the helper at `socket`, made within `patience`.
pub(crate) fn connect_to(socket: &Socket, patience: Duration) -> Result<Connection> {
    let mode = socket.mode()?;
    Connection::connect_in(mode, &socket.path(), BootClock.now() + patience).map_err(|error| match error {
        verbena_ipc::Error::NoHelper { path } => Error::NoHelper { tried: path, running: socket.others() },
        other => other.into(),
    })
}

impl Helper {
    /// Connects to the helper at `socket`. Each call, this one too, waits at most `patience`.
    ///
    /// # Errors
    /// [`Error::NoHelper`] with the path that was tried if no helper listens there.
    pub fn connect(socket: &Socket, patience: Duration) -> Result<Self> {
        Ok(Helper { connection: connect_to(socket, patience)?, patience })
    }

    /// How the helper is.
    pub fn report(&mut self) -> Result<Report> {
        for _ in 0..ATTEMPTS {
            let status = self.status()?;
            if let Some(members) = self.members(&status)? {
                return Ok(Report { status, members });
            }
        }
        Err(Error::Unsteady)
    }

    fn status(&mut self) -> Result<Status> {
        match self.ask(Request::Status)? {
            Answer::Status(status) => Ok(*status),
            other => Err(unexpected(&other)),
        }
    }

    /// The state of the cluster. Asks the members; one that does not answer within a tenth of a second is shown with
    /// its last answer.
    pub fn roll(&mut self) -> Result<Roll> {
        for _ in 1..ATTEMPTS {
            match self.roll_of_one_view() {
                Err(Error::Unsteady) => {}
                other => return other,
            }
        }
        self.roll_of_one_view()
    }

    fn roll_of_one_view(&mut self) -> Result<Roll> {
        let Report { status, members } = self.report()?;
        let began = BootClock.now();
        let mut details = self.details(&status)?;
        // From now on their boards are read.
        self.loads_of(&status)?;
        // The answers to this first question are there a moment later.
        let is_fresh = |detail: &Detail, asked: Duration| {
            detail.told.is_some_and(|(_, age_ms)| Duration::from_millis(age_ms) <= asked + ASKED_ANEW)
        };
        loop {
            let asked = BootClock.now().since(began);
            if asked >= TELLING || details.iter().all(|detail| is_fresh(detail, asked)) {
                break;
            }
            std::thread::sleep(LOOK_EVERY);
            details = self.details(&status)?;
        }
        let loads = self.loads_of(&status)?;
        let nodes = members.into_iter().map(|member| {
            let load = loads.iter().find(|load| load.incarnation == member.incarnation);
            let detail = details.iter().find(|detail| detail.incarnation == member.incarnation);
            Node {
                is_self: member.incarnation == status.incarnation,
                heard: detail.and_then(|detail| detail.told).map(|(told, age_ms)| Heard { told, age_ms }),
                keys: detail.and_then(|detail| detail.keys),
                load: load.map(|LoadOf { load, age_ms, .. }| Loaded { load: *load, age_ms: *age_ms }),
                answers: None,
                member,
            }
        });
        let nodes = nodes.collect();
        Ok(Roll { nodes, departed: self.departed(&status)?, work: self.work()?, status })
    }

    /// What is open at the helper's node, and how far its leaving is.
    pub fn work(&mut self) -> Result<Work> {
        match self.ask(Request::Work)? {
            Answer::Work(work) => Ok(work),
            other => Err(unexpected(&other)),
        }
    }

    /// Has the helper's node leave the cluster in good order, and its process end.
    pub fn drain(mut self) -> Result<Draining> {
        let request = self.connection.post(&Request::Drain.encode(), BootClock.now() + self.patience)?;
        Ok(Draining { helper: self, request, departure: None })
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

    /// Asks the keeper to give this incarnation no more lease. A caller that must be sure repeats the call until there
    /// is a view without the incarnation.
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
        let request = |from| Request::Members { from };
        self.parts(status, request, |answer| match answer {
            Answer::Members { view, members, more } => Ok((view, members, more)),
            other => Err(unexpected(&other)),
        })
    }

    fn details(&mut self, status: &Status) -> Result<Vec<Detail>> {
        let request = |from| Request::Details { from };
        let all = self.parts(status, request, |answer| match answer {
            Answer::Details { view, details, more } => Ok((view, details, more)),
            other => Err(unexpected(&other)),
        });
        all?.ok_or(Error::Unsteady)
    }

    /// The loads of the members of the view that are known by now, as their boards say; some thousandths of a second
    /// after the first question that is all of them. Another call within five seconds disturbs none of the members.
    pub fn loads(&mut self) -> Result<Vec<LoadOf>> {
        for _ in 1..ATTEMPTS {
            let status = self.status()?;
            match self.loads_of(&status) {
                Err(Error::Unsteady) => {}
                other => return other,
            }
        }
        Err(Error::Unsteady)
    }

    fn loads_of(&mut self, status: &Status) -> Result<Vec<LoadOf>> {
        let request = |from| Request::Loads { from };
        let all = self.parts(status, request, |answer| match answer {
            Answer::Loads { view, loads, more } => Ok((view, loads, more)),
            other => Err(unexpected(&other)),
        });
        all?.ok_or(Error::Unsteady)
    }

    fn departed(&mut self, status: &Status) -> Result<Vec<Departed>> {
        let request = |from| Request::Departed { from };
        let all = self.parts(status, request, |answer| match answer {
            Answer::Departed { view, departed, more } => Ok((view, departed, more)),
            other => Err(unexpected(&other)),
        });
        all?.ok_or(Error::Unsteady)
    }

    /// All of what comes in parts, or nothing if it is of another view than `status` names.
    fn parts<T>(
        &mut self,
        status: &Status,
        request: impl Fn(u32) -> Request,
        read: impl Fn(Answer) -> Result<(ViewNumber, Vec<T>, bool)>,
    ) -> Result<Option<Vec<T>>> {
        let mut all = Vec::new();
        loop {
            let from = u32::try_from(all.len()).map_err(|_| Error::Malformed("2^32 members".into()))?;
            let (view, part, more) = read(self.ask(request(from))?)?;
            if view != status.view {
                return Ok(None);
            }
            if more && part.is_empty() {
                return Err(Error::Malformed("an empty part".into()));
            }
            all.extend(part);
            if !more {
                return Ok(Some(all));
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

impl Draining {
    /// How the node left, if it has within this time.
    ///
    /// # Errors
    /// [`Error::Ipc`] if the helper is gone and did not say how; [`Error::Refused`] if it does not know the question.
    pub fn wait(&mut self, at_most: Duration) -> Result<Option<Departure>> {
        if self.departure.is_none() {
            self.hear(BootClock.now() + at_most)?;
        }
        Ok(self.departure)
    }

    /// What is open at the node and how far its leaving is; nothing if it has left meanwhile.
    pub fn work(&mut self) -> Result<Option<Work>> {
        let until = BootClock.now() + self.helper.patience;
        self.helper.connection.post(&Request::Work.encode(), until)?;
        while self.departure.is_none() && BootClock.now() < until {
            if let Some(Answer::Work(work)) = self.hear(until)? {
                return Ok(Some(work));
            }
        }
        Ok(None)
    }

    /// Takes an answer; that to the drain is kept.
    fn hear(&mut self, until: Time) -> Result<Option<Answer>> {
        let Some(response) = self.helper.connection.poll(until)? else { return Ok(None) };
        let answer = Answer::decode(&response.answer.map_err(verbena_ipc::Error::from)?)?;
        match answer {
            Answer::Refused(why) => Err(Error::Refused(why)),
            Answer::Drained(departure) if response.number == self.request => {
                self.departure = Some(departure);
                Ok(None)
            }
            answer => Ok(Some(answer)),
        }
    }
}

fn unexpected(answer: &Answer) -> Error {
    let mut text = format!("{answer:?}");
    text.truncate(text.floor_char_boundary(80));
    Error::Malformed(format!("another question's: {text}"))
}
