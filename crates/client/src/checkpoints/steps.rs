//! Joining, saving, and finding out that all have saved, step by step: what is read and put is the caller's.
//!
//! ```text
//!   save:      look -> head of its own slot -> look -> put over that version -> all heads, from the next process on -> swap
//!                ^                                       |  another put there                    |                      | another swapped
//!                +---------------------------------------+                                       v one is missing       v
//!                                                                                       done, and not complete     look, swap
//! ```
//!
//! The record alone decides: a checkpoint is complete when the record was swapped to say so, from one of the era in which all parts of it are, and never otherwise. Parts only say that it may be.
//! docs/concepts/memory.md says what could happen, and why it does not.

use super::record::{Head, Record, Refusal};

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step<T> {
    /// Read the record.
    Look,
    /// Read what a slot of a process has.
    Head {
        process: u32,
        slot: u32,
    },
    /// Put the process's part with this head into a slot of it, over this version.
    Put {
        process: u32,
        slot: u32,
        head: Head,
        over: u64,
    },
    /// Put the record over this version of it.
    Swap {
        record: Record,
        over: u64,
    },
    Done(T),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Record(Record, u64),
    Head(Head, u64),
    /// Of a put or swap: whether it was over that version.
    Put(bool),
}

pub(super) type Done<T> = Step<Result<T, Refusal>>;

/// Whatever goes step by step. The first is to look.
pub(super) trait Machine<T> {
    /// The next step, after what came of the last.
    fn next(&mut self, seen: Seen) -> Done<T>;
}

/// Looks whether all have saved checkpoint `number` in an era, and if so sees to it that the record says so. Gives whether it does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Complete {
    era: u64,
    number: u64,
    /// The process whose part is read first; the others follow in turn.
    from: u32,
    /// How many have saved, of those that were read in turn.
    saved: u32,
    /// The last record, while parts are read.
    record: Option<(Record, u64)>,
}

impl Complete {
    pub(super) fn new(era: u64, number: u64) -> Complete {
        Complete { era, number, from: 0, saved: 0, record: None }
    }

    /// Reads the next process that has not saved, or swaps the record. Parts that were read need not be read again: no
    /// process changes them while the record is as stated here.
    fn on(&mut self, record: Record, version: u64) -> Done<bool> {
        if record.era != self.era {
            return Step::Done(Err(Refusal::RolledBack));
        }
        if record.complete >= self.number {
            return Step::Done(Ok(true));
        }
        if record.complete + 1 < self.number {
            return Step::Done(Ok(false));
        }
        let step = if self.saved < record.processes() {
            let process = (self.from + self.saved) % record.processes();
            Step::Head { process, slot: record.slot(self.number) }
        } else {
            let mut next = record.clone();
            next.completed();
            Step::Swap { record: next, over: version }
        };
        self.record = Some((record, version));
        step
    }
}

impl Machine<bool> for Complete {
    fn next(&mut self, seen: Seen) -> Done<bool> {
        match seen {
            Seen::Record(record, version) => self.on(record, version),
            Seen::Head(head, _) => {
                if head != (Head { era: self.era, number: self.number }) {
                    return Step::Done(Ok(false));
                }
                self.saved += 1;
                let (record, version) = self.record.take().expect("invariant: it was read before parts are");
                self.on(record, version)
            }
            Seen::Put(true) => Step::Done(Ok(true)),
            Seen::Put(false) => Step::Look,
        }
    }
}

/// A process saves its part of a checkpoint. Gives the newest complete one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Save {
    process: u32,
    head: Head,
    /// Of the part.
    length: u64,
    at: At,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum At {
    First,
    /// The checkpoint before is not recorded as complete: perhaps no process has recorded it yet.
    Before(Complete),
    Slot,
    Again {
        version: u64,
    },
    Putting {
        record: Record,
        version: u64,
    },
    /// It is saved.
    After(Complete),
}

impl Save {
    pub(super) fn new(process: u32, era: u64, number: u64, length: u64) -> Save {
        Save { process, head: Head { era, number }, length, at: At::First }
    }

    /// Whether it may save; not yet where the one before may be complete.
    fn check(&self, record: &Record) -> Result<bool, Refusal> {
        let Head { era, number } = self.head;
        if !record.has_joined(self.process)? || record.era != era {
            return Err(Refusal::RolledBack);
        }
        if number <= record.complete {
            return Err(Refusal::Bad(format!("checkpoint {number} is complete: {} is the newest", record.complete)));
        }
        if number > record.complete + 2 {
            return Err(self.too_early(record.complete + 1));
        }
        if self.length > record.bytes {
            return Err(Refusal::Bad(format!("a part of {} bytes: at most {}", self.length, record.bytes)));
        }
        Ok(number == record.complete + 1)
    }

    fn too_early(&self, before: u64) -> Refusal {
        Refusal::Bad(format!("checkpoint {} comes after {before}, which is not complete", self.head.number))
    }

    fn looked(&mut self, record: Record, version: u64) -> Done<u64> {
        let (slot, Head { era, number }) = (record.slot(self.head.number), self.head);
        match (self.check(&record), &mut self.at) {
            (Err(refusal), _) => Step::Done(Err(refusal)),
            (Ok(true), At::Again { version: over }) => {
                let over = *over;
                self.at = At::Putting { record, version };
                Step::Put { process: self.process, slot, head: self.head, over }
            }
            (Ok(true), _) => {
                self.at = At::Slot;
                Step::Head { process: self.process, slot }
            }
            (Ok(false), At::First) => {
                let mut before = Complete::new(era, number - 1);
                let step = before.on(record, version);
                self.at = At::Before(before);
                self.before(step)
            }
            (Ok(false), _) => Step::Done(Err(self.too_early(number - 1))),
        }
    }

    fn before(&mut self, step: Done<bool>) -> Done<u64> {
        match forward(step) {
            Err(Ok(true)) => {
                // Then it is not looked for again.
                self.at = At::Slot;
                Step::Look
            }
            Err(Ok(false)) => Step::Done(Err(self.too_early(self.head.number - 1))),
            Err(Err(refusal)) => Step::Done(Err(refusal)),
            Ok(step) => step,
        }
    }

    fn after(&self, step: Done<bool>) -> Done<u64> {
        match forward(step) {
            Err(is_complete) => Step::Done(is_complete.map(|it| self.head.number - u64::from(!it))),
            Ok(step) => step,
        }
    }
}

impl Machine<u64> for Save {
    fn next(&mut self, seen: Seen) -> Done<u64> {
        match (&mut self.at, seen) {
            (At::Before(before), seen) => {
                let step = before.next(seen);
                self.before(step)
            }
            (At::After(after), seen) => {
                let step = after.next(seen);
                self.after(step)
            }
            (_, Seen::Record(record, version)) => self.looked(record, version),
            (_, Seen::Head(head, version)) => {
                if head == self.head {
                    let text = format!("process {} has saved checkpoint {} already", self.process, head.number);
                    return Step::Done(Err(Refusal::Bad(text)));
                }
                self.at = At::Again { version };
                Step::Look
            }
            (At::Putting { record, version }, Seen::Put(true)) => {
                let (record, version, Head { era, number }) = (record.clone(), *version, self.head);
                // Its own is there.
                let mut after = Complete { from: self.process, saved: 1, ..Complete::new(era, number) };
                let step = after.on(record, version);
                self.at = At::After(after);
                self.after(step)
            }
            // What was believed dead put there, or a successor did: the record says which.
            (_, Seen::Put(_)) => {
                self.at = At::First;
                Step::Look
            }
        }
    }
}

/// A process begins, or begins again. Gives the record in which it has joined.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Join {
    process: u32,
    at: Joining,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Joining {
    First,
    /// An era is to end in which the next checkpoint may be complete without a record of it yet.
    Ending(Complete),
    Last,
    Swapping(Record),
}

impl Join {
    pub(super) fn new(process: u32) -> Join {
        Join { process, at: Joining::First }
    }

    fn ending(&mut self, step: Done<bool>) -> Done<Record> {
        forward(step).unwrap_or_else(|_| {
            self.at = Joining::Last;
            Step::Look
        })
    }
}

impl Machine<Record> for Join {
    fn next(&mut self, seen: Seen) -> Done<Record> {
        match (&mut self.at, seen) {
            (Joining::Ending(ending), seen) => {
                let step = ending.next(seen);
                self.ending(step)
            }
            (at, Seen::Record(record, over)) => match record.has_joined(self.process) {
                Err(refusal) => Step::Done(Err(refusal)),
                Ok(true) if *at == Joining::First => {
                    let number = record.complete + 1;
                    let mut ending = Complete { from: self.process, ..Complete::new(record.era, number) };
                    let step = ending.on(record, over);
                    self.at = Joining::Ending(ending);
                    self.ending(step)
                }
                Ok(_) => {
                    let mut next = record;
                    if let Err(refusal) = next.join(self.process) {
                        return Step::Done(Err(refusal));
                    }
                    self.at = Joining::Swapping(next.clone());
                    Step::Swap { record: next, over }
                }
            },
            (Joining::Swapping(record), Seen::Put(true)) => Step::Done(Ok(record.clone())),
            (_, _) => {
                self.at = Joining::First;
                Step::Look
            }
        }
    }
}

/// What is to be done still, or what it came to.
fn forward<T, U>(step: Step<T>) -> Result<Step<U>, T> {
    match step {
        Step::Look => Ok(Step::Look),
        Step::Head { process, slot } => Ok(Step::Head { process, slot }),
        Step::Put { process, slot, head, over } => Ok(Step::Put { process, slot, head, over }),
        Step::Swap { record, over } => Ok(Step::Swap { record, over }),
        Step::Done(done) => Err(done),
    }
}
