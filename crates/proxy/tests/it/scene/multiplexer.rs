//! An application that speaks HTTP/2, by hyper's server.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::{PATIENCE, Site};

/// An application that answers each request by its path, and says what it was asked.
pub struct Multiplexer {
    pub address: SocketAddr,
    asked: Receiver<(http::request::Parts, Bytes)>,
    connections: Arc<AtomicUsize>,
}

/// What of a body is left: pieces, trailers, or that it breaks off.
struct Script(Vec<Result<Frame<Bytes>, std::io::Error>>);

impl Body for Script {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        Poll::Ready((!self.0.is_empty()).then(|| self.0.remove(0)))
    }
}

impl Multiplexer {
    /// With TLS by a certificate of this site for `127.0.0.1`, or without.
    pub fn start(site: Option<&Site>) -> Multiplexer {
        let acceptor = site.map(|site| {
            let (certificate, key) = site.issues("origin", &["127.0.0.1"]);
            let chain = CertificateDer::pem_file_iter(certificate).unwrap().map(Result::unwrap).collect();
            let key = PrivateKeyDer::from_pem_file(key).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
            let mut config = builder.with_no_client_auth().with_single_cert(chain, key).unwrap();
            config.alpn_protocols = vec![b"h2".to_vec()];
            TlsAcceptor::from(Arc::new(config))
        });
        let (asks, asked) = channel();
        let (tells, told) = channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                tells.send(listener.local_addr().unwrap()).unwrap();
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, acceptor.clone(), asks.clone(), counted.clone()));
                }
            });
        });
        Multiplexer { address: told.recv_timeout(PATIENCE).unwrap(), asked, connections }
    }

    /// The next request that it has had.
    pub fn asked(&self) -> (http::request::Parts, Bytes) {
        self.asked.recv_timeout(PATIENCE).expect("it is not asked")
    }

    /// Connections on which it was asked.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    asks: Sender<(http::request::Parts, Bytes)>,
    connections: Arc<AtomicUsize>,
) {
    let is_first = AtomicUsize::new(0);
    let service = service_fn(move |request: Request<Incoming>| {
        if is_first.fetch_add(1, Ordering::SeqCst) == 0 {
            connections.fetch_add(1, Ordering::SeqCst);
        }
        let asks = asks.clone();
        async move {
            let (head, body) = request.into_parts();
            let path = head.uri.path().to_owned();
            let body = body.collect().await.unwrap().to_bytes();
            let _ = asks.send((head, body));
            Ok::<_, Infallible>(answer(&path))
        }
    });
    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    // What becomes of the connection is the test's to see, at the other end.
    let _ = match acceptor {
        Some(acceptor) => match acceptor.accept(stream).await {
            Ok(stream) => builder.serve_connection(TokioIo::new(stream), service).await,
            Err(_) => return,
        },
        None => builder.serve_connection(TokioIo::new(stream), service).await,
    };
}

fn answer(path: &str) -> Response<Script> {
    let piece = |text: &'static str| Ok(Frame::data(Bytes::from_static(text.as_bytes())));
    let mut response = Response::new(Script(vec![piece("of "), piece("frames")]));
    match path {
        "/trailers" => {
            let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
            response.body_mut().0.push(Ok(Frame::trailers(trailers)));
            response.headers_mut().insert("trailer", "grpc-status".parse().unwrap());
        }
        "/broken" => response.body_mut().0.push(Err(std::io::Error::other("broken off"))),
        _ => {}
    }
    response.headers_mut().insert("verbena-dependencies", "a".parse().unwrap());
    response
}
