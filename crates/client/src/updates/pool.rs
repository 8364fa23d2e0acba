//! A pool of connections to the helper: bounded, kept for a while, each carrying one question at a time.

use std::error::Error as StdError;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::api::HELPER_WAITS;
use crate::connect::{Connection, connect};
use crate::error::{Error, Result};
use crate::place::Place;

/// Questions at once, but for those that end something; further ones wait, as long as their patience lasts.
const BEGINS: usize = 48;
/// Questions at once that end something. Of their own: a begin can be waiting at the helper for just that end.
const ENDS: usize = 16;
/// Longest answer that is read, in bytes.
const LONGEST_ANSWER: usize = 64 << 10;
/// How long a connection may have been idle and still be used. Well below the helper's own limit: a question on its way
/// to a connection that the helper is closing would be lost, and whether it was heard would be unknown.
const IDLE: Duration = HELPER_WAITS.checked_div(2).expect("invariant: 2 is not 0");

/// What a question is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Begin,
    End,
}

/// The connections to one helper.
pub(super) struct Pool {
    place: Place,
    begins: Semaphore,
    ends: Semaphore,
    /// At most as many as there are questions at once, the one that was used last at the end.
    idle: Mutex<Vec<(Connection, Instant)>>,
}

impl Pool {
    pub(super) fn new(place: Place) -> Self {
        let (begins, ends) = (Semaphore::new(BEGINS), Semaphore::new(ENDS));
        Pool { place, begins, ends, idle: Mutex::default() }
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Asks, and reads the whole answer. Cancelled, it closes the connection, by which the helper knows.
    pub(super) async fn ask(&self, kind: Kind, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes)> {
        let turns = match kind {
            Kind::Begin => &self.begins,
            Kind::End => &self.ends,
        };
        let _turn = turns.acquire().await.expect("invariant: the semaphores are never closed");
        let mut request = request;
        if let Some(mut sender) = self.idle().await {
            match sender.try_send_request(request).await {
                Ok(answer) => return self.read(sender, answer).await,
                Err(mut failed) => match failed.take_message() {
                    // Not a byte of it was sent: the helper had closed this connection. Only then it is asked again.
                    Some(unsent) => request = unsent,
                    None => return Err(self.broken(&failed.into_error())),
                },
            }
        }
        let mut sender = connect(&self.place).await?;
        let answer = sender.send_request(request).await.map_err(|error| self.broken(&error))?;
        self.read(sender, answer).await
    }

    /// A connection that can be used at once.
    async fn idle(&self) -> Option<Connection> {
        loop {
            let (mut sender, since) = self.idle.lock().pop()?;
            if since.elapsed() < IDLE && sender.ready().await.is_ok() {
                return Some(sender);
            }
        }
    }

    async fn read(&self, sender: Connection, answer: Response<Incoming>) -> Result<(StatusCode, Bytes)> {
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, LONGEST_ANSWER).collect().await.map_err(|error| self.broken(&*error))?;
        if !sender.is_closed() {
            let mut idle = self.idle.lock();
            idle.retain(|(sender, since)| since.elapsed() < IDLE && !sender.is_closed());
            idle.push((sender, Instant::now()));
        }
        Ok((head.status, body.to_bytes()))
    }

    fn broken(&self, error: &(dyn StdError + 'static)) -> Error {
        Error::broken(&self.place, error)
    }
}
