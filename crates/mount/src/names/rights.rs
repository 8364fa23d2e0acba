//! Whether the names of a directory may be said to this user, who may not be the one who listed it.

use rustix::fs::{Mode, OFlags, openat};
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

/// Whether this user may list and search a directory, which is looked at below. Its own name is searched for in it, so both rights are needed.
pub(super) fn may_list(node: &Node) -> bool {
    node.asked();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    node.fd().is_ok_and(|fd| openat(fd, ".", flags, Mode::empty()).is_ok())
}

/// Whether a file may have an access list beside its mode: POSIX and NFSv4 have one each, as attributes of the system.
fn may_have_list(extended: Option<&[u8]>) -> bool {
    let is_list = |name: &[u8]| name.starts_with(b"system.") && name.windows(3).any(|part| part == b"acl");
    extended.is_none_or(|list| list.split(|byte| *byte == 0).any(is_list))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use rustix::fs::{XattrFlags, setxattr};
    use rustix::process::{Gid, Uid};
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

    use super::*;
    use crate::nodes::{Nodes, ROOT};

    fn own(mode: u32, extended: &[u8]) -> NameEntry {
        let time = (0, 0);
        let attributes = Attributes {
            mode: 0o040_000 | mode,
            links: 2,
            uid: 0,
            gid: 0,
            device: 0,
            size: 0,
            blocks: 0,
            block_size: 0,
            accessed: time,
            modified: time,
            changed: time,
        };
        let (attributes, extended) = (Some(attributes), Some(extended.to_vec()));
        NameEntry { name: b".".to_vec(), number: 2, born: None, kind: 0o040_000, attributes, target: None, extended }
    }

    #[test]
    fn a_mode_says_who_may_search_where_no_access_list_says_more() {
        assert!(all_may_search(&own(0o755, b"")) && all_may_search(&own(0o755, b"user.a\0security.selinux\0")));
        assert!(!all_may_search(&own(0o750, b"")) && !all_may_search(&own(0o744, b"")));
        for list in ["system.posix_acl_access", "system.nfs4_acl", "system.nfs4_dacl", "system.richacl"] {
            assert!(!all_may_search(&own(0o755, format!("user.a\0{list}\0").as_bytes())), "{list}");
        }
        assert!(!all_may_search(&NameEntry { extended: None, ..own(0o755, b"") }), "it is not known");
    }

    /// An access list in the kernel's form: version 2; then kind, rights and user of each entry.
    fn access_list(user: u32, rights: u16) -> Vec<u8> {
        let mut list = 2_u32.to_le_bytes().to_vec();
        let none = u32::MAX;
        for (kind, rights, user) in
            [(1_u16, 7_u16, none), (2, rights, user), (4, 5, none), (16, 7, none), (32, 5, none)]
        {
            list.extend([kind.to_le_bytes(), rights.to_le_bytes()].concat());
            list.extend(user.to_le_bytes());
        }
        list
    }

    #[test]
    fn a_user_who_may_list_a_directory_and_not_search_it_is_told_nothing() {
        const USER: u32 = 1234;
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: not root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let may = |rights: u16| {
            let list = access_list(USER, rights);
            setxattr(folder.path(), "system.posix_acl_access", &list, XattrFlags::empty()).unwrap();
            let nodes = Nodes::new(crate::below::hold(folder.path()).unwrap(), false).unwrap();
            let look = move || {
                set_thread_groups(&[]).unwrap();
                set_thread_res_gid(None, Gid::from_raw(USER), None).unwrap();
                set_thread_res_uid(None, Uid::from_raw(USER), None).unwrap();
                may_list(&nodes.node(ROOT).unwrap())
            };
            // The thread has the user's identity, and ends.
            std::thread::spawn(look).join().unwrap()
        };
        assert_eq!([4, 1, 0, 5].map(may), [false, false, false, true]);
    }
}
