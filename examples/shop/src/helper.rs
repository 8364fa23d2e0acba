//! This machine's Verbena helper, asked over HTTP. Any language can do the same with its own client.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use thiserror::Error;
use tokio::net::TcpStream;

/// How long the helper may take. It has deadlines of its own, which are shorter.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest answer that is read, bytes.
const LONGEST: usize = 64 << 10;

/// What became of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the database.
    Done,
    /// It is sure that it is not, and never will be.
    NotSent,
    /// It may be, or may yet come.
    Unknown,
}

/// Why the helper did not do what it was asked.
#[derive(Debug, Error)]
pub enum HelperError {
    /// It refused.
    #[error("the helper refuses ({status}): {reason}")]
    Refused {
        /// The status that it answered with.
        status: StatusCode,
        /// What it said.
        reason: String,
    },
    /// It was not reached, or broke off.
    #[error("no answer from the helper at {address}: {reason}")]
    Unreachable {
        /// Where it should be.
        address: SocketAddr,
        /// What went wrong.
        reason: String,
    },
}

/// Where the helper is. A connection is made for each question.
#[derive(Clone, Copy, Debug)]
pub struct Helper {
    address: SocketAddr,
}

#[derive(Deserialize)]
struct Begun {
    update: String,
}

#[derive(Deserialize)]
struct Ended {
    acknowledge: bool,
}

impl Helper {
    /// The helper at `http://ADDRESS:PORT`, or the word that is wrong with that.
    pub fn parse(url: &str) -> Result<Self, String> {
        let address = url.strip_prefix("http://").ok_or("it does not begin with http://")?;
        let address = address.trim_end_matches('/').parse();
        Ok(Helper { address: address.map_err(|_| "it is not http://ADDRESS:PORT with an address in numbers")? })
    }

    /// Says that what bears these names is about to change. When this returns, no cache serves a page made of it until [`end`](Self::end).
    /// Gives the update's identifier.
    pub async fn begin(&self, names: &[String]) -> Result<String, HelperError> {
        let begun: Begun = self.post("/v1/updates", &serde_json::json!({ "dependencies": names })).await?;
        Ok(begun.update)
    }

    /// Says what became of the update. True: every cache knows, and the write can be acknowledged.
    pub async fn end(&self, update: &str, outcome: Outcome) -> Result<bool, HelperError> {
        let outcome = match outcome {
            Outcome::Done => "done",
            Outcome::NotSent => "not-sent",
            Outcome::Unknown => "unknown",
        };
        let path = format!("/v1/updates/{update}/end");
        let ended: Ended = self.post(&path, &serde_json::json!({ "outcome": outcome })).await?;
        Ok(ended.acknowledge)
    }

    async fn post<T: for<'a> Deserialize<'a>>(&self, path: &str, body: &serde_json::Value) -> Result<T, HelperError> {
        let unreachable = |reason: String| HelperError::Unreachable { address: self.address, reason };
        let (status, body) = match tokio::time::timeout(PATIENCE, self.exchange(path, body.to_string())).await {
            Ok(answered) => answered.map_err(|error| unreachable(error.to_string()))?,
            Err(_) => return Err(unreachable(format!("nothing within {} s", PATIENCE.as_secs()))),
        };
        if !status.is_success() {
            return Err(HelperError::Refused { status, reason: String::from_utf8_lossy(&body).trim().into() });
        }
        serde_json::from_slice(&body).map_err(|error| unreachable(format!("an answer that is not understood: {error}")))
    }

    async fn exchange(
        &self,
        path: &str,
        body: String,
    ) -> Result<(StatusCode, Bytes), Box<dyn std::error::Error + Send + Sync>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::post(path)
            .header("host", self.address.to_string())
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))?;
        let answered = async {
            let (head, body) = sender.send_request(request).await?.into_parts();
            Ok((head.status, Limited::new(body, LONGEST).collect().await?.to_bytes()))
        };
        tokio::pin!(connection, answered);
        tokio::select! {
            answered = &mut answered => answered,
            // It ends by itself only when the other side closed; what arrived before that is still read.
            _ = &mut connection => answered.await,
        }
    }
}
