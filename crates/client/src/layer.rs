//! A layer of `tower` that announces a service's writes to the helper.
//!
//! **Writes.** A request with an unsafe method is bracketed by an update: *begun* before the service is called, *ended* after it has
//! answered. The update is over, and confirmed, before the client can have the last byte of the answer, because that is
//! the moment from which every reader must see the write (rules P3, P10). So the layer reads the answer: to its end, if
//! that comes within 64 KiB, before the client gets any of it; of a longer one the client gets all but the end until
//! the update has ended.
//!
//! ```text
//!  begin -- refused --> 503, Retry-After; the service is not called (rule P7)
//!    |
//!  the service ------ error, panic, body cut short ----------> outcome unknown
//!    |        \------ says Outcome::Unknown or NotSent ------> as it says
//!  the end of its answer
//!    |
//!  end: done -- not confirmed --> 500, or a body cut short: the client is not told that it is done
//!    |
//!  the answer
//! ```
//!
//! From the beginning on, a client that hangs up changes nothing of this: the service goes on, in a task of its own (rule P7).
//!
//! **Pages.** A service says what an answer is made of by an extension of the response, [`MadeOf`]; the layer turns it into the header
//! that the proxy reads, and takes off.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Either;
use tower_layer::Layer;
use tower_service::Service;
use tracing::Instrument;
use verbena_terms::{DEPENDENCY_FIELD, dependency_field};

use crate::api::Outcome;
use crate::bracketed::{Bracketed, hold_back};
use crate::scope::Scope;
use crate::updates::Updates;

/// After how many seconds a refused write may be tried again, as the proxy says it of one that it refuses.
const RETRY_AFTER_SECONDS: &str = "1";

/// What a response is made of: an extension of the response, which [`Announce`] turns into the header field for the proxy.
///
/// Without it, and without a header field of the service's own, a page depends on everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeOf(pub Scope);

impl MadeOf {
    /// It is made of what bears these names, or would show it if it were there. See [`Scope::of`].
    pub fn these<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        MadeOf(Scope::of(names))
    }
}

/// What an unsafe request is about to touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// This. The layer brackets the request.
    Touches(Scope),
    /// Nothing that the layer has to know of. Either the request writes nothing, or its handler begins the update,
    /// because only the handler knows what it touches.
    Unannounced,
}

impl Write {
    /// It touches what bears these names. See [`Scope::of`].
    pub fn to<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Write::Touches(Scope::of(names))
    }
}

type Touched = dyn Fn(&Parts) -> Write + Send + Sync;

/// The layer. Any answer of the service says that its write is over (rule P10), also a 500: put a time limit that gives a service up
/// and answers for it around the layer, not inside, or let it say [`Outcome::Unknown`]. An answer that goes on for long keeps its
/// update open as long: leave it [`Write::Unannounced`], and bracket the write itself.
///
/// Configure the proxy so that these paths announce for themselves (`writes = "announced"`); until then each write is
/// bracketed twice, which is slow and safe. The other way round, `announced` without the layer, is not.
///
/// ```
/// use std::convert::Infallible;
///
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use tower::{ServiceBuilder, service_fn};
/// use verbena_client::{AnnounceLayer, MadeOf, Place, Updates, Write};
///
/// async fn shop(request: Request<Full<bytes::Bytes>>) -> Result<Response<Full<bytes::Bytes>>, Infallible> {
///     let mut response = Response::new(Full::from("a page, or a write that is done"));
///     if request.method() == "GET" {
///         response.extensions_mut().insert(MadeOf::these(["product:7", "category:3"]));
///     }
///     Ok(response)
/// }
///
/// fn touched(request: &http::request::Parts) -> Write {
///     match request.uri.path().strip_prefix("/product/").and_then(|number| number.parse::<u32>().ok()) {
///         Some(number) => Write::to([format!("product:{number}")]),
///         None => Write::Touches(verbena_client::Scope::EVERYTHING),
///     }
/// }
///
/// # fn main() -> verbena_client::Result<()> {
/// let updates = Updates::at("http://127.0.0.1:9090".parse::<Place>()?);
/// let service = ServiceBuilder::new().layer(AnnounceLayer::new(updates).touching(touched)).service(service_fn(shop));
/// # let _ = service;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct AnnounceLayer {
    updates: Updates,
    touched: Arc<Touched>,
}

/// A service whose writes and pages are announced: what [`AnnounceLayer`] makes.
#[derive(Clone)]
pub struct Announce<S> {
    inner: S,
    layer: AnnounceLayer,
}

/// The body of an answer: the service's own, or what is kept of it until the update has ended.
pub type AnnouncedBody<R> = Either<R, Bracketed>;

/// What the layer answers.
pub type AnnouncedResponse<R> = Response<AnnouncedBody<R>>;

impl AnnounceLayer {
    /// Tells the helper there of every unsafe request, as an update of everything.
    pub fn new(updates: Updates) -> Self {
        AnnounceLayer { updates, touched: Arc::new(|_| Write::Touches(Scope::EVERYTHING)) }
    }

    /// Unsafe requests touch what this says of them. Called before each of them, so that it should only look.
    pub fn touching(self, touched: impl Fn(&Parts) -> Write + Send + Sync + 'static) -> Self {
        AnnounceLayer { touched: Arc::new(touched), ..self }
    }
}

impl<S> Layer<S> for AnnounceLayer {
    type Service = Announce<S>;

    fn layer(&self, inner: S) -> Announce<S> {
        Announce { inner, layer: self.clone() }
    }
}

impl<S, B, R> Service<Request<B>> for Announce<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = AnnouncedResponse<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that said it is ready is used; a clone of it may not be.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let (head, body) = request.into_parts();
        let write = if head.method.is_safe() { Write::Unannounced } else { (self.layer.touched)(&head) };
        let request = Request::from_parts(head, body);
        let updates = self.layer.updates.clone();
        Box::pin(async move {
            let Write::Touches(scope) = write else {
                return Ok(declare(inner.call(request).await?).map(Either::Left));
            };
            match tokio::spawn(write_in_bracket(updates, scope, inner, request).in_current_span()).await {
                Ok(answered) => answered,
                Err(ended) => match ended.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => Ok(own(StatusCode::INTERNAL_SERVER_ERROR, "the write was given up: this program ends\n")),
                },
            }
        })
    }
}

/// Begins, lets the service write, and ends.
async fn write_in_bracket<S, B, R>(
    updates: Updates,
    scope: Scope,
    mut inner: S,
    request: Request<B>,
) -> Result<AnnouncedResponse<R>, S::Error>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let update = match updates.begin(&scope).await {
        Ok(update) => update,
        Err(error) => {
            tracing::warn!(%error, "a write was refused because it could not be announced");
            let mut refused =
                own(StatusCode::SERVICE_UNAVAILABLE, "not done: it could not be announced to the caches\n");
            refused.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
            return Ok(refused);
        }
    };
    // On an error, or if it panics, the update is dropped: its outcome is unknown.
    let response = declare(inner.call(request).await?);
    let outcome = response.extensions().get().copied().unwrap_or(Outcome::Done);
    if outcome != Outcome::Done {
        // The client's answer does not depend on it: nothing was reported as written.
        if let Err(error) = update.end(outcome).await {
            tracing::warn!(%error, ?outcome, "the helper did not learn the outcome of a write");
        }
        return Ok(response.map(Either::Left));
    }
    let (head, body) = response.into_parts();
    match hold_back(update, body).await {
        Ok(body) => Ok(Response::from_parts(head, Either::Right(body))),
        Err(error) => {
            tracing::warn!(%error, "a write is in the database, and its client gets an error");
            Ok(own(StatusCode::INTERNAL_SERVER_ERROR, "unconfirmed: it may be done\n"))
        }
    }
}

/// Says in the head what the answer is made of, if the service has said it.
fn declare<R>(mut response: Response<R>) -> Response<R> {
    let Some(MadeOf(scope)) = response.extensions_mut().remove() else { return response };
    let name = HeaderName::from_static(DEPENDENCY_FIELD);
    let names = dependency_field(scope.names().iter().map(String::as_str));
    if let Some(names) = names.and_then(|names| HeaderValue::try_from(names).ok()) {
        response.headers_mut().append(name, names);
    } else {
        // An empty list is read as everything, and as ours it counts before any other field that the service may have set.
        response.headers_mut().insert(name, HeaderValue::from_static(""));
    }
    response
}

fn own<R>(status: StatusCode, text: &'static str) -> AnnouncedResponse<R> {
    let mut response = Response::new(Either::Right(Bracketed::text(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

impl fmt::Debug for AnnounceLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnnounceLayer").field("updates", &self.updates).finish_non_exhaustive()
    }
}
