//! An answer on its way from the origin to a client, kept to be stored.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, ETAG};
use http::{HeaderValue, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use verbena_caching::{Key, Stored, entity_tag_of};
use verbena_content::{FillId, Scope};
use verbena_terms::Time;

use crate::body::{Cut, Passing};
use crate::cache::{Cache, Copy};

/// The duty to say how a fill ended: dropped, it failed.
pub(crate) struct Leader {
    cache: Arc<Cache>,
    fill: Option<FillId>,
}

impl Leader {
    pub fn new(cache: Arc<Cache>, fill: FillId) -> Self {
        Leader { cache, fill: Some(fill) }
    }

    pub fn unstorable(mut self) {
        if let Some(fill) = self.fill.take() {
            self.cache.unstorable(fill);
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if let Some(fill) = self.fill.take() {
            self.cache.failed(fill);
        }
    }
}

/// The origin's body: passed on, and kept until it is whole or too large.
pub(crate) struct Tee {
    passing: Passing,
    kept: Option<Kept>,
}

/// What is to be stored at the end.
pub(crate) struct Kept {
    pub leader: Leader,
    /// Among the page's variants.
    pub key: Key,
    pub stored: Stored,
    /// When the lifetime that the origin set is over.
    pub expires: Option<Time>,
    pub scope: Scope,
    pub largest: usize,
    pub bytes: BytesMut,
}

impl Tee {
    pub fn new(passing: Passing, kept: Kept) -> Self {
        let mut tee = Tee { passing, kept: Some(kept) };
        if tee.passing.incoming.is_end_stream() {
            tee.whole();
        }
        tee
    }

    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let polled = self.passing.poll(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.keep(frame);
                // A client that has got as many bytes as it was promised does not ask for the end.
                if self.passing.incoming.is_end_stream() {
                    self.whole();
                }
            }
            Poll::Ready(Some(Err(_))) => self.kept = None,
            Poll::Ready(None) => self.whole(),
            Poll::Pending => {}
        }
        polled
    }

    pub fn size_hint(&self) -> SizeHint {
        self.passing.incoming.size_hint()
    }

    fn keep(&mut self, frame: &Frame<Bytes>) {
        let Some(kept) = &mut self.kept else { return };
        match frame.data_ref() {
            Some(data) if kept.bytes.len() + data.len() <= kept.largest => kept.bytes.extend_from_slice(data),
            // Too large, or trailers.
            _ => {
                if let Some(kept) = self.kept.take() {
                    kept.leader.unstorable();
                }
            }
        }
    }

    fn whole(&mut self) {
        if let Some(kept) = self.kept.take() {
            tokio::spawn(kept.register());
        }
    }
}

impl Kept {
    async fn register(self) {
        let Kept { mut leader, key, mut stored, expires, scope, bytes, .. } = self;
        let Some(fill) = leader.fill.take() else { return };
        let body = bytes.freeze();
        if !stored.headers.contains_key(ETAG) {
            stored.headers.insert(ETAG, entity_tag_of(&body));
        }
        if stored.status != StatusCode::NO_CONTENT {
            stored.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        leader.cache.clone().fetched(fill, scope, Copy { key, stored, body, expires }).await;
    }
}
