//! A fill that is registered when its head is here (rule H5): see [`joining`](crate::joining).

use std::pin::pin;
use std::sync::Arc;

use http::HeaderValue;
use http::header::CONTENT_LENGTH;
use tokio::time::{Instant, timeout_at};
use verbena_caching::Reason;
use verbena_content::Unstorable;

use crate::ahead::{Next, Puts};
use crate::body::Passing;
use crate::cache::Fetched;
use crate::fill::{FIELDS, Kept, LONGEST, Share, coded_soon, stored_whole};
use crate::joining::{Coming, Growing};

/// How the reading of a body that is to be stored ends.
enum End {
    Whole,
    /// The home does not have it stored.
    Refused,
    /// It must not be, or cannot be.
    NotKept(Reason),
}

/// Reads a body that is to be stored, and has its head registered meanwhile. A client that has gone does not end it: others may wait.
pub(crate) async fn pump_joined(mut passing: Passing, kept: Kept, puts: Puts, share: Arc<Share>) {
    let Kept { leader, page, key, stored, coding, about, times, depends, largest, place, .. } = kept;
    let Some((scope, mut leader)) = Kept::scope(depends, leader, &about).await else {
        return puts.last(Next::Rest(passing));
    };
    let Some((cache, fill)) = leader.fill() else { return puts.last(Next::Rest(passing)) };
    let hint = hyper::body::Body::size_hint(&passing.incoming);
    let body = Arc::new(Growing::default());
    let expected = hint.exact().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
    body.reserve(expected.min(largest) + FIELDS);
    let give_up = Instant::now() + LONGEST.min(passing.patience);
    let mut registering = pin!(cache.register(fill, scope));
    let mut coming: Option<Arc<Coming>> = None;
    let mut length = 0;
    let end = loop {
        let next = tokio::select! {
            biased;
            registered = &mut registering, if coming.is_none() => {
                leader.is_told();
                let mut head = stored.clone();
                if let Some(bytes) = hint.exact() {
                    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
                }
                let head = Fetched { page, key, stored: head, body: Vec::new(), times };
                match registered.and_then(|(settled, _registers)| cache.announce(settled, head, (&body, hint))) {
                    None => break End::Refused,
                    Some(announced) => {
                        leader.is_registered(announced.head.stamp());
                        coming = Some(announced);
                    }
                }
                continue;
            }
            next = timeout_at(give_up, passing.next()) => next,
        };
        let frame = match next {
            Err(_) => break End::NotKept(Reason::TooSlow),
            Ok(None) => break End::Whole,
            Ok(Some(Err(cut))) => {
                if let Some(coming) = &coming {
                    cache.abandon(key, coming);
                }
                body.cut();
                return puts.last(Next::Cut(cut));
            }
            Ok(Some(Ok(frame))) => frame,
        };
        let refused = match frame.data_ref() {
            None => Some(Reason::Form),
            // What the client has not taken, and what is kept.
            Some(data) => {
                let is_too_large = length + data.len() > largest;
                let is_too_much = !is_too_large && !share.take(2 * data.len());
                length = body.more(data);
                is_too_large.then_some(Reason::TooLarge).or(is_too_much.then_some(Reason::TooMuch))
            }
        };
        puts.frame(frame);
        if let Some(reason) = refused {
            break End::NotKept(reason);
        }
    };
    drop(place);
    match end {
        End::Whole => {
            let whole = async {
                let mut fetched = Fetched { page, key, stored, body: body.take(), times };
                stored_whole(&cache.keys, about.kind, &mut fetched.stored, &fetched.body);
                let page = match &coming {
                    Some(coming) => Some(cache.arrived(coming, fetched)),
                    None => {
                        let registered = registering.await;
                        leader.is_told();
                        let (settled, _registers) = registered?;
                        cache.settle(settled, Some(fetched)).map(|shared| shared.copy)
                    }
                };
                let page = page?;
                leader.is_registered(page.stamp());
                coded_soon(&cache, coding, key, &page);
                body.stored(page.clone().body());
                share.give_back();
                Some(page.body())
            };
            puts.ends(whole).await;
        }
        End::Refused => puts.last(Next::Rest(passing)),
        End::NotKept(reason) => {
            cache.observed.not_stored.with([reason.name()]).increment();
            if let Some(coming) = &coming {
                cache.abandon(key, coming);
            }
            // Another time there may be room.
            if reason != Reason::TooMuch {
                cache.remember(about.id, Unstorable::Page(reason.name()));
            }
            drop(leader);
            if reason == Reason::Form {
                // Nothing but trailers is left of it.
                body.whole();
            } else if body.close() {
                puts.last(Next::Joined(body.beside(hint)));
                return read_on(passing, &body).await;
            }
            puts.last(Next::Rest(passing));
        }
    }
}

/// Reads a body that is not kept for those that joined it, and for the client that it was fetched for.
async fn read_on(mut passing: Passing, body: &Growing) {
    while body.room().await {
        match passing.next().await {
            None => return body.whole(),
            Some(Err(_)) => return body.cut(),
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    body.more(data);
                }
            }
        }
    }
}
