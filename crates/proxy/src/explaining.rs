//! What would become of a request, without anything being done: for `verbena explain`. Nothing is forwarded, stored or counted.

use std::sync::Arc;

use http::header::{ETAG, HOST};
use http::{HeaderName, HeaderValue, Method, Uri, request};
use serde::Serialize;
use verbena_caching::{
    Bracket, Coding, FirstByte, Intent, Mode, Reason, Request as Wanted, Route, Routes, encoded_address, first_byte,
    received,
};
use verbena_content::Kind;
use verbena_terms::ViewNumber;

use crate::answer;
use crate::cache::{Cache, Foreseen, Found};
use crate::exchange::{HEAD, is_for_all};
use crate::looked::{Served, kind_of};
use crate::old::SOFT_PURGE;
use crate::page::Page;
use crate::slices::slice_size;

/// What the proxy adds where TLS carries a request.
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Says what a running proxy would do with a request.
#[derive(Clone)]
pub struct Explainer {
    pub(crate) cache: Arc<Cache>,
    pub(crate) routes: Arc<Routes>,
}

/// What would become of a request, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explained {
    /// `hit`, `fetch`, `join`, `wait`, `validate`, `pass`, `write` or `refuse`.
    pub outcome: &'static str,
    /// The same in words.
    pub says: &'static str,
    /// As `fwd` of `Cache-Status` says it; of a hit nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<&'static str>,
    /// As `detail` of `Cache-Status` says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<&'static str>,
    /// The prefix of the rule that holds for its path.
    pub route: String,
    /// By what copies are found to be good there.
    pub mode: Mode,
    /// The page that it is about.
    pub key: String,
    /// That one among the page's variants.
    pub variant: String,
    /// By whose words it is validated.
    pub page: String,
    /// The fields by which the stored answers of the page differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub varies_by: Vec<String>,
    /// Why it is one with credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<&'static str>,
    /// In which coding that is made here it accepts the page best.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coding: Option<&'static str>,
    /// The slice that its answer begins with, where the page is stored in slices: key, variant and copy are that one's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slice: Option<u64>,
    /// What is stored for it at this proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<StoredCopy>,
    /// The words of its page, at its home. None: they cannot be read.
    pub words: Option<PageWords>,
}

/// A stored answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredCopy {
    /// Its status.
    pub status: u16,
    /// Bytes of its body.
    pub bytes: usize,
    /// Its tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Seconds, of a standard page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age: Option<u64>,
    /// Seconds until the page is stale, negative once it is; of a standard page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<i64>,
    /// Codings in which it is kept as well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub codings: Vec<&'static str>,
}

/// Words of a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PageWords {
    /// The home that the words belong to.
    pub home: String,
    /// The view in which they were read.
    pub view: u32,
    /// Generation of the page word.
    pub page: u64,
    /// Generation of the word that all pages of this mode are compared with.
    pub all: u64,
    /// An update is open that touches it.
    pub is_busy: bool,
}

type Read = Option<(ViewNumber, verbena_content::Words)>;

/// What is said of a request.
struct Judged {
    outcome: &'static str,
    says: &'static str,
    why: Option<&'static str>,
    detail: Option<&'static str>,
}

const fn judged(
    outcome: &'static str,
    says: &'static str,
    why: Option<&'static str>,
    detail: Option<&'static str>,
) -> Judged {
    Judged { outcome, says, why, detail }
}

impl Explainer {
    /// What the proxy would do with this request.
    ///
    /// # Errors
    /// Why it is no request.
    pub async fn explain(&self, method: &str, url: &str, fields: &[(String, String)]) -> Result<Explained, String> {
        let mut head = head(method, url, fields)?;
        if let Err(unfit) = received(&mut head) {
            let answer = answer::unfit(unfit);
            return Err(format!("it is answered {}, whatever its page", answer.status()));
        }
        let route = self.routes.find(head.uri.path());
        let mut wanted = Wanted::of(&head, false, &route, &self.cache.keys);
        let mut found = self.cache.find(&wanted, &head, &route);
        let sliced = self.first_slice(&head, &wanted, &found, &route);
        let slice = sliced.as_ref().map(|(_, slice)| *slice);
        if let Some((of_slice, _)) = sliced {
            (head, wanted) = of_slice;
            found = self.cache.find(&wanted, &head, &route);
        }
        let words = match self.cache.content.read(found.page) {
            Some(reading) => reading.words().await,
            None => None,
        };
        let coding = found.copy.as_ref().is_none_or(Page::may_be_coded);
        let coding = route.compress.accepted(&head, &route.cookies).filter(|_| coding).map(Coding::name);
        let shown = (wanted.key, found.key, found.page);
        let copy = found.copy.clone().map(|copy| self.shown(found.key, copy, &route));
        let Judged { outcome, says, why, detail } = self.judge(&head, &wanted, found, words).await;
        Ok(Explained {
            outcome,
            says,
            why,
            detail,
            route: route.prefix.clone(),
            mode: wanted.mode,
            key: format!("{:032x}", shown.0.0),
            variant: format!("{:032x}", shown.1.0),
            page: format!("{:016x}", shown.2.0),
            varies_by: self.cache.varies_by(wanted.key),
            credentials: wanted.credentials.map(Reason::name),
            coding,
            copy,
            slice,
            words: words.map(|(view, words)| shown_words(view, &words, kind_of(wanted.mode))),
        })
    }

    /// The request for the slice that an answer would begin with, and which one that is, if the page is stored in slices (rule H9).
    fn first_slice(
        &self,
        head: &request::Parts,
        wanted: &Wanted,
        found: &Found,
        route: &Route,
    ) -> Option<((request::Parts, Wanted), u64)> {
        let size = slice_size(head, wanted, route)
            .filter(|_| !self.cache.unsliced.has(wanted.key, self.cache.content.now()) && found.copy.is_none())?;
        let FirstByte::At(byte) = first_byte(head) else { return None };
        let (mut head, slice) = (head.clone(), size.slice_of(byte));
        size.ask(&mut head, slice, None);
        let wanted = wanted.for_slice(self.cache.keys.of_slice(wanted.key, size, slice));
        Some(((head, wanted), slice))
    }

    /// As [`Exchange::respond`](crate::exchange::Exchange::respond) goes about it, in that order.
    async fn judge(&self, head: &request::Parts, wanted: &Wanted, found: Found, words: Read) -> Judged {
        let is_part = wanted.intent == Intent::Pass(Reason::Range);
        match wanted.intent {
            Intent::Update(bracket) => return of_write(bracket),
            Intent::Pass(reason) if !is_part => {
                let says = "passed on, neither looked for nor stored";
                return judged("pass", says, Some("bypass"), Some(reason.name()));
            }
            Intent::Pass(_) | Intent::Look => {}
        }
        let (key, page) = (found.key, found.page);
        let looked = match self.cache.looked(found, words, wanted) {
            Err(missing) => self.cache.reconsidered(missing, wanted).await,
            served => served,
        };
        let missing = match looked {
            Ok(Served { refresh, detail, .. }) => {
                let says = match (refresh, detail) {
                    (None, _) => "answered from the copy",
                    (Some(_), Some(SOFT_PURGE)) => {
                        "answered from the copy, which was purged softly and is fetched anew for the requests behind it"
                    }
                    (Some(_), _) => "answered from the copy, which is fetched anew for the requests behind it",
                };
                return judged("hit", says, None, detail);
            }
            Err(missing) => missing,
        };
        let (why, detail) = (Some(missing.why), missing.detail);
        if is_part {
            let says = "passed on, and not stored: no whole page is here of which it could be a part";
            return judged("pass", says, Some("bypass"), Some(Reason::Range.name()));
        }
        if wanted.only_if_cached {
            return judged("refuse", "504: it wants what is stored, or nothing", why, detail);
        }
        if let Some(reason) = wanted.credentials.filter(|_| self.cache.is_unshared(wanted.key)) {
            let says = "fetched for this client alone: answers of this page were not for requests with credentials";
            return judged("pass", says, why, detail.or(Some(reason.name())));
        }
        if head.method == Method::HEAD {
            return judged("pass", "passed on: a HEAD makes no stored page", why, detail.or(Some(HEAD)));
        }
        let now = self.cache.content.now();
        let is_for = |copy: &Page| copy.is_for(wanted.credentials) && is_for_all(copy, wanted, now);
        let base = missing.base.filter(|base| base.can_be_asked_about(&self.cache));
        match (self.cache.foresee(key, (page, kind_of(wanted.mode)), words, is_for), base) {
            (Foreseen::Alone(reason), _) => {
                let says = "fetched for this client alone, and not stored";
                judged("pass", says, why, detail.or(Some(reason)))
            }
            (Foreseen::Join, _) => {
                judged("join", "answered with a page that is still coming for another request", why, detail)
            }
            (Foreseen::Wait, _) => judged("wait", "waits for the fetch of another request", why, detail),
            (Foreseen::Lead, Some(_)) => {
                judged("validate", "the application is asked whether the copy is right still", why, detail)
            }
            (Foreseen::Lead, None) if self.cache.pool.is_some() => {
                let says = "looked for in the pool, then fetched from the application, and stored if its answer may be";
                judged("fetch", says, why, detail)
            }
            (Foreseen::Lead, None) => {
                judged("fetch", "fetched from the application, and stored if its answer may be", why, detail)
            }
        }
    }

    fn shown(&self, key: verbena_caching::Key, copy: Page, route: &Route) -> StoredCopy {
        let aged = copy.times().map(|times| times.aged(self.cache.content.now()));
        let status = copy.status().as_u16();
        let is_kept = |coding: &Coding| {
            let coded = self.cache.copy_at(coding.key(key)).filter(|coded| coded.is_coded_of(&copy));
            coded.is_some_and(|coded| !coded.is_empty())
        };
        let codings = match route.compress.is_empty() {
            true => Vec::new(),
            false => Coding::ALL.into_iter().filter(is_kept).map(Coding::name).collect(),
        };
        let (headers, body) = copy.opened(&self.cache.shapes);
        let tag = headers.get(ETAG).map(|tag| String::from_utf8_lossy(tag.as_bytes()).into_owned());
        let (age, ttl) = (aged.map(|aged| aged.age), aged.map(|aged| aged.ttl));
        StoredCopy { status, bytes: body.len(), tag, age, ttl, codings }
    }
}

fn shown_words(view: ViewNumber, words: &verbena_content::Words, kind: Kind) -> PageWords {
    PageWords {
        home: words.home.to_string(),
        view: view.0,
        page: words.word.generation(),
        all: words.common(kind).generation(),
        is_busy: words.are_busy(kind),
    }
}

fn of_write(bracket: Bracket) -> Judged {
    let (says, detail) = match bracket {
        Bracket::Announced => ("passed on: the application brackets it", Some("announced")),
        Bracket::After => ("forwarded; what it touches is purged before its client is answered", None),
        Bracket::BesideDatabase => {
            ("an update of all pages whose dependencies are not known whole, around the request", None)
        }
        Bracket::Everything | Bracket::OfAnother => ("an update of everything, around the request", None),
    };
    judged("write", says, Some("method"), detail)
}

/// A request as a client would send it.
fn head(method: &str, url: &str, fields: &[(String, String)]) -> Result<request::Parts, String> {
    let uri: Uri = encoded_address(url).parse().map_err(|error| format!("{url:?} is no address: {error}"))?;
    let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
    let host = uri.authority().filter(|_| is_web).ok_or_else(|| {
        format!("{url:?} is no address of a page: write http://HOST/PATH?QUERY as clients ask for it")
    })?;
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| format!("{method:?} is no method"))?;
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let builder = http::Request::builder().method(method).uri(target).header(HOST, host.as_str());
    let request = builder.body(()).map_err(|error| format!("{url:?} cannot be asked for: {error}"))?;
    let mut head = request.into_parts().0;
    for (name, value) in fields {
        let field = HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_str(value).ok());
        let (name, value) = field.ok_or_else(|| format!("\"{name}: {value}\" is no header"))?;
        match name == HOST {
            true => drop(head.headers.insert(name, value)),
            false => drop(head.headers.append(name, value)),
        }
    }
    if uri.scheme_str() == Some("https") {
        head.headers.entry(FORWARDED_PROTO).or_insert(HeaderValue::from_static("https"));
    }
    Ok(head)
}
