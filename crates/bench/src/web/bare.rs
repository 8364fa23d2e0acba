//! `bare`: hyper in a loop that gives one answer, whatever it is asked. What a proxy on hyper could reach if it did nothing.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use http_body_util::Full;
use hyper::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderName, HeaderValue, TRANSFER_ENCODING};
use hyper::{HeaderMap, Response, StatusCode};

use super::connection::get;
use super::threads;

pub(crate) const ROLE: &str = "bare";

/// How long the other server may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers with what another server answered.
#[derive(Parser)]
struct Part {
    /// Where to listen.
    #[arg(long)]
    listen: SocketAddr,
    /// Whose answer to repeat.
    #[arg(long)]
    like: SocketAddr,
    /// The path that it is asked for.
    #[arg(long)]
    path: String,
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

pub(super) fn serve(arguments: &[String]) -> Result<(), String> {
    let part: Part = threads::part(ROLE, arguments)?;
    let answer = fetch(part.like, &part.path)?;
    threads::serve(part.listen, part.threads, move |_| {
        let mut response = Response::new(Full::new(answer.body.clone()));
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers.clone();
        std::future::ready(response)
    })
}

#[derive(Clone)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

fn fetch(address: SocketAddr, path: &str) -> Result<Answer, String> {
    let failed = |reason: String| format!("http://{address}{path}: {reason}");
    let bytes = get(address, path, PATIENCE).map_err(|error| failed(error.to_string()))?;
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Response::new(&mut fields);
    let length = match head.parse(&bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Err(failed("the answer ends in its head".to_owned())),
        Err(error) => return Err(failed(error.to_string())),
    };
    let status = head.code.and_then(|code| StatusCode::from_u16(code).ok());
    let mut headers = HeaderMap::new();
    for field in &*head.headers {
        let name: HeaderName = field.name.parse().map_err(|_| failed(format!("the field {}", field.name)))?;
        let value = HeaderValue::from_bytes(field.value).map_err(|_| failed(format!("the value of {}", field.name)))?;
        // Kept for ever, so that threads share no count that clones change.
        let value = value.to_str().map_err(|_| failed(format!("the value of {}", field.name)))?.to_owned();
        headers
            .append(HeaderName::from_static(name.as_str().to_owned().leak()), HeaderValue::from_static(value.leak()));
    }
    if headers.contains_key(TRANSFER_ENCODING) {
        return Err(failed("an answer without a length cannot be repeated".to_owned()));
    }
    // These hyper writes itself.
    [CONNECTION, CONTENT_LENGTH, DATE].iter().for_each(|name| drop(headers.remove(name)));
    let status = status.ok_or_else(|| failed("the answer has no status".to_owned()))?;
    Ok(Answer { status, headers, body: Bytes::from_static(bytes[length..].to_vec().leak()) })
}
