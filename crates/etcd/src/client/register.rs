//! What is asked, as transactions.
//!
//! | question | read before | compares | changes |
//! |---|---|---|---|
//! | Look | `era` | | |
//! | Enrol | `rank`, `era` | both are as read | `rank`, `ranks/RANK`, `era` where there is none; drops old `ranks/` |
//! | Take | `record`, `era` | `office` and `beat` as seen, `record` as read | `office`, `beat` |
//! | Beat | | `office` is of the term | `beat` |
//! | Beat that resigns | `office` | the same | `beat`, and `office` as it was read |
//! | Store | | `office` is of the term, `record` as said | `record`, `views/NUMBER`; drops old `views/` |
//!
//! An enrolled node changes keys in its era only, and what it reads must be of that era: where the keys were lost, revisions are counted from the beginning,
//! and would stand again for what they do not.
//!
//! The record is read before the office is taken because one that cannot be read must not become that of a holder who cannot read it (F6).

use std::cell::OnceCell;
use std::num::NonZeroU32;

use etcd_client::{
    Compare, CompareOp, DeleteOptions, GetOptions, GetResponse, KeyValue, SortOrder, SortTarget, Txn, TxnOp,
};
use etcd_client::{TxnOpResponse, TxnResponse};
use tokio::time::Instant;
use verbena_cluster::{Answer, Beat, ClusterError, Holder, KeeperRecord, Question, RANKS_KEPT, Revision, Sight};
use verbena_terms::{Incarnation, Rank, ViewNumber};

use super::endpoints::{Endpoints, Twice};
use super::keys::Keys;
use crate::error::{Error, Result};

/// Views that are kept.
const VIEWS_KEPT: u32 = 1000;

/// Views that are read at once: a view is some 150 KiB at most, and an answer of etcd's 4 MiB.
const VIEWS_READ: usize = 16;

/// The register as one question meets it.
pub(super) struct Register<'a> {
    endpoints: &'a Endpoints,
    keys: &'a Keys,
    /// In which this client enrolled.
    era: &'a OnceCell<NonZeroU32>,
    until: Instant,
}

impl<'a> Register<'a> {
    pub(super) fn new(endpoints: &'a Endpoints, keys: &'a Keys, era: &'a OnceCell<NonZeroU32>, until: Instant) -> Self {
        Register { endpoints, keys, era, until }
    }

    pub(super) async fn answer(&self, question: &Question) -> Result<Answer> {
        match question {
            Question::Enrol { name } => self.enrol(name).await,
            Question::Look => self.look().await,
            Question::Take { term, beat, holder, says } => self.take(*term, *beat, holder, *says).await,
            Question::Beat { term, says } => self.beat(*term, *says).await,
            Question::Store { term, after, record } => self.store(*term, *after, record).await,
        }
    }

    pub(super) async fn name(&self, rank: Rank) -> Result<Option<String>> {
        let key = self.keys.rank(rank);
        let [pair] = self.pairs([&key]).await?;
        pair.map(|pair| text(&key, &pair)).transpose()
    }

    pub(super) async fn views(&self, from: ViewNumber, limit: usize) -> Result<Vec<KeeperRecord>> {
        let mut views: Vec<KeeperRecord> = Vec::new();
        let mut from = self.keys.view(from);
        while views.len() < limit {
            let most = VIEWS_READ.min(limit - views.len());
            let options = GetOptions::new()
                .with_range(self.keys.views_end())
                .with_limit(most as i64)
                .with_sort(SortTarget::Key, SortOrder::Ascend);
            let found = reads(&self.read([TxnOp::get(from, Some(options))]).await?);
            let pairs = found.first().map_or(&[][..], GetResponse::kvs);
            let Some(last) = pairs.last() else { break };
            // The key after that one, in etcd's order.
            from = format!("{}\0", key_of(last));
            for pair in pairs {
                views.push(decoded(&key_of(pair), pair, KeeperRecord::decode)?);
            }
            if pairs.len() < most {
                break;
            }
        }
        Ok(views)
    }

    async fn enrol(&self, name: &str) -> Result<Answer> {
        let (key, era_key) = (self.keys.last_rank(), self.keys.era());
        loop {
            let [pair, era_pair] = self.pairs([&key, &era_key]).await?;
            let era = self.same_era(era_pair.as_ref())?;
            let last = match pair.as_ref().map(|pair| text(&key, pair)).transpose()? {
                None => 0,
                Some(text) => text.parse().map_err(|_| unreadable(&key, format!("{text:?} is not a rank")))?,
            };
            let rank =
                Rank(u32::checked_add(last, 1).ok_or_else(|| unreadable(&key, "the last rank was given".into()))?);
            let mut changes =
                vec![TxnOp::put(key.as_str(), rank.0.to_string(), None), TxnOp::put(self.keys.rank(rank), name, None)];
            if let Some(oldest) = rank.0.checked_sub(RANKS_KEPT) {
                let old = DeleteOptions::new().with_range(self.keys.rank(Rank(oldest + 1)));
                changes.push(TxnOp::delete(self.keys.rank(Rank(0)), Some(old)));
            }
            let era = match era {
                Some(era) => era,
                None => {
                    let era = any_era()?;
                    changes.push(TxnOp::put(era_key.as_str(), era.to_string(), None));
                    era
                }
            };
            let as_read = [stands(&key, revision(pair.as_ref())), stands(&era_key, revision(era_pair.as_ref()))];
            if self.change(Txn::new().when(as_read).and_then(changes), Twice::Never).await?.succeeded() {
                // Another enrolment may have ended first, in the same era.
                let _ = self.era.set(era);
                return Ok(Answer::Enrolled(Incarnation { rank, start: era.get() }));
            }
        }
    }

    async fn look(&self) -> Result<Answer> {
        let (office, beat) = (self.keys.office(), self.keys.beat());
        let [held, beaten, era] = self.pairs([&office, &beat, &self.keys.era()]).await?;
        self.same_era(era.as_ref())?;
        let Some(held) = held else { return Ok(Answer::Seen(None)) };
        let beaten = beaten.ok_or_else(|| unreadable(&beat, "nothing, although the office is held".into()))?;
        Ok(Answer::Seen(Some(Sight {
            term: revision(Some(&held)),
            holder: decoded(&office, &held, Holder::decode)?,
            beat: revision(Some(&beaten)),
            said: decoded(&beat, &beaten, Beat::decode)?,
        })))
    }

    async fn take(&self, term: Revision, beat: Revision, holder: &Holder, says: Beat) -> Result<Answer> {
        let [office_key, beat_key, record_key] = [self.keys.office(), self.keys.beat(), self.keys.record()];
        loop {
            let [pair, era] = self.pairs([&record_key, &self.keys.era()]).await?;
            self.same_era(era.as_ref())?;
            let changed = revision(pair.as_ref());
            let record = pair.map(|pair| decoded(&record_key, &pair, KeeperRecord::decode)).transpose()?;
            let txn = Txn::new()
                .when(self.in_era([stands(&office_key, term), stands(&beat_key, beat), stands(&record_key, changed)]))
                .and_then([
                    TxnOp::put(office_key.as_str(), holder.encode(), None),
                    TxnOp::put(beat_key.as_str(), says.encode(), None),
                ])
                .or_else([get(&office_key), get(&beat_key)]);
            let response = self.change(txn, Twice::Never).await?;
            if response.succeeded() {
                let term = response.header().map_or(0, |header| header.revision());
                return Ok(Answer::Taken { term: counted(term), record: record.map(Box::new), changed });
            }
            let seen = singles::<2>(&response).map(|pair| revision(pair.as_ref()));
            // Otherwise the record alone has changed since it was read.
            if seen != [term, beat] {
                return Ok(Answer::Overtaken);
            }
        }
    }

    async fn beat(&self, term: Revision, says: Beat) -> Result<Answer> {
        let office = self.keys.office();
        let mut changes = vec![TxnOp::put(self.keys.beat(), says.encode(), None)];
        if says.resigned {
            let [held] = self.pairs([&office]).await?;
            let Some(held) = held.filter(|held| revision(Some(held)) == term) else {
                return Ok(Answer::Overtaken);
            };
            changes.push(TxnOp::put(office.as_str(), held.value(), None));
        }
        let txn = Txn::new().when(self.in_era([stands(&office, term)])).and_then(changes);
        // The caller counts from the moment when it asked, so a second execution makes it believe nothing wrong; and a holder that resigned needs nothing more
        // of the term.
        let response = self.change(txn, Twice::Harmless).await?;
        Ok(if response.succeeded() { Answer::Beaten } else { Answer::Overtaken })
    }

    async fn store(&self, term: Revision, after: Revision, record: &KeeperRecord) -> Result<Answer> {
        let [office_key, record_key] = [self.keys.office(), self.keys.record()];
        let bytes = record.encode();
        let mut changes = vec![TxnOp::put(record_key.as_str(), bytes.as_slice(), None)];
        if let Some(view) = &record.view {
            changes.push(TxnOp::put(self.keys.view(view.number()), bytes.as_slice(), None));
            if let Some(oldest) = view.number().0.checked_sub(VIEWS_KEPT) {
                let old = DeleteOptions::new().with_range(self.keys.view(ViewNumber(oldest + 1)));
                changes.push(TxnOp::delete(self.keys.view(ViewNumber(0)), Some(old)));
            }
        }
        let txn = Txn::new()
            .when(self.in_era([stands(&office_key, term), stands(&record_key, after)]))
            .and_then(changes)
            .or_else([get(&office_key), get(&record_key)]);
        let response = self.change(txn, Twice::Harmless).await?;
        if response.succeeded() {
            return Ok(Answer::Stored(counted(response.header().map_or(0, |header| header.revision()))));
        }
        let [office, stored] = singles(&response);
        // An attempt of which no answer came did it.
        let done = revision(office.as_ref()) == term && stored.as_ref().is_some_and(|pair| pair.value() == bytes);
        Ok(if done { Answer::Stored(revision(stored.as_ref())) } else { Answer::Overtaken })
    }

    /// The era that was read; an error where it is not the one that this client enrolled in.
    fn same_era(&self, pair: Option<&KeyValue>) -> Result<Option<NonZeroU32>> {
        let key = self.keys.era();
        let found = pair.map(|pair| text(&key, pair)).transpose()?;
        let read = |text: String| text.parse().map_err(|_| unreadable(&key, format!("{text:?} is not an era")));
        let found = found.map(read).transpose()?;
        if self.era.get().is_some_and(|own| found != Some(*own)) {
            return Err(Error::AnotherEra { prefix: self.keys.prefix().to_owned() });
        }
        Ok(found)
    }

    /// The same, in the era that this client enrolled in.
    fn in_era<const N: usize>(&self, compares: [Compare; N]) -> Vec<Compare> {
        let era = self.era.get().map(|era| Compare::value(self.keys.era(), CompareOp::Equal, era.to_string()));
        compares.into_iter().chain(era).collect()
    }

    /// What stands under these keys, of one moment.
    async fn pairs<const N: usize>(&self, keys: [&str; N]) -> Result<[Option<KeyValue>; N]> {
        Ok(singles(&self.read(keys.map(get)).await?))
    }

    async fn read(&self, what: impl Into<Vec<TxnOp>>) -> Result<TxnResponse> {
        self.change(Txn::new().and_then(what), Twice::Harmless).await
    }

    async fn change(&self, txn: Txn, twice: Twice) -> Result<TxnResponse> {
        self.endpoints.execute(txn, twice, &self.keys.office(), self.until).await
    }
}

/// One that was hardly there before.
fn any_era() -> Result<NonZeroU32> {
    let random = getrandom::u32();
    let random = random.map_err(|error| Error::System { what: "choose an era", reason: error.to_string() })?;
    Ok(NonZeroU32::new(random).unwrap_or(NonZeroU32::MIN))
}

fn get(key: &str) -> TxnOp {
    TxnOp::get(key, None)
}

/// That a key was changed last at this revision, or never.
fn stands(key: &str, at: Revision) -> Compare {
    // No store counts as far as where it does not fit.
    Compare::mod_revision(key, CompareOp::Equal, i64::try_from(at.0).unwrap_or(i64::MAX))
}

fn reads(response: &TxnResponse) -> Vec<GetResponse> {
    let found = response.op_responses().into_iter();
    found.filter_map(|found| if let TxnOpResponse::Get(found) = found { Some(found) } else { None }).collect()
}

/// What the first reads of a transaction, of one key each, found.
fn singles<const N: usize>(response: &TxnResponse) -> [Option<KeyValue>; N] {
    let found = reads(response);
    std::array::from_fn(|nth| found.get(nth).and_then(|found| found.kvs().first().cloned()))
}

fn revision(pair: Option<&KeyValue>) -> Revision {
    counted(pair.map_or(0, KeyValue::mod_revision))
}

fn counted(revision: i64) -> Revision {
    Revision(u64::try_from(revision).unwrap_or(0))
}

fn key_of(pair: &KeyValue) -> String {
    String::from_utf8_lossy(pair.key()).into_owned()
}

fn text(key: &str, pair: &KeyValue) -> Result<String> {
    String::from_utf8(pair.value().to_vec()).map_err(|error| unreadable(key, error.to_string()))
}

fn decoded<T>(key: &str, pair: &KeyValue, decode: fn(&[u8]) -> std::result::Result<T, ClusterError>) -> Result<T> {
    decode(pair.value()).map_err(|error| unreadable(key, error.to_string()))
}

fn unreadable(key: &str, problem: String) -> Error {
    Error::Unreadable { key: key.to_owned(), problem }
}
