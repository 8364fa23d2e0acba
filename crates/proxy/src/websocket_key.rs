//! The question by which one end of HTTP/1.1 sees that the other one speaks WebSocket, and its answer (RFC 6455 section 4).
//!
//! Over HTTP/2 there is neither (RFC 8441 section 5): where a client asks over HTTP/2, the proxy asks the application itself.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use rustls::crypto::ring;
use sha1::{Digest, Sha1};

pub(crate) const KEY: HeaderName = HeaderName::from_static("sec-websocket-key");
pub(crate) const ACCEPT: HeaderName = HeaderName::from_static("sec-websocket-accept");

/// What each answer is made with.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A question that was asked nowhere before.
pub(crate) struct WebSocketKey(String);

impl WebSocketKey {
    pub fn new() -> Self {
        let mut bytes = [0; 16];
        let filled = ring::default_provider().secure_random.fill(&mut bytes);
        filled
            .expect("invariant: the system gives random bytes, as it did for the handshake of the client's connection");
        WebSocketKey(STANDARD.encode(bytes))
    }

    /// As a field.
    pub fn value(&self) -> HeaderValue {
        HeaderValue::from_str(&self.0).expect("invariant: base64 is plain text")
    }

    /// Whether these fields answer it.
    pub fn is_answered_by(&self, headers: &HeaderMap) -> bool {
        let mut answers = headers.get_all(ACCEPT).iter();
        answers.next().is_some_and(|answer| answer.as_bytes() == self.answer().as_bytes()) && answers.next().is_none()
    }

    fn answer(&self) -> String {
        STANDARD.encode(Sha1::new().chain_update(&self.0).chain_update(GUID).finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_has_one_answer() {
        // RFC 6455 section 1.3.
        let key = WebSocketKey("dGhlIHNhbXBsZSBub25jZQ==".into());
        assert_eq!(key.answer(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let said = |answers: &[&'static str]| {
            let pairs = answers.iter().map(|answer| (ACCEPT, HeaderValue::from_static(answer)));
            key.is_answered_by(&pairs.fold(HeaderMap::new(), |mut all, (name, value)| {
                all.append(name, value);
                all
            }))
        };
        assert!(said(&["s3pPLMBiTxaQ9kYGzzhZRbK+xOo="]));
        assert!(!said(&[]) && !said(&["s3pPLMBiTxaQ9kYGzzhZRbK+xOp="]));
        assert!(!said(&["s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="]));
        let (one, other) = (WebSocketKey::new(), WebSocketKey::new());
        assert!(one.0.len() == 24 && one.0 != other.0);
    }
}
