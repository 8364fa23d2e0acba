//! Which fields of a request's head matter, found in one pass: most requests have few of the many that could, and asking for each by its name
//! costs more than all the rest that is done for a hit.

use http::{HeaderMap, HeaderName};

/// Fields by which a client, or a proxy before this one, tells under which address the application is seen.
pub(crate) const ADDRESS: [&str; 12] = [
    "front-end-https",
    "x-forwarded-host",
    "x-forwarded-path",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "x-host",
    "x-original-host",
    "x-url-scheme",
];

/// Fields in which some applications look for the path of a request; and some proxies before this one repeat it there.
pub(crate) const OTHER_PATH: [&str; 3] = ["x-original-uri", "x-original-url", "x-rewrite-url"];

/// Fields in which some applications look for the method of a request.
pub(crate) const OTHER_METHOD: [&str; 3] = ["x-http-method", "x-http-method-override", "x-method-override"];

/// Fields that are for one connection whether or not `Connection` names them.
pub(crate) const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Of a proxy that asked for credentials, as those fields are: it is not stored (RFC 9111 section 3.1).
pub(crate) const PROXY_AUTHENTICATION_INFO: HeaderName = HeaderName::from_static("proxy-authentication-info");

/// Conditions that a cache does not evaluate, and parts of a page.
pub(crate) const PRECONDITION: [&str; 3] = ["if-match", "if-unmodified-since", "range"];

const KINDS: [(Kind, &[&str]); 9] = [
    (Kind::Address, &ADDRESS),
    (Kind::OtherPath, &OTHER_PATH),
    (Kind::OtherMethod, &OTHER_METHOD),
    (Kind::HopByHop, &HOP_BY_HOP),
    (Kind::Precondition, &PRECONDITION),
    (Kind::Forwarded, &["forwarded"]),
    (Kind::Cookie, &["cookie"]),
    (Kind::CacheControl, &["cache-control"]),
    (Kind::Expect, &["expect"]),
];

/// Fields that are looked at for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Address,
    OtherPath,
    OtherMethod,
    HopByHop,
    Precondition,
    Forwarded,
    Cookie,
    CacheControl,
    Expect,
}

/// The kinds of fields that a message has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fields(u16);

impl Fields {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Fields(headers.keys().fold(0, |found, name| found | kinds(name.as_str())))
    }

    pub(crate) fn has(self, kind: Kind) -> bool {
        self.0 & bit(kind) != 0
    }
}

const fn bit(kind: Kind) -> u16 {
    1 << kind as u16
}

/// By the length first: of names that are as long there are few.
fn kinds(name: &str) -> u16 {
    if name.len() > LONGEST || LENGTHS[name.len()] == 0 {
        return 0;
    }
    let found = KINDS.iter().filter(|(kind, names)| LENGTHS[name.len()] & bit(*kind) != 0 && names.contains(&name));
    found.fold(0, |found, (kind, _)| found | bit(*kind))
}

const LONGEST: usize = 22;

/// Which kinds have a name of each length.
const LENGTHS: [u16; LONGEST + 1] = {
    let mut lengths = [0; LONGEST + 1];
    let mut at = 0;
    while at < KINDS.len() {
        let (kind, names) = KINDS[at];
        let mut name = 0;
        while name < names.len() {
            lengths[names[name].len()] |= bit(kind);
            name += 1;
        }
        at += 1;
    }
    lengths
};

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn every_name_is_found_and_no_other() {
        for (kind, names) in KINDS {
            for name in names {
                let mut headers = HeaderMap::new();
                headers.insert(HeaderName::from_static(name), HeaderValue::from_static("1"));
                headers.insert("accept", HeaderValue::from_static("*/*"));
                let fields = Fields::of(&headers);
                for (other, _) in KINDS {
                    assert_eq!(fields.has(other), kind == other, "{name}: {other:?}");
                }
            }
        }
        for other in ["", "accept", "x-forwarded-for", "if-none-match", "x-http-method-overridden", "cookie2"] {
            assert_eq!(kinds(other), 0, "{other}");
        }
    }
}
