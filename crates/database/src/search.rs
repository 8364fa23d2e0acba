//! Where sessions of PostgreSQL look for names: `search_path`.

use std::collections::{BTreeMap, BTreeSet};

/// Names of schemas, in the order in which they are looked into; `$user` is that of the session's user.
pub(crate) type Path = Vec<Vec<u8>>;

/// What the catalog says of search paths.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paths {
    /// The database of the catalog. Of others nothing is known.
    pub database: Vec<u8>,
    /// Its schemas.
    pub schemas: BTreeSet<Vec<u8>>,
    /// The path of sessions of which nothing else is said; nothing if it is not known.
    pub global: Option<Path>,
    /// What ALTER ROLE and ALTER DATABASE have set: for a role or for all, and whether in this database alone. Nothing where the text is not understood.
    pub settings: BTreeMap<(Option<Vec<u8>>, bool), Option<Path>>,
    /// Roles, or all, whose sessions begin with another role or without triggers.
    pub odd: BTreeSet<Option<Vec<u8>>>,
    /// Roles that may log in.
    pub roles: BTreeSet<Vec<u8>>,
    /// Roles and schemas that they may not look into.
    pub denied: BTreeSet<(Vec<u8>, Vec<u8>)>,
}

impl Paths {
    /// The schemas in which a session of this user finds tables, given the path that it has set; nothing if that is not known.
    pub fn search(&self, database: &[u8], user: &[u8], set: Option<&Path>) -> Option<Vec<Vec<u8>>> {
        let is_odd = self.odd.contains(&None) || self.odd.contains(&Some(user.to_vec()));
        if database != self.database || is_odd || !self.roles.contains(user) {
            return None;
        }
        let path = match set {
            Some(path) => path.clone(),
            None => self.usual(user)?,
        };
        let named = path.into_iter().map(|schema| if schema == b"$user" { user.to_vec() } else { schema });
        let may =
            |schema: &Vec<u8>| self.schemas.contains(schema) && !self.denied.contains(&(user.to_vec(), schema.clone()));
        Some(named.filter(may).collect())
    }

    /// The path with which a session of this user begins.
    fn usual(&self, user: &[u8]) -> Option<Path> {
        let of_user = Some(user.to_vec());
        let order = [(of_user.clone(), true), (of_user, false), (None, true), (None, false)];
        match order.iter().find_map(|whose| self.settings.get(whose)) {
            Some(path) => path.clone(),
            None => self.global.clone(),
        }
    }
}

/// A path as SET and the catalog write it: names with commas between them, in double quotes where they are not in lower case, in SET also in single ones.
pub(crate) fn path(text: &[u8]) -> Option<Path> {
    let mut rest = text.trim_ascii();
    let mut names = Vec::new();
    if rest.is_empty() {
        return Some(names);
    }
    loop {
        let (name, after) = match rest.first()? {
            quote @ (b'"' | b'\'') => {
                let end = 1 + rest[1..].iter().position(|byte| byte == quote)?;
                (rest[1..end].to_vec(), &rest[end + 1..])
            }
            _ => {
                let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$');
                let end = rest.iter().position(|byte| !is_word(byte)).unwrap_or(rest.len());
                (rest[..end].to_ascii_lowercase(), &rest[end..])
            }
        };
        // A server cuts longer names, and a doubled quote or a backslash stands for something else.
        let is_odd = name.len() > 63 || name.iter().any(|byte| matches!(byte, b'\\' | b'"' | b'\''));
        if is_odd || name.is_empty() && rest.first() != Some(&b'\'') {
            return None;
        }
        names.push(name);
        match after.trim_ascii_start() {
            [] => return Some(names),
            [b',', more @ ..] => rest = more.trim_ascii_start(),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Option<Vec<String>> {
        let names = path(text.as_bytes())?;
        Some(names.into_iter().map(|name| String::from_utf8(name).unwrap()).collect())
    }

    #[test]
    fn paths_are_read_as_the_server_reads_them() {
        assert_eq!(names(r#""$user", Public,'Shop' "#).unwrap(), ["$user", "public", "Shop"]);
        assert_eq!(names("").unwrap(), [""; 0]);
        assert_eq!(names("''").unwrap(), [""]);
        for odd in ["a b", "a,", ",", "\"a", "'it''s'", "a -- b", "\"\""] {
            assert_eq!(names(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_session_looks_where_its_role_its_database_and_its_rights_say() {
        let name = |text: &str| text.as_bytes().to_vec();
        let set = |texts: &[&str]| texts.iter().map(|text| name(text)).collect::<BTreeSet<_>>();
        let mut paths = Paths {
            database: name("shop"),
            schemas: set(&["public", "app", "hidden"]),
            global: path(br#""$user", hidden, public"#),
            roles: set(&["app", "other"]),
            denied: [(name("app"), name("hidden"))].into(),
            ..Paths::default()
        };
        let search = |paths: &Paths, user: &str, set: Option<&str>| {
            paths.search(b"shop", user.as_bytes(), set.and_then(|set| path(set.as_bytes())).as_ref())
        };
        assert_eq!(search(&paths, "app", None), Some(vec![name("app"), name("public")]));
        assert_eq!(search(&paths, "other", None), Some(vec![name("hidden"), name("public")]));
        assert_eq!(search(&paths, "app", Some("nowhere, public")), Some(vec![name("public")]));
        assert_eq!(paths.search(b"another", b"app", None), None);
        assert_eq!(search(&paths, "unknown", None), None);
        paths.settings.insert((None, true), path(b"public"));
        assert_eq!(search(&paths, "other", None), Some(vec![name("public")]));
        paths.settings.insert((Some(name("other")), false), None);
        assert_eq!(search(&paths, "other", None), None, "a setting that is not understood");
        paths.odd.insert(None);
        assert_eq!(search(&paths, "app", None), None);
    }
}
