//! What a program says that an update touches, as the cluster's words know it.

use verbena_caching::{Key, Keys, MOST_PREFIXES};
use verbena_content::service::Content;
use verbena_content::{PageId, Scope};
use verbena_protocol::api::Touched;
use verbena_terms::{MAX_DEPENDENCIES, MAX_DEPENDENCY_NAME_BYTES};

/// What an update or a purge touches; `all` is what everything means.
///
/// # Errors
/// Why the request makes no sense.
pub(crate) fn scope(content: &Content, touched: &Touched, all: Scope) -> Result<Scope, String> {
    let Touched { dependencies, pages, prefixes, everything, .. } = touched;
    let named = dependencies.len() + pages.len() + prefixes.len();
    if *everything == (named > 0) {
        return Err(
                "give \"dependencies\": [names], \"pages\": [addresses], \"prefixes\": [addresses], or \"everything\": true"
                    .into(),
            );
    }
    if *everything {
        return Ok(all);
    }
    if named > MAX_DEPENDENCIES {
        return Err(format!("{named} dependencies and pages; at most {MAX_DEPENDENCIES}, or everything"));
    }
    let mut touches = Vec::with_capacity(named);
    for name in dependencies {
        if name.is_empty() || name.len() > MAX_DEPENDENCY_NAME_BYTES {
            return Err(format!("a dependency's name of {} bytes; 1 to {MAX_DEPENDENCY_NAME_BYTES}", name.len()));
        }
        touches.push(content.names().dependency(name.as_bytes()));
    }
    for address in pages {
        let Some(page) = page(content, |keys| keys.of_address(address)) else {
            return Err(format!("{address:?} is no address of a page: http://HOST/PATH?QUERY as clients ask for it"));
        };
        touches.push(page.into());
        // A route may have changed the query with which clients ask for it.
        if let Some(any_query) = self::page(content, |keys| keys.of_any_query_at(address)) {
            touches.push(any_query.into());
        }
    }
    for address in prefixes {
        let Some(prefix) = page(content, |keys| keys.of_prefix_at(address)) else {
            return Err(format!(
                "{address:?} is no prefix of addresses: http://HOST/PATH without a query, of {MOST_PREFIXES} segments at most"
            ));
        };
        touches.push(prefix.into());
    }
    Ok(Scope::of_update(touches))
}

/// The page with this key, as the cluster's words know it.
pub(crate) fn page(content: &Content, key: impl FnOnce(&Keys) -> Option<Key>) -> Option<PageId> {
    let key = key(&Keys::new(content.names().page_secret()))?;
    Some(content.names().page(&key.0.to_le_bytes()))
}
