//! A guest book behind `verbena proxy`, with nothing but hyper and the layer.
//!
//! ```text
//! verbena proxy --origin http://127.0.0.1:8000 --proxy-routes '[{ prefix = "/", writes = "announced" }]' &
//! cargo run -p verbena-client --example guestbook
//!
//! curl -i http://127.0.0.1:8080/books/1                    # Cache-Status says that it was a miss; again, and it is a hit
//! curl http://127.0.0.1:8080/books/1 -d 'I was here'       # announced: book 1 is read anew, book 2 stays where it is
//! ```
//!
//! Arguments: where to listen, and the helper's place (a path or `http://IP:PORT`).

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tower::{Layer, service_fn};
use verbena_client::{AnnounceLayer, MadeOf, Place, Scope, Updates, Write};

type Books = Arc<Mutex<HashMap<u32, Vec<String>>>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let listener = TcpListener::bind(arguments.next().as_deref().unwrap_or("127.0.0.1:8000")).await?;
    let place = arguments.next().map_or_else(Place::usual, |place| place.parse())?;
    println!("guestbook: http://{}, helper {place}", listener.local_addr()?);
    serve(listener, AnnounceLayer::new(Updates::at(place)).touching(touched)).await;
    Ok(())
}

/// Serves guest books until the process ends.
pub async fn serve(listener: TcpListener, layer: AnnounceLayer) {
    let books = Books::default();
    let service = layer.layer(service_fn(move |request| answer(books.clone(), request)));
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move { http1::Builder::new().serve_connection(TokioIo::new(stream), service).await });
    }
}

/// What a request that writes touches. Asked before `answer` is called.
pub fn touched(request: &Parts) -> Write {
    match book(request.uri.path()) {
        Some(book) => Write::to([format!("book:{book}")]),
        None => Write::Touches(Scope::EVERYTHING),
    }
}

/// The guest book: knows nothing of updates, and says of a page what it is made of.
async fn answer(books: Books, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let Some(number) = book(request.uri().path()) else { return Ok(status(StatusCode::NOT_FOUND)) };
    if request.method() == Method::GET {
        let lines = books.lock().unwrap_or_else(PoisonError::into_inner).get(&number).cloned().unwrap_or_default();
        let mut page = Response::new(Full::from(format!("book {number}\n{}", lines.concat())));
        page.extensions_mut().insert(MadeOf::these([format!("book:{number}")]));
        return Ok(page);
    }
    let Ok(body) = Limited::new(request.into_body(), 4096).collect().await else {
        return Ok(status(StatusCode::BAD_REQUEST));
    };
    let line = format!("{}\n", String::from_utf8_lossy(&body.to_bytes()).trim());
    books.lock().unwrap_or_else(PoisonError::into_inner).entry(number).or_default().push(line);
    Ok(status(StatusCode::NO_CONTENT))
}

/// The book of `/books/7`.
fn book(path: &str) -> Option<u32> {
    path.strip_prefix("/books/")?.parse().ok()
}

fn status(code: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = code;
    response
}
