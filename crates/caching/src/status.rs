//! `Cache-Status` (RFC 9211): what the cache did with a request, on every answer.

use http::HeaderValue;

/// What happened. Rendered by [`value`](Self::value).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheStatus {
    /// Answered from the cache, validated.
    Hit,
    /// The same, with a token that says more.
    HitOf {
        /// The token.
        detail: &'static str,
    },
    /// Answered from the cache, by its lifetime.
    Aged {
        /// Seconds that are left of it, below 0 if it is stale (RFC 9211 section 2.3).
        ttl: i64,
        /// A token that says more.
        detail: Option<&'static str>,
    },
    /// Went to the origin.
    Forwarded {
        /// Why: `method`, `bypass`, `uri-miss`, `vary-miss`, `stale`, `request`.
        why: &'static str,
        /// What the origin answered, if it did.
        origin_status: Option<u16>,
        /// Whether the answer was stored.
        stored: bool,
        /// Whether the request shared another's fetch.
        collapsed: bool,
        /// A token that says more.
        detail: Option<&'static str>,
        /// That it is the reason of an earlier answer. It appears as a parameter of its own that no RFC
        /// defines.
        remembered: bool,
    },
}

impl CacheStatus {
    /// As a list member of the structured field, named after `cache` (a token).
    pub fn value(&self, cache: &str) -> HeaderValue {
        use std::fmt::Write;
        let mut text = String::from(cache);
        match self {
            CacheStatus::Hit => text.push_str("; hit"),
            CacheStatus::HitOf { detail } => {
                let _ = write!(text, "; hit; detail={detail}");
            }
            CacheStatus::Aged { ttl, detail } => {
                let _ = write!(text, "; hit; ttl={ttl}");
                if let Some(detail) = detail {
                    let _ = write!(text, "; detail={detail}");
                }
            }
            CacheStatus::Forwarded { why, origin_status, stored, collapsed, detail, remembered } => {
                // Writing to a String cannot fail.
                let _ = write!(text, "; fwd={why}");
                if let Some(status) = origin_status {
                    let _ = write!(text, "; fwd-status={status}");
                }
                if *stored {
                    text.push_str("; stored");
                }
                if *collapsed {
                    text.push_str("; collapsed");
                }
                if let Some(detail) = detail {
                    let _ = write!(text, "; detail={detail}");
                }
                if *remembered {
                    text.push_str("; remembered");
                }
            }
        }
        HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("verbena"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_as_the_rfc_has_it() {
        assert_eq!(CacheStatus::Hit.value("verbena"), "verbena; hit");
        assert_eq!(CacheStatus::HitOf { detail: "pool" }.value("verbena"), "verbena; hit; detail=pool");
        let stale = CacheStatus::Aged { ttl: -42, detail: Some("origin-down") };
        assert_eq!(stale.value("verbena"), "verbena; hit; ttl=-42; detail=origin-down");
        let forwarded = CacheStatus::Forwarded {
            why: "uri-miss",
            origin_status: Some(200),
            stored: true,
            collapsed: false,
            detail: Some("moved"),
            remembered: false,
        };
        assert_eq!(forwarded.value("verbena"), "verbena; fwd=uri-miss; fwd-status=200; stored; detail=moved");
        let (why, origin_status, detail) = ("uri-miss", Some(200), Some("set-cookie"));
        let again =
            CacheStatus::Forwarded { why, origin_status, stored: false, collapsed: false, detail, remembered: true };
        assert_eq!(again.value("verbena"), "verbena; fwd=uri-miss; fwd-status=200; detail=set-cookie; remembered");
    }
}
