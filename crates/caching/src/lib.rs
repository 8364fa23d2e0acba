//! What an HTTP cache may store and what it may answer, decided without input or output.
//!
//! Two questions are asked of every request, and they are kept apart. *Is this copy still what the application would say?* is
//! answered by version words, in the crate `content`. *May this answer be given to this client at all?* is answered here, from
//! headers alone: RFC 9110 (semantics), RFC 9111 (caching), RFC 9211 (`Cache-Status`), and what a [`Route`] says of
//! cookies and of writing.
//!
//! The way of a request: [`received`] puts its head into the form that all later steps read; [`Request::of`] says what it wants ([`Intent`]); a stored answer
//! is found by [`Request::key`] and [`Variant`]; [`answer`] says whether it goes out whole or as 304; on a miss, [`store`] says whether what the origin sent
//! may be kept, for how long, and under which headers. Every refusal is a named [`Reason`], which ends up in `Cache-Status` and in a metric.
//!
//! A [`Route`] is in one of three [`Mode`]s. In *standard* mode RFC 9111 holds as it stands ([`Lifetime`]), with validators ([`ask_whether`], [`freshened`]).
//!
//! *Coherent* mode differs from a plain shared cache in two places (rule P9). Every hit was validated at its home after the request arrived, which
//! is a successful validation in the sense of RFC 9111 section 4.3: so `no-cache`, `max-age=0` and `must-revalidate` do
//! not prevent storing. And what leaves says `no-cache`, so that no cache farther out answers without asking.

mod answer;
mod carried;
mod coding;
mod control;
mod cookies;
mod date;
mod fields;
mod forward;
mod freshening;
mod freshness;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod http2;
mod key;
mod language;
mod names;
mod path;
mod purge;
mod query;
mod range;
mod reason;
mod request;
mod route;
mod rule;
#[cfg(test)]
mod second_opinion;
mod slice;
mod status;
mod store;
mod target;
mod targeted;
mod variant;

pub use answer::{Answer, answer, answer_by_dates_too, has_tag};
pub use carried::Carried;
pub use coding::{Coding, Codings, LEAST_CODED, may_be_coded, varies_by_coding};
pub use control::{CacheControl, Life};
pub use cookies::Hidden;
pub use forward::{Conditions, Unfit, Via, for_client, for_origin, for_refresh, is_framed_plainly, received};
pub use freshening::{ask_by_tag, ask_whether, freshened, is_of_another};
pub use freshness::{Lifetime, Use, Wishes};
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use fuzzing::{Outcomes, Targeted, accept_list, http_head, purge_headers, range, targeted_field};
pub use key::{Key, Keys, MOST_PREFIXES};
pub use language::{Languages, is_language};
pub use names::{ANALYTICS, Names};
pub use purge::{PURGE, PURGEKEYS, Purge};
pub use query::{Query, for_page};
pub use range::{MOST_RANGES, Parts, parts};
pub use reason::Reason;
pub use request::{BESIDE_DATABASE, Bracket, Intent, Request};
pub use route::{Cookies, Mode, Route, Routes, Writes};
pub use rule::{CookieRule, QueryRule, Rule, parents, resolve};
pub use slice::{FirstByte, SliceHead, SliceSize, first_byte, slice_of};
pub use status::CacheStatus;
pub use store::{Arrival, Stored, is_framed, store};
pub use target::{encoded, encoded_address, is_unencoded};
pub use variant::Variant;
