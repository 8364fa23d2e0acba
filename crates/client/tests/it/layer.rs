//! The layer around services of all kinds, against a helper that does as the test says.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::common::{Peer, Then, answer, until, willing};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Empty, Full};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tower::{Layer, Service, ServiceExt, service_fn};
use verbena_client::{AnnounceLayer, MadeOf, Outcome, Scope, Write};

const BEGIN: &str = r#"POST /v1/updates {"everything":true}"#;
const DONE: &str = r#"POST /v1/updates/a-1/end {"outcome":"done"}"#;
const NOT_SENT: &str = r#"POST /v1/updates/a-1/end {"outcome":"not-sent"}"#;
const UNKNOWN: &str = r#"POST /v1/updates/a-1/end {"outcome":"unknown"}"#;

fn request(method: &str, path: &str) -> Request<Empty<Bytes>> {
    Request::builder().method(method).uri(path).body(Empty::new()).unwrap()
}

fn said(text: &'static str) -> Response<Full<Bytes>> {
    Response::new(Full::from(text))
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = said("");
    *response.status_mut() = status;
    response
}

fn layer(peer: &Peer) -> AnnounceLayer {
    AnnounceLayer::new(peer.updates())
}

/// Asks a service of this function, inside the layer.
async fn ask<F, A, R>(layer: AnnounceLayer, request: Request<Empty<Bytes>>, service: F) -> Response<Bytes>
where
    F: FnMut(Request<Empty<Bytes>>) -> A + Clone + Send + 'static,
    A: Future<Output = Result<Response<R>, Infallible>> + Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (head, body) = layer.layer(service_fn(service)).oneshot(request).await.unwrap().into_parts();
    Response::from_parts(head, body.collect().await.unwrap().to_bytes())
}

#[tokio::test]
async fn a_write_is_begun_made_ended_and_answered_in_this_order() {
    let peer = Peer::willing();
    let note = peer.notes();
    for method in ["POST", "PUT", "PATCH", "DELETE", "MERGE"] {
        let note = note.clone();
        let response = ask(layer(&peer), request(method, "/"), move |_| {
            let note = note.clone();
            async move {
                note("written");
                Ok(said("done"))
            }
        })
        .await;
        peer.note("answered");
        assert_eq!((response.status().as_u16(), &response.body()[..]), (200, &b"done"[..]));
    }
    assert_eq!(peer.log(), [BEGIN, "written", DONE, "answered"].repeat(5));
}

#[tokio::test]
async fn what_reads_is_not_announced() {
    let peer = Peer::willing();
    for method in ["GET", "HEAD", "OPTIONS", "TRACE"] {
        let response = ask(layer(&peer), request(method, "/"), async |_| Ok(said("page"))).await;
        assert_eq!(response.body(), "page");
    }
    assert_eq!(peer.log(), [""; 0]);
}

#[tokio::test]
async fn the_application_says_what_is_touched() {
    let peer = Peer::willing();
    let layer = layer(&peer).touching(|request| match request.uri.path() {
        "/search" => Write::Unannounced,
        path => Write::to([path.to_owned()]),
    });
    for path in ["/a", "/search", "/b"] {
        ask(layer.clone(), request("POST", path), async |_| Ok(said(""))).await;
    }
    let begins: Vec<_> = peer.log().into_iter().filter(|line| line != DONE).collect();
    assert_eq!(begins, ["a", "b"].map(|name| format!(r#"POST /v1/updates {{"dependencies":["/{name}"]}}"#)));
}

#[tokio::test]
async fn a_write_that_cannot_begin_is_not_made() {
    let refusing = Peer::new(|_| Then::Say(answer(503, r#"{"error":"no lease"}"#)));
    let broken = Peer::new(|_| Then::SayAndClose("HTTP/1.1 2".into()));
    let gone = Peer::willing();
    let updates = gone.updates();
    drop(gone);
    for layer in [layer(&refusing), layer(&broken), AnnounceLayer::new(updates)] {
        let response = ask(layer, request("POST", "/"), async |_| -> Result<Response<Full<Bytes>>, _> {
            panic!("the service was called")
        })
        .await;
        assert_eq!(
            (response.status(), response.headers()["retry-after"].to_str().unwrap()),
            (StatusCode::SERVICE_UNAVAILABLE, "1")
        );
        assert!(!response.body().is_empty());
    }
    assert_eq!((refusing.log(), broken.log()), (vec![BEGIN.to_owned()], vec![BEGIN.to_owned()]));
}

#[tokio::test]
async fn whatever_the_service_answers_its_write_is_over() {
    for code in [StatusCode::CREATED, StatusCode::CONFLICT, StatusCode::INTERNAL_SERVER_ERROR] {
        let peer = Peer::willing();
        let response = ask(layer(&peer), request("POST", "/"), move |_| std::future::ready(Ok(status(code)))).await;
        assert_eq!((response.status(), peer.log()), (code, vec![BEGIN.to_owned(), DONE.to_owned()]));
    }
}

#[tokio::test]
async fn unless_it_says_otherwise() {
    for (outcome, end) in [(Outcome::NotSent, NOT_SENT), (Outcome::Unknown, UNKNOWN)] {
        let peer = Peer::willing();
        let response = ask(layer(&peer), request("POST", "/"), move |_| {
            let mut response = said("as it is");
            response.extensions_mut().insert(outcome);
            std::future::ready(Ok(response))
        })
        .await;
        assert_eq!((response.body(), peer.log()), (&Bytes::from("as it is"), vec![BEGIN.to_owned(), end.to_owned()]));
    }
}

#[tokio::test]
async fn an_error_leaves_the_outcome_unknown() {
    let peer = Peer::willing();
    let service = service_fn(async |_| Err::<Response<Full<Bytes>>, _>("no"));
    assert_eq!(layer(&peer).layer(service).oneshot(request("POST", "/")).await.err(), Some("no"));
    until("the helper is told", || peer.log() == [BEGIN, UNKNOWN]).await;
}

#[tokio::test]
async fn a_panic_leaves_the_outcome_unknown_and_is_the_callers() {
    let peer = Peer::willing();
    let service = service_fn(async |_| -> Result<Response<Full<Bytes>>, Infallible> { panic!("in the service") });
    let asked = tokio::spawn(layer(&peer).layer(service).oneshot(request("POST", "/")));
    let panic = asked.await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"in the service"));
    until("the helper is told", || peer.log() == [BEGIN, UNKNOWN]).await;
}

#[tokio::test]
async fn a_client_that_hangs_up_changes_nothing() {
    let peer = Peer::willing();
    let (note, gate) = (peer.notes(), Arc::new(Semaphore::new(0)));
    let (wait, written) = (gate.clone(), note.clone());
    let service = service_fn(move |_| {
        let (wait, written) = (wait.clone(), written.clone());
        async move {
            written("called");
            wait.acquire().await.unwrap().forget();
            written("written");
            Ok::<_, Infallible>(said("done"))
        }
    });
    let asked = tokio::spawn(layer(&peer).layer(service).oneshot(request("POST", "/")));
    until("the service is called", || peer.log().len() == 2).await;
    asked.abort();
    assert!(asked.await.unwrap_err().is_cancelled());
    note("hung up");
    gate.add_permits(1);
    until("it ends", || peer.log().len() == 5).await;
    assert_eq!(peer.log(), [BEGIN, "called", "hung up", "written", DONE]);
}

#[tokio::test]
async fn a_program_that_ends_leaves_the_outcome_unknown() {
    let peer = Peer::willing();
    let (updates, note) = (peer.updates(), peer.notes());
    let ended = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (say, mut called) = mpsc::channel(1);
        let service = service_fn(move |_| {
            let (say, note) = (say.clone(), note.clone());
            async move {
                note("called");
                say.send(()).await.unwrap();
                std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>().await
            }
        });
        runtime.block_on(async {
            tokio::spawn(AnnounceLayer::new(updates).layer(service).oneshot(request("POST", "/")));
            called.recv().await.unwrap();
        });
    });
    ended.await.unwrap();
    until("its connections are closed", || peer.connections() == 0).await;
    assert_eq!(peer.log(), [BEGIN, "called"], "nothing is said to have been done");
}

#[tokio::test]
async fn what_is_not_confirmed_is_not_answered() {
    let unconfirmed = Peer::new(|request| {
        Then::Say(if request == DONE { answer(200, r#"{"acknowledge":false}"#) } else { willing(request) })
    });
    let gone = Peer::new(
        |request| {
            if request == BEGIN { Then::Say(willing(request)) } else { Then::SayAndClose(String::new()) }
        },
    );
    for peer in [unconfirmed, gone] {
        let response = ask(layer(&peer), request("POST", "/"), async |_| Ok(said("done"))).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_ne!(response.body(), "done");
    }
}

/// A body whose pieces come when the test sends them.
struct Sent(mpsc::Receiver<Result<Frame<Bytes>, &'static str>>, SizeHint);

impl Body for Sent {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        self.0.poll_recv(context)
    }

    fn size_hint(&self) -> SizeHint {
        self.1
    }
}

fn piece(text: &str) -> Result<Frame<Bytes>, &'static str> {
    Ok(Frame::data(Bytes::copy_from_slice(text.as_bytes())))
}

#[tokio::test]
async fn a_write_that_goes_on_in_the_body_ends_with_it() {
    let peer = Peer::willing();
    let (pieces, sent) = mpsc::channel(8);
    let service = once(Sent(sent, SizeHint::new()));
    let asked = tokio::spawn(layer(&peer).layer(service).oneshot(request("POST", "/")));
    pieces.send(piece("half")).await.unwrap();
    tokio::task::yield_now().await;
    until("it has begun", || peer.log() == [BEGIN]).await;
    pieces.send(piece(" and half")).await.unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "5".parse().unwrap());
    pieces.send(Ok(Frame::trailers(trailers.clone()))).await.unwrap();
    let body = asked.await.unwrap().unwrap().into_body();
    assert_eq!(peer.log(), [BEGIN, DONE]);
    let whole = body.collect().await.unwrap();
    assert_eq!(whole.trailers(), Some(&trailers));
    assert_eq!(whole.to_bytes(), "half and half");
}

#[tokio::test]
async fn of_a_long_answer_the_end_waits_for_the_update() {
    const PIECE: usize = 30_000;
    let gate = Arc::new(Semaphore::new(0));
    let end = gate.clone();
    let peer = Peer::new(move |request| match request {
        DONE => Then::SayLater(end.clone(), willing(request)),
        _ => Then::Say(willing(request)),
    });
    let (pieces, sent) = mpsc::channel(8);
    let service = once(Sent(sent, SizeHint::with_exact(5 * PIECE as u64)));
    for _ in 0..5 {
        pieces.send(piece(&"x".repeat(PIECE))).await.unwrap();
    }
    // A last piece of nothing must not let the whole of it go.
    pieces.send(piece("")).await.unwrap();
    drop(pieces);
    let mut body = layer(&peer).layer(service).oneshot(request("POST", "/")).await.unwrap().into_body();
    assert_eq!(body.size_hint().exact(), Some(5 * PIECE as u64));
    let mut got = 0;
    while got < 4 * PIECE {
        got += body.frame().await.unwrap().unwrap().into_data().unwrap().len();
    }
    until("the end is said", || peer.log() == [BEGIN, DONE]).await;
    assert_eq!((got, body.size_hint().exact()), (4 * PIECE, Some(PIECE as u64)));
    let early = std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut body).poll_frame(context).is_ready())).await;
    assert!(!early, "the last piece came before the update was over");
    gate.add_permits(1);
    assert_eq!(body.collect().await.unwrap().to_bytes().len(), PIECE);
}

#[tokio::test]
async fn a_long_answer_that_cannot_be_confirmed_is_cut_short() {
    let peer = Peer::new(|request| {
        Then::Say(if request == DONE { answer(200, r#"{"acknowledge":false}"#) } else { willing(request) })
    });
    let (service, pieces) = long(100_000);
    drop(pieces);
    let response = layer(&peer).layer(service).oneshot(request("POST", "/")).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(response.into_body().collect().await.is_err());
    assert_eq!(peer.log(), [BEGIN, DONE]);
}

#[tokio::test]
async fn a_body_that_breaks_leaves_the_outcome_unknown() {
    for length in [10, 100_000] {
        let peer = Peer::willing();
        let (service, pieces) = long(length);
        pieces.send(Err("broken")).await.unwrap();
        let response = layer(&peer).layer(service).oneshot(request("POST", "/")).await.unwrap();
        let told = response.into_body().collect().await.unwrap_err();
        assert_eq!(told.to_string(), "broken");
        until("the helper is told", || peer.log() == [BEGIN, UNKNOWN]).await;
    }
}

#[tokio::test]
async fn a_long_answer_is_read_to_its_end_for_a_client_that_has_gone() {
    let peer = Peer::willing();
    let (service, pieces) = long(100_000);
    let response = layer(&peer).layer(service).oneshot(request("POST", "/")).await.unwrap();
    drop(response);
    for _ in 0..20 {
        pieces.send(piece("more")).await.unwrap();
    }
    assert_eq!(peer.log(), [BEGIN]);
    drop(pieces);
    until("it ends", || peer.log() == [BEGIN, DONE]).await;
}

type Pieces = mpsc::Sender<Result<Frame<Bytes>, &'static str>>;

/// A body that begins with so many bytes in two pieces and goes on with what is sent.
fn long(length: usize) -> (Once, Pieces) {
    let (pieces, sent) = mpsc::channel(8);
    pieces.try_send(piece(&"x".repeat(length))).unwrap();
    pieces.try_send(piece("y")).unwrap();
    (once(Sent(sent, SizeHint::new())), pieces)
}

/// A service that answers one request, with this body.
#[derive(Clone)]
struct Once(Arc<Mutex<Option<Sent>>>);

fn once(body: Sent) -> Once {
    Once(Arc::new(Mutex::new(Some(body))))
}

impl Service<Request<Empty<Bytes>>> for Once {
    type Response = Response<Sent>;
    type Error = &'static str;
    type Future = std::future::Ready<Result<Self::Response, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Empty<Bytes>>) -> Self::Future {
        std::future::ready(self.0.lock().take().map(Response::new).ok_or("asked twice"))
    }
}

#[tokio::test]
async fn what_a_page_is_made_of_is_said_in_its_head() {
    let peer = Peer::willing();
    let head = async |made_of: Option<MadeOf>, own: &'static [&'static str]| {
        let response = ask(layer(&peer), request("GET", "/"), move |_| {
            let mut response = said("page");
            if let Some(made_of) = made_of.clone() {
                response.extensions_mut().insert(made_of);
            }
            for value in own {
                response.headers_mut().append("verbena-dependencies", value.parse().unwrap());
            }
            std::future::ready(Ok(response))
        })
        .await;
        assert!(response.extensions().get::<MadeOf>().is_none());
        let values = response.headers().get_all("verbena-dependencies").into_iter();
        values.map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(head(None, &[]).await, [""; 0]);
    assert_eq!(head(Some(MadeOf::these(["a", "b"])), &[]).await, [r#""a", "b""#]);
    assert_eq!(head(Some(MadeOf::these(["a"])), &["c"]).await, ["c", r#""a""#], "one list in two lines");
    // What cannot be said is everything, whatever else is there.
    for everything in [MadeOf(Scope::EVERYTHING), MadeOf::these(["caf\u{e9}"]), MadeOf::these([""; 0])] {
        assert_eq!(head(Some(everything), &["c"]).await, [""]);
    }
}

#[tokio::test]
async fn the_service_that_is_ready_is_the_one_that_is_called() {
    let peer = Peer::willing();
    let mut service = layer(&peer).layer(ReadyOnce { ready: false });
    for method in ["GET", "POST", "POST"] {
        let response = service.ready().await.unwrap().call(request(method, "/")).await.unwrap();
        assert_eq!(response.status(), 200);
    }
    assert_eq!(peer.log().len(), 4);
}

/// A service that must be asked whether it is ready before each call, as `tower` has it; a clone is not ready.
struct ReadyOnce {
    ready: bool,
}

impl Clone for ReadyOnce {
    fn clone(&self) -> Self {
        ReadyOnce { ready: false }
    }
}

impl Service<Request<Empty<Bytes>>> for ReadyOnce {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Empty<Bytes>>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without having been ready");
        std::future::ready(Ok(said("")))
    }
}
