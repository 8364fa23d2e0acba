//! What the queries of a fill read, where a relay sees them (rules Q1 to Q3).

use std::collections::BTreeSet;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use verbena_caching::BESIDE_DATABASE;
use verbena_content::{Dependency, Names, Scope};
use verbena_reads::{Read, ReadLogs, Watching};
use verbena_statements::{Charged, Fill, FillRules, Fills, Tag, Why, spelled};

/// By which the application's statements may say for which request they are.
pub(crate) const FILL: HeaderName = HeaderName::from_static("verbena-fill");

/// In which the application says, with the tag of the fill, that its answer is made of the database alone; or that it is not.
pub(crate) const COMPLETE: HeaderName = HeaderName::from_static("verbena-complete");

/// What a proxy and the relays share.
#[derive(Clone)]
pub struct Queries {
    /// A relay runs in this process.
    pub has_relay: bool,
    /// The fills under way, and what that relay has seen for each.
    pub fills: Arc<Mutex<Fills>>,
    /// The identity of the database, in front of each name.
    pub identity: Arc<[u8]>,
    /// Pages are made of the database alone: the configuration promises it.
    pub is_complete: bool,
    /// What the relays of other processes have seen.
    pub logs: Option<ReadLogs>,
}

/// A request, from before it is forwarded until its last byte is here.
pub(crate) struct Charging {
    queries: Queries,
    fill: Option<Fill>,
    /// At the relays of other processes.
    watching: Option<Watching>,
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
    /// Where no relay runs in this process.
    pub fn of_others(logs: ReadLogs) -> Queries {
        let fills = Arc::new(Mutex::new(Fills::new(FillRules::default())));
        Queries { has_relay: false, fills, identity: Arc::from([]), is_complete: false, logs: Some(logs) }
    }

    /// The dependencies of a set of names; everything if it is that.
    pub fn scope(&self, names: &Names, set: &verbena_statements::Names) -> Scope {
        self.dependencies(names, set).map_or(Scope::Everything, Scope::of)
    }

    fn dependencies(&self, names: &Names, set: &verbena_statements::Names) -> Option<Vec<Dependency>> {
        Some(spelled(set, &self.identity)?.iter().map(|name| names.dependency(name)).collect())
    }

    /// A fill begins, before it is forwarded; none where no relay sees its queries.
    pub(crate) async fn begin(&self) -> Option<Charging> {
        let (tag, watching) = self.watch().await?;
        let fill = Some(self.fills.lock().begin(Some(tag)));
        Some(Charging { queries: self.clone(), fill, watching, tag, is_proved: false })
    }

    /// A request is forwarded whose answer is not stored: what it reads and writes is no fill's, if its statements say that they are its own.
    pub(crate) async fn pass(&self, headers: &mut HeaderMap) -> Option<Charging> {
        let (tag, watching) = self.watch().await?;
        let fill = Some(self.fills.lock().pass(tag));
        let charging = Charging { queries: self.clone(), fill, watching, tag, is_proved: false };
        charging.mark(headers);
        Some(charging)
    }

    /// A tag that the relays of other processes know.
    async fn watch(&self) -> Option<(Tag, Option<Watching>)> {
        let logs = self.logs.as_ref().filter(|logs| self.has_relay || logs.has_relays());
        if logs.is_none() && !self.has_relay {
            return None;
        }
        let tag = tag();
        match logs {
            Some(logs) => Some((tag, Some(logs.begin(tag).await))),
            None => Some((tag, None)),
        }
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

    /// What the relay of this process has seen.
    fn finish(&mut self) -> Charged {
        let Some(fill) = self.fill.take() else { return Charged::NotStored(Why::Relay) };
        self.queries.fills.lock().finish(fill)
    }

    /// What all relays have seen: the names; nothing where it is more than can be named, or may be more than they have seen, with the reason if there is one.
    ///
    /// # Errors
    /// Why the answer must not be stored.
    async fn list(mut self, names: &Names) -> Result<Result<Vec<Dependency>, Option<Why>>, Unstored> {
        let here = self.finish();
        let (is_promised, is_seen, there) = match self.watching.take() {
            None => (self.queries.is_complete, self.queries.has_relay, Read::Names(BTreeSet::new())),
            Some(watching) => {
                let is_here = !self.queries.has_relay || self.queries.is_complete;
                let is_seen = self.queries.has_relay || watching.has_relays();
                (is_here && watching.is_complete(), is_seen, watching.finish().await)
            }
        };
        let not_stored = |why, is_own: bool| Err(Unstored { why, is_of_this_time: !is_own });
        match (&here, &there) {
            (Charged::NotStored(why), _) => return not_stored(*why, true),
            (_, Read::NotStored(why, is_own)) => return not_stored(Why::of_code(*why), *is_own),
            (_, Read::Wrote(is_own)) => return not_stored(Why::Wrote, *is_own),
            (_, Read::OldSnapshot(is_own)) => return not_stored(Why::OldSnapshot, *is_own),
            (Charged::NotThisTime(why), _) => return not_stored(*why, false),
            _ => {}
        }
        Ok(match (here, there) {
            // Where there is no relay, nothing was seen of what the application says is all.
            (Charged::Names(set), Read::Names(others)) if is_seen && (is_promised || self.is_proved) => {
                let here = self.queries.dependencies(names, &set).ok_or(None);
                here.map(|here| here.into_iter().chain(others.into_iter().map(Dependency)).collect())
            }
            (Charged::Names(_), Read::Names(_)) => Err(None),
            (Charged::Everything(why), _) => Err(Some(why)),
            (_, Read::Everything(why)) => Err(Some(Why::of_code(why))),
            (_, Read::TooMany) => Err(Some(Why::TooMany)),
            _ => Err(Some(Why::Relay)),
        })
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
    pub async fn on(self, names: &Names, page: Dependency) -> Result<(Scope, Option<Why>), Unstored> {
        let Depends { declared, addresses, charging } = self;
        let (list, why) = match charging {
            None => (None, None),
            Some(charging) => match charging.list(names).await? {
                Ok(list) => (Some(list), None),
                Err(why) => (None, why),
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
