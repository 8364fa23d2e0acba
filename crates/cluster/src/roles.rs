//! The roles of a member.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One thing a member does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Owns words: pages and locks whose home it is.
    Home,
    /// Reads words at their homes.
    Reader,
    /// Begins updates at the homes.
    Updater,
    /// Lends memory to the cooperative cache. A node has this role by its configuration of the pool, beside the others.
    Pool,
    /// Is no home of the cooperative cache: it only lends. Of its configuration as well, and only beside [`Role::Pool`].
    Passive,
    /// A relay before an application's database runs in it, whose log of reads proxies read. Of what the node was started for, beside the others.
    Relay,
}

/// A set of roles; written as a list, `["home", "updater"]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<Role>", into = "Vec<Role>")]
pub struct Roles(u8);

impl Roles {
    /// What a node that is alone has: every role but that of the pool.
    pub const ALL: Roles = Roles::of(Role::Home).and(Role::Reader).and(Role::Updater);

    /// This role alone.
    pub const fn of(role: Role) -> Self {
        Roles(1 << role as u8)
    }

    /// These roles and `role`.
    pub const fn and(self, role: Role) -> Self {
        Roles(self.0 | 1 << role as u8)
    }

    /// These roles without `role`.
    pub const fn without(self, role: Role) -> Self {
        Roles(self.0 & !(1 << role as u8))
    }

    /// Whether `role` is among them.
    pub const fn has(self, role: Role) -> bool {
        self.0 & 1 << role as u8 != 0
    }

    /// Whether it has no role.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn each(self) -> impl Iterator<Item = Role> {
        [Role::Home, Role::Reader, Role::Updater, Role::Pool, Role::Passive, Role::Relay]
            .into_iter()
            .filter(move |role| self.has(*role))
    }
}

impl From<Vec<Role>> for Roles {
    fn from(roles: Vec<Role>) -> Self {
        roles.into_iter().fold(Roles::default(), Roles::and)
    }
}

impl From<Roles> for Vec<Role> {
    fn from(roles: Roles) -> Self {
        roles.each().collect()
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, role) in self.each().enumerate() {
            let comma = if nth == 0 { "" } else { "," };
            write!(f, "{comma}{}", format!("{role:?}").to_lowercase())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_what_was_put_in() {
        let roles = Roles::of(Role::Home).and(Role::Updater);
        assert_eq!((roles.has(Role::Home), roles.has(Role::Reader), roles.has(Role::Updater)), (true, false, true));
        assert_eq!(roles.to_string(), "home,updater");
        assert_eq!(Roles::from(Vec::from(roles)), roles);
        assert!(Roles::from(vec![]).is_empty());
    }
}
