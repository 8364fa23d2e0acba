//! A request that writes: bracketed by an update of everything, or of what is not in a database that is seen (rules P3, P4, P7, Q11).

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode, request};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use tokio::sync::mpsc;
use verbena_caching::{Hidden, Mode, is_framed};
use verbena_content::service::{Finish, Refused, Ticket};
use verbena_content::{BeginError, Scope};

use crate::answer::{self, forwarded};
use crate::body::{Body, Cut, Passing};
use crate::exchange::{Exchange, Unanswered};
use crate::origin::Failure;
use crate::queries::Charging;
use crate::upload::Upload;

/// Bytes of a request's body that must be here before the update begins: a client that sends slowly must not keep all other
/// clients' pages out of the cache.
const GATHER_FIRST: usize = 64 << 10;

/// Bytes of an answer that are read before the client gets its head. Of a longer one the client gets all but the end.
const READ_FIRST: usize = 64 << 10;

/// Begins the update, forwards, reads the whole answer, ends the update, and answers. From the beginning on, a client that hangs up changes
/// nothing of this: it goes on in a task of its own.
pub(crate) async fn respond(
    exchange: Arc<Exchange>,
    (scope, harmless, charging): (Scope, BTreeSet<u16>, Option<Charging>),
    head: request::Parts,
    body: Option<Incoming>,
) -> Result<Response<Body>, Unanswered> {
    let mut body = Upload::new(body, exchange.client_patience);
    if let Err(cut) = body.gather(GATHER_FIRST).await {
        return Ok(exchange.failed(cut.into(), "method"));
    }
    let unfinished = exchange.unfinished.subscribe();
    let update = async move {
        let answered = update(exchange, (scope, harmless, charging), head, body).await;
        (answered, unfinished)
    };
    tokio::spawn(update).await.map_or(Err(Unanswered), |(answered, _)| answered)
}

async fn update(
    exchange: Arc<Exchange>,
    (scope, harmless, charging): (Scope, BTreeSet<u16>, Option<Charging>),
    head: request::Parts,
    body: Upload,
) -> Result<Response<Body>, Unanswered> {
    let ticket = match exchange.cache.content.begin(scope).await {
        Ok(ticket) => ticket,
        Err(refused) => return Ok(not_begun(&refused)),
    };
    let written = exchange.connections.write(&head, body).await;
    let empties = |status| exchange.cache.observed.emptied(head.uri.path(), status);
    let answered = match written {
        Ok(answered) => answered,
        Err(failure) => {
            // Otherwise the ticket is dropped: the update's outcome is unknown.
            match failure {
                Failure::Unreachable => ticket.not_sent(),
                _ => empties(None),
            }
            return Ok(exchange.failed(failure, "method"));
        }
    };
    // Where nothing but the end of the connection ends an answer, half of it looks like the whole, and the write may be under way still.
    let is_framed = is_framed(answered.headers()) || answered.body().is_end_stream();
    // A refusal that does not say where it ends may be half of one.
    let status = answered.status();
    let is_refused = is_framed && harmless.contains(&status.as_u16());
    if !is_refused {
        empties(Some(status));
    }
    let open = Open { ticket, is_framed, is_refused };
    let noted = forwarded("method", is_refused.then_some("harmless"));
    let mut response = exchange.passed(answered, (&Hidden::default(), Mode::Coherent), noted, charging);
    let Body::Origin(mut passing) = std::mem::replace(response.body_mut(), Body::empty()) else {
        return Err(Unanswered);
    };
    let mut read = BytesMut::new();
    loop {
        match passing.next().await {
            None => break,
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    read.extend_from_slice(&data);
                }
            }
            Some(Err(_)) => return Ok(exchange.failed(Failure::Broken, "method")),
        }
        if read.len() > READ_FIRST {
            *response.body_mut() = hold_back(&exchange, open, passing, read.freeze());
            return Ok(response);
        }
    }
    match open.ends().await {
        Finish::Answer => {
            *response.body_mut() = Body::from(read.freeze());
            Ok(response)
        }
        Finish::Close => Err(Unanswered),
    }
}

/// Passes a long answer on, always one piece behind, so that the client has its end only after the update ended. A client that takes no
/// piece for too long, or has gone, gets no more of it, and the reading goes on.
fn hold_back(exchange: &Exchange, open: Open, mut passing: Passing, mut behind: Bytes) -> Body {
    let (pieces, body) = mpsc::channel(4);
    let (patience, unfinished) = (exchange.client_patience, exchange.unfinished.subscribe());
    tokio::spawn(async move {
        let mut pieces = Some(pieces);
        while let Some(frame) = passing.next().await {
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) => {
                    let piece = std::mem::replace(&mut behind, data);
                    if let Some(client) = &pieces
                        && client.send_timeout(Ok(Some(piece)), patience).await.is_err()
                    {
                        pieces = None;
                    }
                }
                Ok(Err(_trailers)) => {}
                Err(cut) => {
                    // Its outcome is unknown from now on, and not only when the client has taken this.
                    drop(open);
                    if let Some(client) = pieces {
                        let _ = client.send(Err(cut)).await;
                    }
                    return;
                }
            }
        }
        let finish = open.ends().await;
        drop(unfinished);
        let end = match finish {
            Finish::Answer => [Ok(Some(behind)), Ok(None)].into_iter().take(2),
            Finish::Close => [Err(Cut::Unconfirmed), Ok(None)].into_iter().take(1),
        };
        if let Some(client) = pieces {
            for piece in end {
                // A client that has gone misses nothing that it could know.
                let _ = client.send(piece).await;
            }
        }
    });
    Body::Held(body)
}

/// An update whose answer is being read.
struct Open {
    ticket: Ticket,
    /// The answer says itself where it ends.
    is_framed: bool,
    /// Its status says that nothing was written.
    is_refused: bool,
}

impl Open {
    /// The answer has come to an end: its outcome is unknown if that may not be the answer's.
    async fn ends(self) -> Finish {
        match self {
            Open { ticket, is_framed: true, is_refused: false } => ticket.answered().await,
            Open { ticket, is_framed: true, is_refused: true } => ticket.refused().await,
            Open { is_framed: false, .. } => Finish::Answer,
        }
    }
}

fn not_begun(refused: &Refused) -> Response<Body> {
    let detail = match refused {
        Refused::NotBegun => "update-not-begun",
        Refused::NotTaken(BeginError::Full { .. }) => "too-many-updates",
        Refused::NotTaken(BeginError::Leaving) => "leaving",
        Refused::Overloaded => "overloaded",
        Refused::Stopped => "stopped",
    };
    answer::own(StatusCode::SERVICE_UNAVAILABLE, &refused.to_string(), forwarded("method", Some(detail)))
}
