//! Sets of names as the configuration spells them: `sid` is itself, `_ga*` stands for all names that begin so, and `@analytics` for a list
//! that is built in.

use std::collections::BTreeSet;

/// The name of the list of what analytics and advertisements add to cookies and queries.
pub const ANALYTICS: &str = "@analytics";

/// Cookies that scripts of analytics set for themselves. No application renders a page by them. Cookies of consent and of experiments are
/// not among them: applications read those.
const ANALYTICS_COOKIES: [&str; 32] = [
    "_ga",
    "_ga_*",
    "_gid",
    "_gat*",
    "_gac_*",
    "_gcl_*",
    "__utm*", // Google
    "_fbp",
    "_fbc", // Meta
    "_pk_id*",
    "_pk_ref*",
    "_pk_ses*",
    "_pk_cvar*",
    "_pk_hsr*", // Matomo
    "_clck",
    "_clsk",
    "_uetsid",
    "_uetvid", // Microsoft
    "_hjSession*",
    "_hjid",
    "_hjFirstSeen",
    "_hjAbsoluteSessionInProgress", // Hotjar
    "_ym_*",                        // Yandex
    "__hstc",
    "__hssc",
    "__hssrc",
    "hubspotutk", // HubSpot
    "_ttp",
    "_scid",
    "_pin_unauth",
    "_rdt_uuid",
    "ph_phc_*", // TikTok, Snapchat, Pinterest, Reddit, PostHog
];

/// Parameters that links in mails and advertisements carry for the same scripts.
const ANALYTICS_PARAMETERS: [&str; 21] = [
    "utm_*",
    "gclid",
    "gclsrc",
    "gbraid",
    "wbraid",
    "dclid",
    "_ga",
    "_gl", // Google
    "fbclid",
    "igshid",
    "msclkid",
    "ttclid",
    "twclid",
    "yclid",
    "li_fat_id",
    "epik",
    "rdt_cid", // networks
    "mc_cid",
    "mc_eid",
    "_hsenc",
    "_hsmi", // mails
];

/// Names and beginnings of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    whole: BTreeSet<String>,
    beginnings: BTreeSet<String>,
}

impl Names {
    /// Of cookies, with the built-in list in place of its name.
    pub fn of_cookies<S: AsRef<str>>(spelled: impl IntoIterator<Item = S>) -> Self {
        Names::expanded(spelled, &ANALYTICS_COOKIES)
    }

    /// Of parameters of a query, likewise.
    pub fn of_parameters<S: AsRef<str>>(spelled: impl IntoIterator<Item = S>) -> Self {
        Names::expanded(spelled, &ANALYTICS_PARAMETERS)
    }

    fn expanded<S: AsRef<str>>(spelled: impl IntoIterator<Item = S>, list: &[&str]) -> Self {
        let mut names = Names::default();
        for name in spelled {
            match name.as_ref() {
                ANALYTICS => list.iter().for_each(|name| names.add(name)),
                name => names.add(name),
            }
        }
        names
    }

    fn add(&mut self, spelled: &str) {
        match spelled.strip_suffix('*') {
            Some(beginning) => self.beginnings.insert(beginning.to_owned()),
            None => self.whole.insert(spelled.to_owned()),
        };
    }

    /// Whether no name is in it.
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.beginnings.is_empty()
    }

    /// Whether a name is in it.
    pub fn has(&self, name: &[u8]) -> bool {
        std::str::from_utf8(name).is_ok_and(|name| self.whole.contains(name))
            || self.beginnings.iter().any(|beginning| name.starts_with(beginning.as_bytes()))
    }

    /// Whether each name that `spelled` stands for is in it: `_ga*` has `_ga_*` and `_ga`.
    pub fn has_all_of(&self, spelled: &str) -> bool {
        match spelled.strip_suffix('*') {
            Some(beginning) => self.beginnings.iter().any(|own| beginning.starts_with(own.as_str())),
            None => self.has(spelled.as_bytes()),
        }
    }

    /// The names, as they are spelled.
    pub fn spelled(&self) -> impl Iterator<Item = String> {
        self.whole.iter().cloned().chain(self.beginnings.iter().map(|beginning| format!("{beginning}*")))
    }

    /// The names that are in both.
    pub(crate) fn and(&self, other: &Names) -> Names {
        let in_other = self.spelled().filter(|name| other.has_all_of(name));
        in_other.chain(other.spelled().filter(|name| self.has_all_of(name))).collect()
    }

    /// The names that are in either.
    pub(crate) fn or(&self, other: &Names) -> Names {
        self.spelled().chain(other.spelled()).collect()
    }
}

impl<S: AsRef<str>> FromIterator<S> for Names {
    fn from_iter<I: IntoIterator<Item = S>>(spelled: I) -> Self {
        let mut names = Names::default();
        spelled.into_iter().for_each(|name| names.add(name.as_ref()));
        names
    }
}

impl<S: AsRef<str>, const N: usize> From<[S; N]> for Names {
    fn from(spelled: [S; N]) -> Self {
        spelled.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_star_at_the_end_stands_for_all_that_begin_so() {
        let names = Names::from(["sid", "_ga*"]);
        for name in ["sid", "_ga", "_ga_X1"] {
            assert!(names.has(name.as_bytes()), "{name}");
        }
        for name in ["sid2", "si", "", "_g", "SID", "*"] {
            assert!(!names.has(name.as_bytes()), "{name}");
        }
        assert!(names.has(b"_ga\xff") && !names.has(b"\xff"), "a name is bytes");
        for (spelled, is_in) in [("_ga_*", true), ("_ga*", true), ("_g*", false), ("sid*", false), ("_gat", true)] {
            assert_eq!(names.has_all_of(spelled), is_in, "{spelled}");
        }
    }

    #[test]
    fn the_list_is_of_analytics_and_of_nothing_else() {
        let (cookies, parameters) = (Names::of_cookies([ANALYTICS, "sid"]), Names::of_parameters([ANALYTICS]));
        for name in ["_ga", "_ga_B4XYZ", "_fbp", "_pk_id.1.1fff", "_hjSessionUser_1", "sid"] {
            assert!(cookies.has(name.as_bytes()), "{name}");
        }
        for name in
            ["sessionid", "csrftoken", "connect.sid", "_shop_session", "PHPSESSID", "CookieConsent", "lang", ANALYTICS]
        {
            assert!(!cookies.has(name.as_bytes()), "{name}");
        }
        assert!(parameters.has(b"utm_source") && parameters.has(b"fbclid"));
        assert!(!parameters.has(b"page") && !parameters.has(b"id") && !parameters.has(b"q"));
    }

    proptest! {
        #[test]
        fn what_two_sets_have_in_common_is_what_each_has(
            one in proptest::collection::vec("[ab]{0,3}[*]?", 0..4),
            other in proptest::collection::vec("[ab]{0,3}[*]?", 0..4),
            name in "[ab]{0,4}",
        ) {
            let (one, other): (Names, Names) = (one.iter().collect(), other.iter().collect());
            let name = name.as_bytes();
            prop_assert_eq!(one.and(&other).has(name), one.has(name) && other.has(name));
            prop_assert_eq!(one.or(&other).has(name), one.has(name) || other.has(name));
        }
    }
}
