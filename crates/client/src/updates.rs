//! Announces a program's writes to the helper.
//!
//! ```text
//!              begin             end(Done)              Ok: tell the client
//!   (nothing) -------> [ open ] ------------> (over)    Err: do not
//!                         |      end(NotSent)
//!                         |      end(Unknown), dropped: open for as long as the longest transaction (rule P6)
//! ```
//!
//! From the moment that `begin` has returned no cache serves a page of what the update touches, until the update is over.

mod pool;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::pool::{Kind, Pool};
use crate::api::{Begun, End, Ended, Explain, Outcome, Problem, Purged, Touched, Words};
use crate::error::{Error, Result};
use crate::place::Place;
use crate::scope::Scope;

/// The default patience of a call: longer than the helper's own deadline for beginning (`pages.begin_deadline`, 5 s),
/// so that it is the helper that says what is wrong.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The helper of this machine, as the receiver of updates. Cheap to clone; all clones share one bounded pool of
/// connections.
///
/// Each call needs a tokio runtime with time and input and output, and ends within its patience.
///
/// ```no_run
/// use verbena_client::{Outcome, Place, Result, Scope, Updates};
///
/// # async fn sell(product: u32) -> std::io::Result<()> { Ok(()) }
/// async fn order(updates: &Updates, product: u32) -> Result<bool> {
///     // Refused: caches could go on serving what this write changes, so it is not made.
///     let update = updates.begin(&Scope::of([format!("product:{product}")])).await?;
///     match sell(product).await {
///         Ok(()) => update.end(Outcome::Done).await.map(|()| true),
///         Err(_) => update.end(Outcome::Unknown).await.map(|()| false),
///     }
/// }
///
/// # async fn example() -> Result<()> {
/// let updates = Updates::at(Place::usual()?);
/// order(&updates, 7).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Updates {
    pool: Arc<Pool>,
    patience: Duration,
}

/// A write that every home knows of. Until it [ends](Self::end), nothing that it touches is served from a cache.
///
/// Dropped, its outcome is unknown: what it touches stays out of the cache for as long as the longest transaction takes.
#[must_use = "what it touches is not cached until it ends"]
pub struct Update {
    updates: Updates,
    /// What the helper calls it; nothing when it has ended.
    name: Option<String>,
}

impl Updates {
    /// The helper at this place. No connection is made before it is needed.
    pub fn at(place: Place) -> Self {
        Updates { pool: Arc::new(Pool::new(place)), patience: PATIENCE }
    }

    /// The same with another patience than [`PATIENCE`].
    pub fn with_patience(self, patience: Duration) -> Self {
        Updates { patience, ..self }
    }

    /// Begins an update. When it is here, and not before, may the write go to the database (rule P3).
    ///
    /// # Errors
    /// Write nothing then. [`Error::Nobody`], [`Error::Unavailable`] and [`Error::Refused`] say that nothing has begun;
    /// after any other an update may be open that the helper takes for one of unknown outcome.
    pub async fn begin(&self, touched: &Scope) -> Result<Update> {
        self.begin_as(&Touched::from(touched)).await
    }

    /// Begins an update from the words in which another helper received it.
    #[doc(hidden)]
    pub async fn begin_as(&self, touched: &Touched) -> Result<Update> {
        let Begun { update } = self.ask(Kind::Begin, Method::POST, "/v1/updates", Some(touched)).await?;
        if update.is_empty() || !update.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(Error::Malformed(format!("an update called {update:?}")));
        }
        Ok(Update { updates: self.clone(), name: Some(update) })
    }

    /// A purge of what a request to the helper says, word for word.
    ///
    /// # Errors
    /// As with [`purge`](Self::purge).
    pub async fn purge_as(&self, touched: &Touched) -> Result<()> {
        let _: Purged = self.ask(Kind::Begin, Method::POST, "/v1/purge", Some(touched)).await?;
        Ok(())
    }

    /// Takes whatever is made of this out of every cache, for good: an update that writes nothing.
    ///
    /// # Errors
    /// As with [`begin`](Self::begin).
    pub async fn purge(&self, touched: &Scope) -> Result<()> {
        let body = Touched::from(touched);
        let _: Purged = self.ask(Kind::Begin, Method::POST, "/v1/purge", Some(&body)).await?;
        Ok(())
    }

    /// Takes the pages at these addresses, `http://HOST/PATH?QUERY` as clients ask for them, out of every cache. One that names nothing
    /// that it is made of stands for all such pages.
    ///
    /// # Errors
    /// As with [`begin`](Self::begin); [`Error::Refused`] if one is not an address of a page.
    pub async fn purge_pages<P: Into<String>>(&self, pages: impl IntoIterator<Item = P>) -> Result<()> {
        let body = Touched { pages: pages.into_iter().map(Into::into).collect(), ..Touched::default() };
        let _: Purged = self.ask(Kind::Begin, Method::POST, "/v1/purge", Some(&body)).await?;
        Ok(())
    }

    /// Takes the pages whose path begins so, by whole segments, out of every cache: `http://HOST/PATH`, and `http://HOST/` for the whole host.
    ///
    /// # Errors
    /// As with [`purge_pages`](Self::purge_pages).
    pub async fn purge_prefixes<P: Into<String>>(&self, prefixes: impl IntoIterator<Item = P>) -> Result<()> {
        let body = Touched { prefixes: prefixes.into_iter().map(Into::into).collect(), ..Touched::default() };
        let _: Purged = self.ask(Kind::Begin, Method::POST, "/v1/purge", Some(&body)).await?;
        Ok(())
    }

    /// The words of the page that is asked for by this path at this host, at its home: for looking at, never for deciding.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is no view or no way to the home.
    pub async fn words(&self, host: &str, path: &str) -> Result<Words> {
        let plain = |text: &str| !text.contains(['?', '#', '&']);
        if !(path.starts_with('/') && plain(path) && plain(host)) {
            return Err(Error::Refused(format!("{host}{path} is not the host and the path of a page")));
        }
        self.ask(Kind::Begin, Method::GET, &format!("/v1/words{path}?host={host}"), None::<&()>).await
    }

    /// What the proxy beside the helper would do with a request, and why: an object whose fields docs/reference/API.md has.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is no request, [`Error::Unavailable`] if there is no proxy.
    pub async fn explain(&self, request: &Explain) -> Result<serde_json::Value> {
        self.ask(Kind::Begin, Method::POST, "/v1/explain", Some(request)).await
    }

    async fn end(&self, update: &str, outcome: Outcome) -> Result<Ended> {
        self.ask(Kind::End, Method::POST, &format!("/v1/updates/{update}/end"), Some(&End { outcome })).await
    }

    async fn ask<A: DeserializeOwned>(
        &self,
        kind: Kind,
        method: Method,
        target: &str,
        body: Option<&impl Serialize>,
    ) -> Result<A> {
        let json = body
            .map(|body| serde_json::to_vec(body).expect("invariant: text, lists of it and truth have a form in JSON"));
        let request = Request::builder()
            .method(method)
            .uri(target)
            .header("host", self.pool.place().authority())
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(json.unwrap_or_default())))
            .map_err(|error| Error::Refused(format!("{target} cannot be asked for: {error}")))?;
        let late = || Error::Late { at: self.pool.place().clone(), patience: self.patience };
        let asked = tokio::time::timeout(self.patience, self.pool.ask(kind, request));
        let (status, body) = asked.await.map_err(|_| late())??;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| Error::Malformed(error.to_string()));
        }
        let problem = match serde_json::from_slice(&body) {
            Ok(Problem { error }) => error,
            Err(_) => format!("{status} without a reason"),
        };
        Err(match status {
            StatusCode::SERVICE_UNAVAILABLE => Error::Unavailable(problem),
            StatusCode::NOT_FOUND if kind == Kind::End => Error::NotOpen(problem),
            _ => Error::Refused(format!("{problem} ({})", status.as_u16())),
        })
    }
}

impl Update {
    /// Ends it, after the database has answered. `Ok`: the client can learn the outcome of its write.
    ///
    /// # Errors
    /// After [`Outcome::Done`]: do not report the write to the client as done, because some cache may not know of it.
    /// Answer with a 500, or close its connection. An outcome that does not reach the helper counts as unknown there.
    pub async fn end(mut self, outcome: Outcome) -> Result<()> {
        // Until it has answered the name is kept: cancelled or cut off, the update is dropped, and its outcome is unknown.
        let ended = match &self.name {
            Some(name) => self.updates.end(name, outcome).await,
            None => return Ok(()),
        };
        if matches!(ended, Ok(_) | Err(Error::NotOpen(_))) {
            self.name = None;
        }
        if !ended?.acknowledge && outcome == Outcome::Done {
            return Err(Error::Unconfirmed);
        }
        Ok(())
    }
}

impl Drop for Update {
    fn drop(&mut self) {
        let Some(name) = self.name.take() else { return };
        tracing::warn!(update = name, "the outcome of a write is unknown: what it touches is not cached for a while");
        // The message is not necessary, only faster: without it the helper waits for the longest transaction before it
        // takes the outcome for unknown, and then as long again.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let updates = self.updates.clone();
            runtime.spawn(async move {
                if let Err(error) = updates.end(&name, Outcome::Unknown).await {
                    tracing::debug!(update = name, %error, "the helper did not learn of an unknown outcome");
                }
            });
        }
    }
}

impl fmt::Debug for Updates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Updates").field("at", self.pool.place()).field("patience", &self.patience).finish()
    }
}

impl fmt::Debug for Update {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Update").field("name", &self.name).finish_non_exhaustive()
    }
}
