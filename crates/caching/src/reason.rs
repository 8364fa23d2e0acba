//! Why an answer was not taken from the cache, or not put into it.

use std::fmt;

/// A named refusal. Its name is the `detail` of `Cache-Status` (RFC 9211 section 2.8) and the label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The method is neither GET nor HEAD, and writes nothing (OPTIONS, TRACE; any where the route never writes).
    Method,
    /// The request carries a cookie that is neither ignored nor part of the key.
    Cookie,
    /// The request carries `Authorization` and the answer does not say that it may be shared (RFC 9111 section 3.5).
    Authorization,
    /// The client said `no-store`.
    RequestNoStore,
    /// `If-Match`, `If-Unmodified-Since`, or `Range` beside them or of a HEAD: the origin decides.
    Precondition,
    /// `Range`, of a page that is not stored: a part of it is not stored either.
    Range,
    /// The request asks for another protocol, and the route lets it.
    Upgrade,
    /// A GET or HEAD with a body.
    RequestBody,
    /// The route says that nothing is stored.
    Route,
    /// The answer has neither a lifetime nor a validator (standard mode).
    NoValidator,
    /// The answer names more dependencies than are kept, so it could not be purged by them (standard mode).
    TooManyNames,
    /// The answer's status is not one to store (RFC 9111 section 3).
    Status,
    /// The answer says `no-store`.
    NoStore,
    /// The answer says `private`.
    Private,
    /// The answer sets a cookie, and the route does not say that it is published nevertheless.
    SetCookie,
    /// The answer carries the value of a cookie that the application was not shown.
    CookieValue,
    /// The answer says `Vary: *`.
    VaryAll,
    /// The answer varies by more headers than are kept.
    VaryTooMuch,
    /// The answer's lifetime is over already.
    Expired,
    /// The answer is of another protocol after an upgrade, or has trailers, or a form that is not stored.
    Form,
    /// The answer says neither its length nor where it ends, so half of it would look like the whole (RFC 9112 section 8).
    Unframed,
    /// The answer is a stream of events, which has no end.
    Stream,
    /// The answer is larger than the configuration allows to store.
    TooLarge,
    /// The answer takes too long from its head to its end for others to wait for it.
    TooSlow,
    /// A slice was asked for, and the answer is not that slice of a page with a strong tag (standard mode).
    NoSlice,
    /// Answers that are on their way already take the memory that there is for them.
    TooMuch,
}

impl Reason {
    /// Whether it says of an answer that it is for its client alone: it implies nothing about answers to
    /// other clients.
    pub const fn is_for_one(self) -> bool {
        matches!(self, Reason::Cookie | Reason::Authorization | Reason::Private | Reason::SetCookie | Reason::NoStore)
    }

    /// The name, in the form of a token.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Method => "method",
            Reason::Cookie => "cookie",
            Reason::Authorization => "authorization",
            Reason::RequestNoStore => "request-no-store",
            Reason::Precondition => "precondition",
            Reason::Range => "range",
            Reason::Upgrade => "upgrade",
            Reason::RequestBody => "request-body",
            Reason::Route => "pass",
            Reason::NoValidator => "no-lifetime",
            Reason::TooManyNames => "too-many-names",
            Reason::Status => "status",
            Reason::NoStore => "no-store",
            Reason::Private => "private",
            Reason::SetCookie => "set-cookie",
            Reason::CookieValue => "cookie-value",
            Reason::VaryAll => "vary-all",
            Reason::VaryTooMuch => "vary-too-much",
            Reason::Expired => "expired",
            Reason::Form => "form",
            Reason::Unframed => "unframed",
            Reason::Stream => "event-stream",
            Reason::TooLarge => "too-large",
            Reason::TooSlow => "too-slow",
            Reason::TooMuch => "too-much",
            Reason::NoSlice => "no-slice",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
