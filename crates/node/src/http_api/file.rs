//! Files that the helper shows over HTTP. What is in them is the front door's business.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::HeaderValue;

use crate::http_api::answer::Answer;

/// A file in the program.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// Where: `/` and more.
    pub path: &'static str,
    /// Its `Content-Type`.
    pub media_type: &'static str,
    /// What is in it.
    pub bytes: &'static [u8],
}

/// Content security policy: a page runs only scripts of its own origin, connects only to that origin, and must not be
/// framed.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

impl File {
    pub(crate) fn at<'a>(files: &'a [File], path: &str) -> Option<&'a File> {
        files.iter().find(|file| file.path == path)
    }

    pub(crate) fn answer(&self) -> Answer {
        let mut answer = Answer::new(Full::new(Bytes::from_static(self.bytes)));
        for (name, value) in [
            ("content-type", self.media_type),
            ("content-security-policy", POLICY),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            // The next version of the program has others.
            ("cache-control", "no-cache"),
        ] {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        answer
    }
}
