//! Which parameters of a query make another page.
//!
//! Links in mails and advertisements carry parameters that the application does not read (`utm_source`), and others come in any order: each
//! spelling would be a page of its own. What a route says of them is applied to the target before the key is made, and the application is
//! asked for the same target. So its answer cannot depend on what is left out, however it takes a query apart.

use http::uri::PathAndQuery;
use http::{HeaderValue, Uri, request};

use crate::fields::OTHER_PATH;
use crate::names::Names;
use crate::route::Route;

/// Which parameters matter, and whether their order does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Names that the answers do not depend on, compared as they are spelled.
    pub ignore: Names,
    /// Parameters are put in the order of their names. Those of one name keep their order.
    pub sort: bool,
}

impl Query {
    /// Whether a query stays as it came.
    pub fn is_plain(&self) -> bool {
        self.ignore.is_empty() && !self.sort
    }

    /// The target of the page that a target with a query is about, if it is another one.
    pub(crate) fn target(&self, target: &str) -> Option<PathAndQuery> {
        if self.is_plain() {
            return None;
        }
        let (path, query) = target.split_once('?')?;
        let mut kept: Vec<&str> = query.split('&').filter(|pair| !self.ignore.has(name(pair).as_bytes())).collect();
        if self.sort {
            kept.sort_by_key(|pair| name(pair));
        }
        let left = kept.join("&");
        if left == query {
            return None;
        }
        let page = if kept.is_empty() { path.to_owned() } else { format!("{path}?{left}") };
        PathAndQuery::try_from(page).ok()
    }
}

fn name(pair: &str) -> &str {
    pair.split('=').next().unwrap_or_default()
}

/// Makes a request that was looked for one for its page: the target that its key is made of, also where it is repeated.
pub fn for_page(head: &mut request::Parts, route: &Route) {
    let target = head.uri.path_and_query().and_then(|target| route.query.target(target.as_str()));
    let Some(page) = target else { return };
    for name in OTHER_PATH {
        if head.headers.contains_key(name)
            && let Ok(value) = HeaderValue::from_str(page.as_str())
        {
            head.headers.insert(name, value);
        }
    }
    head.uri = Uri::from(page);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(ignore: &[&str], sort: bool) -> Query {
        Query { ignore: ignore.iter().collect(), sort }
    }

    #[test]
    fn what_is_ignored_is_left_out_and_the_rest_stays() {
        let ignoring = query(&["utm_*", "gclid"], false);
        for (target, page) in [
            ("/a?utm_source=x&b=2&a=1", Some("/a?b=2&a=1")),
            ("/a?b=2&gclid", Some("/a?b=2")),
            ("/a?utm_=1&utm_x", Some("/a")),
            // Where `;` divides too, this is two parameters: neither goes on.
            ("/a?gclid=1;b=2", Some("/a")),
            ("/a?gclid2=1&xutm_a=1&utm=1", None),
            ("/a?utm%5Fa=1", None),
            ("/a?", None),
            ("/a", None),
            ("/gclid=1", None),
        ] {
            assert_eq!(ignoring.target(target).as_ref().map(PathAndQuery::as_str), page, "{target}");
        }
        assert_eq!(query(&["*"], false).target("/a?b&c").unwrap(), "/a");
        assert_eq!(query(&[], false).target("/a?b&a"), None);
    }

    #[test]
    fn an_order_is_one_of_names_and_those_of_one_name_keep_theirs() {
        let sorting = query(&["x"], true);
        for (target, page) in [
            ("/a?b=2&a=1", Some("/a?a=1&b=2")),
            ("/a?b=2&a=9&x=1&b=1&a=1", Some("/a?a=9&a=1&b=2&b=1")),
            ("/a?a=1&b=2", None),
            ("/a?x", Some("/a")),
        ] {
            assert_eq!(sorting.target(target).as_ref().map(PathAndQuery::as_str), page, "{target}");
        }
    }

    #[test]
    fn what_repeats_the_target_repeats_that_of_the_page() {
        let route = Route { query: query(&["x"], false), ..Route::default() };
        let request = http::Request::get("http://shop/a?x=1&b").header("x-original-url", "/a?x=1&b").body(()).unwrap();
        let mut head = request.into_parts().0;
        for_page(&mut head, &route);
        assert_eq!(head.uri, "/a?b");
        assert_eq!(head.headers["x-original-url"], "/a?b");
        assert!(!head.headers.contains_key("x-rewrite-url"));
    }
}
