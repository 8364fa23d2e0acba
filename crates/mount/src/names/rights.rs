//! Whether the names of a directory may be said to this user, who may not be the one who listed it.

use rustix::fs::OFlags;
use verbena_bank::{Attributes, NameEntry};

use crate::nodes::Node;

const ALL_READ: u32 = 0o444;
const ALL_SEARCH: u32 = 0o111;

/// Whether everyone may list and search a directory: by its mode, to which nothing is added.
pub(super) fn all_may_search(own: &NameEntry) -> bool {
    let is_open = |own: Attributes| own.mode & (ALL_READ | ALL_SEARCH) == ALL_READ | ALL_SEARCH;
    !may_have_list(own.extended.as_deref()) && own.attributes.is_some_and(is_open)
}

/// Whether, by its mode, each user who may list a directory may search it too.
pub(super) fn lists_as_it_searches(own: &NameEntry) -> bool {
    own.attributes.is_some_and(|own| own.mode & ALL_READ == (own.mode & ALL_SEARCH) << 2)
}

/// Whether this user may list a directory, which is looked at below.
pub(super) fn may_list(node: &Node) -> bool {
    node.open(OFlags::RDONLY | OFlags::DIRECTORY).is_ok()
}

/// Whether a file may have an access list beside its mode.
fn may_have_list(extended: Option<&[u8]>) -> bool {
    extended.is_none_or(|list| list.split(|byte| *byte == 0).any(|name| name == b"system.posix_acl_access"))
}
