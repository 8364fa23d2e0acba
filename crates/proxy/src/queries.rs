//! What the queries of a fill read, where a relay sees them (rules Q1 to Q3).

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use verbena_caching::BESIDE_DATABASE;
use verbena_content::{Dependency, Names, Scope};
use verbena_statements::{Charged, Fill, Fills, Tag, Why, spelled};

/// By which the application's statements may say for which request they are.
pub(crate) const FILL: HeaderName = HeaderName::from_static("verbena-fill");

/// In which the application says, with the tag of the fill, that its answer is made of the database alone; or that it is not.
pub(crate) const COMPLETE: HeaderName = HeaderName::from_static("verbena-complete");

/// What a proxy and the relay of its process share.
#[derive(Clone)]
pub struct Queries {
    /// The fills under way, and what the relay has seen for each.
    pub fills: Arc<Mutex<Fills>>,
    /// The identity of the database, in front of each name.
    pub identity: Arc<[u8]>,
    /// Pages are made of the database alone: the configuration promises it.
    pub is_complete: bool,
    /// Whether no other relay of the cluster can see queries of its fills, at this moment.
    pub is_only: Arc<dyn Fn() -> bool + Send + Sync>,
}

/// A request, from before it is forwarded until its last byte is here.
pub(crate) struct Charging {
    queries: Queries,
    /// No other relay saw queries when it began.
    was_only: bool,
    fill: Option<Fill>,
    tag: Tag,
    /// The answer says that it is made of the database alone.
    is_proved: bool,
}

/// Why an answer must not be stored.
pub(crate) struct Unstored {
    pub why: Why,
    /// The next answer may be another: what was seen may be of another request.
    pub is_of_this_time: bool,
}

/// What a page depends on, as far as it is known when its head is here.
pub(crate) struct Depends {
    /// What the answer says of itself.
    pub declared: Scope,
    /// Its own address, and how it is purged.
    pub addresses: Vec<Dependency>,
    /// What its queries read; nothing where no relay sees them.
    pub charging: Option<Charging>,
}

impl Queries {
    /// The dependencies of a set of names; everything if it is that.
    pub fn scope(&self, names: &Names, set: &verbena_statements::Names) -> Scope {
        self.dependencies(names, set).map_or(Scope::Everything, Scope::of)
    }

    fn dependencies(&self, names: &Names, set: &verbena_statements::Names) -> Option<Vec<Dependency>> {
        Some(spelled(set, &self.identity)?.iter().map(|name| names.dependency(name)).collect())
    }

    /// A fill begins.
    pub(crate) fn begin(&self) -> Charging {
        let (tag, was_only) = (tag(), (self.is_only)());
        let fill = Some(self.fills.lock().begin(Some(tag)));
        Charging { queries: self.clone(), was_only, fill, tag, is_proved: false }
    }

    /// A request is forwarded whose answer is not stored: what it reads and writes is no fill's, if its statements say that they are its own.
    pub(crate) fn pass(&self, headers: &mut HeaderMap) -> Charging {
        let tag = tag();
        let fill = Some(self.fills.lock().pass(tag));
        let charging = Charging { queries: self.clone(), was_only: false, fill, tag, is_proved: false };
        charging.mark(headers);
        charging
    }
}

/// Nobody guesses a tag and has a read counted for another fill alone.
fn tag() -> Tag {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

/// What a request touches that writes where the database is seen.
pub(crate) fn beside_database(names: &Names) -> Scope {
    Scope::of([names.dependency(BESIDE_DATABASE.as_bytes())])
}

impl Charging {
    /// Tells the application for which fill its statements are.
    pub fn mark(&self, headers: &mut HeaderMap) {
        if let Ok(value) = HeaderValue::try_from(format!("{:016x}", self.tag)) {
            headers.insert(FILL, value);
        }
    }

    /// Takes out of an answer what its application testifies. A tag that is another's, or two of them, prove nothing.
    pub fn heed(&mut self, headers: &mut HeaderMap) {
        let said = format!("{:016x}", self.tag);
        let mut lines = headers.get_all(COMPLETE).iter();
        self.is_proved = lines.next().is_some_and(|line| line.as_bytes() == said.as_bytes()) && lines.next().is_none();
        if let Some(line) = headers.remove(COMPLETE)
            && !self.is_proved
        {
            tracing::debug!(says = ?line, "an application does not testify that its page is made of the database alone");
        }
    }

    fn finish(&mut self) -> Charged {
        let Some(fill) = self.fill.take() else { return Charged::NotStored(Why::Relay) };
        let charged = self.queries.fills.lock().finish(fill);
        match charged {
            // What another relay saw is not among it.
            Charged::Names(_) if !self.was_only || !(self.queries.is_only)() => Charged::Everything(Why::Relay),
            charged => charged,
        }
    }
}

impl Drop for Charging {
    fn drop(&mut self) {
        if self.fill.is_some() {
            self.finish();
        }
    }
}

impl Depends {
    /// What the page depends on, and why it is everything if it is. The last byte of its answer is here.
    ///
    /// # Errors
    /// Why it must not be stored.
    pub fn on(self, names: &Names, page: Dependency) -> Result<(Scope, Option<Why>), Unstored> {
        let Depends { declared, addresses, charging } = self;
        let mut why = None;
        let list = match charging {
            None => None,
            Some(mut charging) => match charging.finish() {
                Charged::NotStored(why) => return Err(Unstored { why, is_of_this_time: false }),
                Charged::NotThisTime(why) => return Err(Unstored { why, is_of_this_time: true }),
                Charged::Everything(reason) => {
                    why = Some(reason);
                    None
                }
                Charged::Names(_) if !(charging.queries.is_complete || charging.is_proved) => None,
                Charged::Names(set) => charging.queries.dependencies(names, &set),
            },
        };
        let scope = match (declared, list) {
            (Scope::Everything, None) => return Ok((Scope::Everything, why)),
            (declared, list) => {
                let all = declared.dependencies().iter().copied().chain(list.into_iter().flatten()).chain(addresses);
                // One that asked nothing of the database depends on itself.
                Scope::of(all.chain([page]))
            }
        };
        let is_too_long = scope == Scope::Everything;
        Ok((scope, is_too_long.then_some(Why::TooMany)))
    }
}
