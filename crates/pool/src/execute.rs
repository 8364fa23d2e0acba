//! One request: what the pool is asked, and what the client is answered.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::oneshot;
use verbena_coop::service::PoolService;
use verbena_coop::{Command, Failure, Reply, Tenant};
use verbena_memcache::semantics::{Answer, Item};
use verbena_memcache::{Exptime, Meta, Operation, Read, Request, Store, print};

use crate::connection::{Ended, Output};
use crate::observed::Observed;
use crate::statistics;
use crate::tenants::{Known, Tenants};

/// The protocol's version first: libmemcached gives up on one that begins with 0.
pub(crate) const VERSION: &str = concat!("1.6.0-verbena-", env!("CARGO_PKG_VERSION"));
/// Keys of one `get` that are read together.
const TOGETHER: usize = 64;

/// What serves one connection.
pub(crate) struct Executor<'a> {
    pub pool: &'a PoolService,
    pub observed: &'a Observed,
    pub tenants: &'a Tenants,
    /// Whose client it is.
    pub known: &'a Known,
}

/// The line for what was not done.
fn failure(reply: &Reply) -> Option<&'static str> {
    Some(match reply {
        Reply::Answer(..) | Reply::Flushed => return None,
        Reply::Unknown => "SERVER_ERROR outcome unknown",
        Reply::Failed(Failure::HomeAway) => {
            "SERVER_ERROR no node decides on this key at the moment: nothing was changed"
        }
        Reply::Failed(Failure::Contended) => "SERVER_ERROR others change this key again and again: nothing was changed",
        Reply::Failed(Failure::NoRoom) => "SERVER_ERROR out of memory storing object",
        Reply::Failed(Failure::TooLarge) => "SERVER_ERROR object too large for cache",
    })
}

/// The operation without its value, which goes beside it.
fn owned(operation: &Operation<'_>) -> (Operation<'static>, Vec<u8>) {
    match *operation {
        Operation::Store(Store { mode, flags, exptime, value, compare, is_stale_allowed, new_cas, vivify }) => {
            let store = Store { mode, flags, exptime, value: &[], compare, is_stale_allowed, new_cas, vivify };
            (Operation::Store(store), value.to_vec())
        }
        Operation::Read(read) => (Operation::Read(read), vec![]),
        Operation::Remove(remove) => (Operation::Remove(remove), vec![]),
        Operation::Arithmetic(arithmetic) => (Operation::Arithmetic(arithmetic), vec![]),
        Operation::Touch(exptime) => (Operation::Touch(exptime), vec![]),
        Operation::TooLarge => (Operation::TooLarge, vec![]),
    }
}

pub(crate) fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Executor<'_> {
    /// Waits for the outcome; a command that was never begun has failed.
    async fn outcome(&self, waiting: Option<oneshot::Receiver<Reply>>) -> Reply {
        let reply = match waiting {
            // The node ends: what it sent may have been decided.
            Some(waiting) => waiting.await.unwrap_or(Reply::Unknown),
            None => Reply::Failed(Failure::HomeAway),
        };
        let of_tenant = &self.known.observed;
        match &reply {
            Reply::Answer(Answer::Hit(_), _) => of_tenant.hits.increment(),
            Reply::Answer(Answer::Miss, _) => of_tenant.misses.increment(),
            Reply::Answer(..) | Reply::Flushed => of_tenant.done.increment(),
            Reply::Failed(_) | Reply::Unknown => of_tenant.failed.increment(),
        }
        reply
    }

    fn begin(&self, command: Command) -> Option<oneshot::Receiver<Reply>> {
        let (told, waiting) = oneshot::channel();
        // A client that has gone does not wait for it.
        let begun = self.pool.command(command, move |reply| drop(told.send(reply)));
        begun.is_ok().then_some(waiting)
    }

    fn begin_on(&self, key: &[u8], operation: &Operation<'_>) -> Option<oneshot::Receiver<Reply>> {
        let (operation, value) = owned(operation);
        self.begin(Command::Execute { tenant: self.known.tenant, key: key.to_vec(), operation, value })
    }

    /// Answers one request.
    pub(crate) async fn request(&self, request: Request<'_>, out: &mut Output<'_>) -> Result<(), Ended> {
        match request {
            Request::Get { keys, read, with_cas } => return self.get(keys.iter(), read, with_cas, out).await,
            Request::Classic { key, operation, noreply } => {
                let reply = self.outcome(self.begin_on(key, &operation)).await;
                match (&reply, failure(&reply)) {
                    (_, Some(_)) if noreply => {}
                    (_, Some(line)) => print::line(line, &mut out.bytes),
                    (Reply::Answer(answer, _), None) => print::classic(answer, noreply, &mut out.bytes),
                    _ => {}
                }
            }
            Request::Meta(meta) => self.meta(&meta, out).await,
            Request::Debug { key, is_base64 } => self.debug(&key, is_base64, out).await,
            Request::Noop => print::line("MN", &mut out.bytes),
            Request::FlushAll { delay, noreply } => self.flush(delay, noreply, out).await,
            Request::Verbosity { noreply, .. } => ok("OK", noreply, out),
            Request::MemoryLimit { noreply, .. } => {
                ok("MEMLIMIT_ADJUST_FAILED pool.memory says it, where a node is started", noreply, out);
            }
            Request::Scheme(name) => print::line(&self.scheme(name), &mut out.bytes),
            Request::Stats(which) => statistics::print(which, self, &mut out.bytes),
            Request::Version => print::line(&format!("VERSION {VERSION}"), &mut out.bytes),
            Request::Quit => return Err(Ended),
        }
        Ok(())
    }

    async fn get<'k>(
        &self,
        mut keys: impl Iterator<Item = &'k [u8]>,
        read: Read,
        with_cas: bool,
        out: &mut Output<'_>,
    ) -> Result<(), Ended> {
        loop {
            let together: Vec<_> =
                keys.by_ref().take(TOGETHER).map(|key| (key, self.begin_on(key, &Operation::Read(read)))).collect();
            if together.is_empty() {
                print::line("END", &mut out.bytes);
                return Ok(());
            }
            let mut failed = None;
            for (key, waiting) in together {
                let reply = self.outcome(waiting).await;
                match &reply {
                    Reply::Answer(Answer::Hit(seen), bytes) if failed.is_none() => {
                        print::value(key, &seen.head, bytes, with_cas, &mut out.bytes);
                    }
                    reply => failed = failed.or(failure(reply)),
                }
                out.send_if_much().await?;
            }
            if let Some(line) = failed {
                print::line(line, &mut out.bytes);
                return Ok(());
            }
        }
    }

    async fn meta(&self, meta: &Meta<'_>, out: &mut Output<'_>) {
        let reply = self.outcome(self.begin_on(&meta.key, &meta.operation)).await;
        match (&reply, failure(&reply)) {
            (_, Some(line)) => print::line(line, &mut out.bytes),
            (Reply::Answer(answer, bytes), None) => print::meta(meta, answer, bytes, &mut out.bytes),
            _ => {}
        }
    }

    /// Another scheme, for all nodes.
    fn scheme(&self, name: &[u8]) -> Cow<'static, str> {
        if self.known.tenant != Tenant::DEFAULT {
            return "CLIENT_ERROR the scheme goes for all tenants: none of them chooses it".into();
        }
        match String::from_utf8_lossy(name).parse() {
            Ok(name) if self.pool.choose(name) => "OK".into(),
            Ok(_) => "SERVER_ERROR this node has no part in the pool at the moment".into(),
            Err(problem) => format!("CLIENT_ERROR {problem}").into(),
        }
    }

    async fn debug(&self, key: &[u8], is_base64: bool, out: &mut Output<'_>) {
        let read = Operation::Read(Read { is_silent: true, ..Read::default() });
        let item = match self.outcome(self.begin_on(key, &read)).await {
            Reply::Answer(Answer::Hit(seen), value) => Some(Item { head: seen.head, value }),
            _ => None,
        };
        let bytes =
            item.as_ref().map_or(0, |item| verbena_coop::object::units(key, &item.value)) * verbena_coop::UNIT_BYTES;
        print::debug(key, is_base64, item.as_ref(), bytes, seconds(), &mut out.bytes);
    }

    /// At once, or by a task of this thread once the delay is over.
    async fn flush(&self, delay: Exptime, noreply: bool, out: &mut Output<'_>) {
        let now = seconds();
        let wait = if delay.0 <= 0 { 0 } else { delay.moment(now).saturating_sub(now) };
        if wait > 0 {
            let (pool, tenant) = (self.pool.clone(), self.known.tenant);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(wait)).await;
                if pool.command(Command::Flush(tenant), |reply| log_flush(&reply)).is_err() {
                    tracing::error!("a flush_all with a delay was not begun: too many commands are waiting");
                }
            });
            return ok("OK", noreply, out);
        }
        let reply = self.outcome(self.begin(Command::Flush(self.known.tenant))).await;
        ok(failure(&reply).unwrap_or("OK"), noreply, out);
    }
}

fn log_flush(reply: &Reply) {
    if let Some(line) = failure(reply) {
        tracing::error!(line, "a flush_all with a delay");
    }
}

fn ok(line: &str, noreply: bool, out: &mut Output<'_>) {
    if !noreply {
        print::line(line, &mut out.bytes);
    }
}
