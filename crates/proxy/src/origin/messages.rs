//! Requests as an origin gets them, and its answers as a client can be given them, in both versions of HTTP.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, request};
use http_body::Body as HttpBody;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use verbena_caching::is_framed_plainly;

use super::address::{Address, Stream};
use super::{Failure, MOST_FIELDS, Origin};

/// An answer that ends HTTP on its connection, or any other that a client can be given.
pub(super) fn upgraded(answer: Response<Incoming>) -> Result<Response<Incoming>, Failure> {
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS { Ok(answer) } else { usable(answer, &Method::GET) }
}

/// One exchange over a connection of HTTP/1.1.
pub(super) async fn converse<B>(stream: Stream, request: Request<B>) -> Result<Response<Incoming>, Failure>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut http = hyper::client::conn::http1::Builder::new();
    let handshake = http.max_headers(MOST_FIELDS).preserve_header_case(true).handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|_| Failure::Broken)?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection to the application ended");
        }
    });
    sender.send_request(request).await.map_err(|_| Failure::Broken)
}

/// An answer that a client can be given: no change of protocol, which no client asked for, and no coding that is taken off without being
/// undone.
///
/// One of HTTP/2 is put into the words of HTTP/1.1: its frames say where it ends, as chunks do.
pub(super) fn usable(mut answer: Response<Incoming>, method: &Method) -> Result<Response<Incoming>, Failure> {
    if answer.status().is_informational() || !is_framed_plainly(answer.headers()) {
        return Err(Failure::Broken);
    }
    let has_body = *method != Method::HEAD && !matches!(answer.status().as_u16(), 204 | 304);
    if answer.version() == Version::HTTP_2 && has_body && !answer.headers().contains_key(CONTENT_LENGTH) {
        answer.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    // Chunks delimit the body themselves, and a client must not see any other length (RFC 9112 section 6.3).
    if answer.headers().contains_key(TRANSFER_ENCODING) {
        answer.headers_mut().remove(CONTENT_LENGTH);
    }
    Ok(answer)
}

pub(super) fn target(head: &request::Parts) -> Uri {
    path(&head.uri).into()
}

/// What of an address is behind its host.
pub(super) fn path(uri: &Uri) -> PathAndQuery {
    uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"))
}

/// In which version a request goes out.
pub(super) enum Form {
    /// With this as its target.
    Http1(Uri),
    Http2,
}

/// Fields of one connection of HTTP/1.1, which HTTP/2 has no place for (RFC 9113 section 8.2.2).
const OF_HTTP_1: [HeaderName; 5] = [
    CONNECTION,
    UPGRADE,
    TRANSFER_ENCODING,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// The request as an origin gets it, in either version.
pub(super) fn outgoing<B: HttpBody>(
    head: &request::Parts,
    origin: &Origin,
    form: Form,
    body: B,
) -> Result<Request<B>, Failure> {
    let mut headers = head.headers.clone();
    if !headers.contains_key(HOST)
        && let Ok(host) = HeaderValue::try_from(origin.address.authority().map_or("localhost", Authority::as_str))
    {
        headers.insert(HOST, host);
    }
    let is_endless = body.size_hint().exact().is_none();
    if is_endless {
        headers.remove(CONTENT_LENGTH);
    }
    let (uri, version) = match form {
        Form::Http1(uri) => {
            if is_endless {
                headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            }
            (uri, Version::HTTP_11)
        }
        Form::Http2 => {
            for name in &OF_HTTP_1 {
                headers.remove(name);
            }
            // They are passed on, and some servers of gRPC answer nothing without.
            headers.insert(TE, HeaderValue::from_static("trailers"));
            let host = headers.remove(HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
            let scheme = if matches!(origin.address, Address::Tls(_)) { Scheme::HTTPS } else { Scheme::HTTP };
            let authority = host.ok_or(Failure::Broken)?;
            let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query(path(&head.uri));
            (uri.build().map_err(|_| Failure::Broken)?, Version::HTTP_2)
        }
    };
    let mut request = Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = uri;
    *request.version_mut() = version;
    *request.headers_mut() = headers;
    // How their names are spelled.
    *request.extensions_mut() = head.extensions.clone();
    Ok(request)
}
