//! What requests carry, and what they are answered.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{Response, StatusCode};
use serde::{Deserialize, Serialize};
use verbena_protocol::api::{HELPER_WAITS, Problem};

/// Bytes of a request's body.
const LARGEST_BODY: usize = 1 << 20;

pub(crate) type Answer = Response<Full<Bytes>>;

/// The body of a request, in time, or what is answered instead.
pub(crate) async fn read<T: for<'de> Deserialize<'de>>(body: Incoming) -> std::result::Result<T, Answer> {
    let body = tokio::time::timeout(HELPER_WAITS, gather(Limited::new(body, LARGEST_BODY))).await;
    let body = body.map_err(|_| error(StatusCode::REQUEST_TIMEOUT, "the body of the request did not come in time"))?;
    let body = body.map_err(|reason| bad_request(format!("the body cannot be read: {reason}")))?;
    serde_json::from_slice(&body).map_err(|reason| bad_request(format!("the body is not what is expected: {reason}")))
}

/// Copied: each piece that came by itself would keep all that was read with it.
async fn gather(mut body: Limited<Incoming>) -> std::result::Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> {
    let mut gathered = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            gathered.extend_from_slice(&data);
        }
    }
    Ok(gathered)
}

pub(crate) fn bad_request(text: impl Into<String>) -> Answer {
    error(StatusCode::BAD_REQUEST, text)
}

pub(crate) fn error(status: StatusCode, text: impl Into<String>) -> Answer {
    answer(status, &Problem { error: text.into() })
}

pub(crate) fn answer(status: StatusCode, body: &impl Serialize) -> Answer {
    let mut body = serde_json::to_vec(body).expect("invariant: text, numbers and truth have a form in JSON");
    body.push(b'\n');
    let mut answer = Response::new(Full::from(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    answer
}
