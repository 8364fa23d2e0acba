//! What programs ask of memory that nodes share.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use verbena_ipc::{ClientId, Request};
use verbena_memory::service::{MemoryService, OwnMemory};
use verbena_memory::{
    Answer as Said, MAX_SEGMENT_BYTES, Placement as Place, Reclaims, Refusal, RequestId, Segment, SegmentName, Target,
    Wanted, Wish,
};
use verbena_metrics::{Registry, RegistryError};
use verbena_protocol::memory::{
    Failure, MemoryAnswer, MemoryRequest, NewSegment, PART_SEGMENTS, Placement, Reclaims as Told, SegmentInfo,
    SegmentStat, VALUE_PART_BYTES, Which,
};
use verbena_protocol::wire::Answer;
use verbena_terms::Rank;

use crate::membership::history::millis;
use crate::membership::status::{Names, Status};
use crate::programs::pending_reply::{PendingReply, give};
use crate::programs::rights::{Refused, check_runs};
use crate::programs::staging::{Budget, Counted, Full, MOST_BYTES, Parcel};
use crate::programs::windows;

/// The longest that a request may take.
const LONGEST: Duration = Duration::from_secs(3600);

/// Of all programs.
pub(crate) struct Segments {
    service: MemoryService,
    own: OwnMemory,
    /// Knows what members are called.
    status: Arc<Status>,
    programs: HashMap<ClientId, Arc<Mutex<Program>>>,
    /// Of values that programs stage, put and fetch.
    budget: Budget,
}

/// What is on its way to and from one program.
struct Program {
    /// Of the value that it is about to put.
    staged: Parcel,
    /// What it got last, if that was too long for one answer, by the name that it gave it.
    shelf: (u64, Parcel),
    listed: (Vec<SegmentInfo>, Vec<String>),
    /// Puts that the program requested while it had locks, under numbers of their own, and that may be on their way:
    /// without an answer, or with one of unknown outcome. Each has its request's name as soon as there is one.
    puts: BTreeMap<u64, Option<RequestId>>,
    asked: u64,
}

impl Segments {
    /// # Errors
    /// If the registry shows others already.
    pub(crate) fn new(service: MemoryService, status: Arc<Status>, metrics: &Registry) -> Result<Self, RegistryError> {
        let budget = Budget::default();
        let taken = budget.clone();
        let help = "Bytes of values that programs stage, put, or have not fetched yet.";
        metrics.gauge_from("verbena_memory_programs_bytes", help, move || taken.taken() as f64)?;
        Ok(Segments { own: service.own_memory(), service, status, programs: HashMap::new(), budget })
    }

    /// A program came.
    pub(crate) fn arrived(&mut self, client: ClientId) {
        let (staged, shelf) = (Parcel::new(&self.budget), (0, Parcel::new(&self.budget)));
        let program = Program { staged, shelf, listed: Default::default(), puts: BTreeMap::new(), asked: 0 };
        self.programs.insert(client, Arc::new(Mutex::new(program)));
    }

    /// A program went. What it had asked for is done.
    pub(crate) fn gone(&mut self, client: ClientId) {
        self.programs.remove(&client);
    }

    /// Whether nothing that a program put is on its way.
    pub(crate) fn are_settled(&self, client: ClientId) -> bool {
        self.programs.get(&client).is_none_or(|program| program.lock().puts.is_empty())
    }

    /// Does something when nothing that a program put is on its way any more: at once, if nothing is (rules M3, F5).
    pub(crate) fn when_settled(&self, client: ClientId, then: impl FnOnce() + Send + 'static) {
        let Some(program) = self.programs.get(&client).cloned() else { return then() };
        let puts = program.lock().puts.clone();
        let on_their_way: Vec<RequestId> = puts.values().copied().flatten().collect();
        if on_their_way.is_empty() {
            return then();
        }
        self.service.when_settled(on_their_way, move || {
            then();
            // Not before: what comes next waits for the same, and so comes after this.
            program.lock().puts.retain(|put, _| !puts.contains_key(put));
        });
    }

    /// Answers, now or later. A program that has locks may make puts under them.
    pub(crate) fn handle(&mut self, request: Request<'_>, patience_ms: u64, asked: MemoryRequest, has_locks: bool) {
        let Some(program) = self.programs.get(&request.client()).cloned() else { return };
        let at_once = match &asked {
            MemoryRequest::More { shelf, from } => Some(program.lock().more(*shelf, *from)),
            MemoryRequest::Stage { from, bytes } => Some(program.lock().stage(*from, bytes)),
            MemoryRequest::List { from: from @ 1.., .. } => Some(program.lock().list_from(*from as usize)),
            _ => None,
        };
        if let Some(answer) = at_once {
            return give(request, &Answer::Memory(answer));
        }
        let (user, mut shelf, mut has) = (request.uid(), 0, 0);
        match asked {
            MemoryRequest::Get { shelf: its, .. } => shelf = its,
            MemoryRequest::Window { has: its, .. } => has = its,
            _ => {}
        }
        let (wish, counted) = match self.wish(&mut program.lock(), user, asked) {
            Ok(wanted) => wanted,
            Err((why, text)) => return give(request, &Answer::Memory(MemoryAnswer::Failed(why, text))),
        };
        let patience = Duration::from_millis(patience_ms).min(LONGEST);
        let reply = Arc::new(Mutex::new(PendingReply::Looks));
        let is_put = matches!(wish, Wish::Put { .. });
        let put = program.lock().begins(is_put && has_locks);
        let (status, own) = (self.status.clone(), self.own.clone());
        let (told, asker) = (reply.clone(), Asker { program: program.clone(), status, own, user, shelf, has });
        let begun = self.service.request(wish, patience, move |said| {
            drop(counted);
            // Late, or unknown: something of it may be on its way all the same.
            if !matches!(said, Said::Refused(Refusal::Unknown | Refusal::TimedOut { .. })) {
                asker.program.lock().puts.remove(&put);
            }
            let (answer, descriptor) = asker.answer_to(said);
            told.lock().tell_with(Answer::Memory(answer), descriptor);
        });
        match begun {
            Ok(id) => program.lock().begun(put, id),
            Err(error) => {
                program.lock().puts.remove(&put);
                reply.lock().tell(Answer::Memory(MemoryAnswer::Failed(Failure::Unavailable, error.to_string())));
            }
        }
        reply.lock().look(request);
    }

    /// What is wanted of the service, and what counts until it is answered.
    fn wish(&self, program: &mut Program, user: u32, asked: MemoryRequest) -> Result<(Wish, Option<Counted>), Refused> {
        let mut counted = None;
        let wish = match asked {
            MemoryRequest::Allocate(new) => self.allocation(&new, user)?,
            MemoryRequest::Release(which) => Wish::Release { target: target(&which)?, user },
            MemoryRequest::Get { which, offset, length, .. } => {
                Wish::Get { target: target(&which)?, offset, length, user }
            }
            MemoryRequest::Put { which, offset, is_staged, bytes, over } => {
                let mut all = vec![];
                if is_staged {
                    let (staged, its) = program.staged.take();
                    (all, counted) = (staged, Some(its));
                }
                all.extend_from_slice(&bytes);
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Wish::Put {
                    target: target(&which)?,
                    offset,
                    bytes: all.into(),
                    named: over,
                    stamp_ns: since.as_nanos() as u64,
                    user,
                }
            }
            MemoryRequest::Stat(which) => Wish::Stat { target: target(&which)? },
            MemoryRequest::Window { which, .. } => {
                windows::may_read(user, rustix::process::geteuid().as_raw())?;
                Wish::Window { target: target(&which)?, user }
            }
            MemoryRequest::List { prefix, .. } => Wish::List { prefix },
            MemoryRequest::Reclaim { bytes, notice_ms } => {
                may_reclaim(user, rustix::process::geteuid().as_raw())?;
                Wish::Reclaim { bytes, notice: Duration::from_millis(notice_ms) }
            }
            MemoryRequest::More { .. } | MemoryRequest::Stage { .. } => {
                return Err((Failure::Bad, "parts are answered at once".into()));
            }
        };
        Ok((wish, counted))
    }

    fn allocation(&self, new: &NewSegment, user: u32) -> Result<Wish, Refused> {
        let name = new.name.as_deref().map(SegmentName::new).transpose().map_err(|refusal| refused(&refusal))?;
        let placement = match &new.placement {
            Placement::MostFree => Place::MostFree,
            Placement::Local => Place::Local,
            Placement::Spread => Place::Spread,
            Placement::Node(name) => Place::Node(self.rank_of(name)?),
        };
        let NewSegment { bytes, coherence, writers, copies, .. } = *new;
        let wanted = Wanted { writers, copies, ..Wanted::new(name, bytes, coherence, user) };
        Ok(Wish::Allocate { wanted, placement })
    }

    fn rank_of(&self, name: &str) -> Result<Rank, Refused> {
        let members = self.status.all_members();
        let found = members.iter().find(|member| member.name == name);
        found.map(|member| member.incarnation.rank).ok_or_else(|| {
            let text =
                format!("no node {name} is in the cluster's view: choose most-free, local, spread, or a node that `verbena status` shows");
            (Failure::Bad, text)
        })
    }
}

impl Program {
    /// Something is about to be asked for: the number under which it is remembered, if it has to be.
    fn begins(&mut self, is_remembered: bool) -> u64 {
        self.asked += 1;
        if is_remembered {
            self.puts.insert(self.asked, None);
        }
        self.asked
    }

    /// It is asked for, and may have been answered.
    fn begun(&mut self, put: u64, id: RequestId) {
        if let Some(request) = self.puts.get_mut(&put) {
            *request = Some(id);
        }
    }

    fn stage(&mut self, from: u64, bytes: &[u8]) -> MemoryAnswer {
        if from == 0 {
            self.staged.empty();
        }
        let has = self.staged.bytes().len() as u64;
        if from != has || has + bytes.len() as u64 > MAX_SEGMENT_BYTES {
            self.staged.empty();
            let text =
                format!("a part from byte {from} on, where {has} bytes are staged and {MAX_SEGMENT_BYTES} may be");
            return MemoryAnswer::Failed(Failure::Bad, text);
        }
        match self.staged.add(bytes) {
            Ok(()) => MemoryAnswer::Staged,
            Err(Full) => too_much(),
        }
    }

    fn more(&mut self, shelf: u64, from: u64) -> MemoryAnswer {
        let (its, parcel) = &mut self.shelf;
        let rest =
            usize::try_from(from).ok().and_then(|from| parcel.bytes().get(from..)).filter(|rest| !rest.is_empty());
        let Some(rest) = rest.filter(|_| *its == shelf) else {
            return MemoryAnswer::Failed(Failure::Bad, format!("nothing lies on shelf {shelf} from byte {from} on"));
        };
        let part = rest[..rest.len().min(VALUE_PART_BYTES)].to_vec();
        if part.len() == rest.len() {
            parcel.empty();
        }
        MemoryAnswer::Part(part)
    }

    fn shelve(&mut self, shelf: u64, value: verbena_memory::Value) -> MemoryAnswer {
        let verbena_memory::Value { mut bytes, version, stamp_ns } = value;
        let all = bytes.len() as u64;
        let first = if bytes.len() <= VALUE_PART_BYTES {
            std::mem::take(&mut bytes)
        } else {
            let first = bytes[..VALUE_PART_BYTES].to_vec();
            self.shelf.0 = shelf;
            if let Err(Full) = self.shelf.1.hold(bytes) {
                return too_much();
            }
            first
        };
        MemoryAnswer::Value { version, stamp_ns, bytes: all, first }
    }

    fn list_from(&mut self, from: usize) -> MemoryAnswer {
        let (segments, silent) = &mut self.listed;
        let rest = segments.get(from..).unwrap_or_default();
        let part = rest[..rest.len().min(PART_SEGMENTS)].to_vec();
        let (more, silent) = (part.len() < rest.len(), silent.clone());
        if !more {
            self.listed = Default::default();
        }
        MemoryAnswer::List { segments: part, silent, more }
    }
}

/// The program that made a request, and what it asked for.
struct Asker {
    program: Arc<Mutex<Program>>,
    status: Arc<Status>,
    own: OwnMemory,
    user: u32,
    /// What it calls what it gets.
    shelf: u64,
    /// The view of whose memory it has a descriptor.
    has: u32,
}

impl Asker {
    /// The answer for the program, and the descriptor that goes with it.
    fn answer_to(&self, said: Said) -> (MemoryAnswer, Option<OwnedFd>) {
        let Asker { program, status, own, user, shelf, has } = self;
        let answer = match said {
            Said::Allocated(segment) => MemoryAnswer::Allocated(info(&segment, None, &status.names())),
            Said::Released => MemoryAnswer::Released,
            Said::Value(value) => program.lock().shelve(*shelf, value),
            Said::Put(version) => MemoryAnswer::Put(version),
            Said::Stat { segment, version, stamp_ns, goes_in } => {
                let (id, segment) = (segment.id, info(&segment, goes_in, &status.names()));
                let is_yours = segment.owner == *user;
                MemoryAnswer::Stat(SegmentStat { id, segment, version, stamp_ns, is_yours })
            }
            Said::Listed { segments, silent, going } => {
                let names = status.names();
                let listed = segments.iter().map(|segment| info(segment, going.get(&segment.id).copied(), &names));
                let listed = listed.collect();
                let silent = silent.into_iter().map(|home| names.of(home)).collect();
                let mut program = program.lock();
                program.listed = (listed, silent);
                program.list_from(0)
            }
            Said::Reclaims(Reclaims { share, offered, taken, segments, bytes, first_in }) => {
                let (segments, first_in_ms) = (u32::try_from(segments).unwrap_or(u32::MAX), first_in.map(millis));
                MemoryAnswer::Reclaims(Told { share, offered, taken, segments, bytes, first_in_ms })
            }
            Said::Window(segment, view) => return windows::pane(&segment, view, *has, own),
            Said::Refused(Refusal::Elsewhere { id, home }) => {
                let text = format!(
                    "segment {id} is at node {}, and only programs there read its value in place: get it",
                    status.names().of(home)
                );
                MemoryAnswer::Failed(Failure::Elsewhere, text)
            }
            Said::Refused(Refusal::Reclaimed { id, home }) => {
                let text = format!("segment {id} was reclaimed: node {} took its memory back", status.names().of(home));
                MemoryAnswer::Failed(Failure::Reclaimed, text)
            }
            Said::Refused(refusal) => {
                let (why, text) = refused(&refusal);
                MemoryAnswer::Failed(why, text)
            }
        };
        (answer, None)
    }
}

/// Of values that go between programs and this helper.
fn too_much() -> MemoryAnswer {
    let text = format!(
        "values of {MOST_BYTES} bytes are on their way between programs and this node: try again when some have come"
    );
    MemoryAnswer::Failed(Failure::Unavailable, text)
}

fn target(which: &Which) -> Result<Target, Refused> {
    Ok(match which {
        Which::Name(name) => Target::Name(SegmentName::new(name).map_err(|refusal| refused(&refusal))?),
        Which::Id(id) => Target::Id(*id),
    })
}

/// A node's memory is taken back by whose process the node is, or root.
fn may_reclaim(user: u32, runs: u32) -> Result<(), Refused> {
    check_runs(user, runs, Failure::NotYours, "what it offers is theirs to say")
}

fn info(segment: &Segment, goes_in: Option<Duration>, names: &Names) -> SegmentInfo {
    let Segment { id, wanted, .. } = segment;
    SegmentInfo {
        id: *id,
        name: wanted.name.as_ref().map(|name| name.as_str().to_owned()),
        bytes: wanted.bytes,
        coherence: wanted.coherence,
        writers: wanted.writers,
        takes: wanted.extent_bytes(),
        owner: wanted.owner,
        home: names.of(segment.home),
        copies: wanted.copies,
        backups: segment.backups.iter().map(|place| names.of(place.home)).collect(),
        goes_in_ms: goes_in.map(millis),
    }
}

fn refused(refusal: &Refusal) -> Refused {
    let why = match refusal {
        Refusal::NoName { .. }
        | Refusal::Empty
        | Refusal::TooLarge { .. }
        | Refusal::Writers { .. }
        | Refusal::Copies { .. }
        | Refusal::NullCopies
        | Refusal::FewHomes { .. }
        | Refusal::NoVersion
        | Refusal::OverShare { .. }
        | Refusal::NoHome { .. } => Failure::Bad,
        Refusal::NoRoom { .. } | Refusal::NoWords { .. } | Refusal::OverLimit { .. } => Failure::NoRoom,
        Refusal::Exists { .. } => Failure::Exists,
        Refusal::NotFound { .. } => Failure::NotFound,
        Refusal::Released { .. } => Failure::Released,
        Refusal::Reclaimed { .. } => Failure::Reclaimed,
        Refusal::Elsewhere { .. } => Failure::Elsewhere,
        Refusal::Lost { .. } => Failure::Lost,
        Refusal::NotYours { .. } => Failure::NotYours,
        Refusal::OutOfRange { .. } => Failure::OutOfRange,
        Refusal::Conflict { current, .. } => Failure::Conflict { current: *current },
        Refusal::TimedOut { .. } => Failure::Late,
        Refusal::Unknown => Failure::Unknown,
        Refusal::Overloaded { .. } | Refusal::TooMuch { .. } | Refusal::Leaving => Failure::Unavailable,
    };
    (why, refusal.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_the_node_and_root_say_what_it_offers() {
        assert_eq!((may_reclaim(1000, 1000), may_reclaim(0, 1000)), (Ok(()), Ok(())));
        for (user, runs) in [(1001, 1000), (1000, 0)] {
            let (why, text) = may_reclaim(user, runs).unwrap_err();
            assert!(why == Failure::NotYours && text.contains(&format!("user {user} is not")), "{text}");
        }
    }
}
