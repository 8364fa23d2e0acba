//! A section of the configuration file, owned by the crate whose behaviour it sets.
//!
//! [`section!`](crate::section) makes a struct and, from the same lines, the list of its keys with their help and defaults.
//! What reads the file, the command-line flags and the reference of all keys work from that list, so that none of them can
//! say something else than the code.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// One key of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// As it stands in the file.
    pub name: &'static str,
    /// What kind of value it has, for people: `TIME`, `DIR` ...
    pub value: &'static str,
    /// What it does: lines, the first paragraph the shortest answer.
    pub help: &'static str,
}

/// A section: every key has a default, and keys that are not of it are refused.
pub trait Section: Default + Serialize + DeserializeOwned {
    /// The section's name in the file.
    const NAME: &'static str;
    /// What it is about.
    const HELP: &'static str;
    /// Its keys, in the order of the reference.
    const KEYS: &'static [Key];

    /// What does not fit together, although each value alone is right.
    fn contradictions(&self) -> Vec<Contradiction>;
}

/// Values that do not fit together, or one that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// The key to change, in this section; below an array, with the index from 0: `nodes.2.name`.
    pub key: String,
    /// What is wrong with it.
    pub problem: String,
}

impl Contradiction {
    /// `key` cannot be as it is, because of `problem`.
    pub fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Contradiction { key: key.into(), problem: problem.into() }
    }
}

/// Defines a configuration section: the struct, its defaults, and its [`Section`] with the keys.
///
/// ```
/// use verbena_terms::{Contradiction, Lapse, Section, section};
///
/// section! {
///     /// How long to wait.
///     pub struct Waiting as "waiting", checked by Waiting::check {
///         /// The longest wait.
///         pub longest: Lapse as "TIME" = Lapse::seconds(2),
///         /// The shortest wait.
///         pub shortest: Lapse as "TIME" = Lapse::millis(1),
///     }
/// }
///
/// impl Waiting {
///     fn check(&self) -> Vec<Contradiction> {
///         let late = self.shortest > self.longest;
///         late.then(|| Contradiction::new("shortest", "longer than waiting.longest")).into_iter().collect()
///     }
/// }
///
/// assert_eq!(Waiting::KEYS[1].name, "shortest");
/// assert_eq!(Waiting::default().contradictions(), []);
/// ```
#[macro_export]
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        pub struct $section:ident as $name:literal, checked by $check:path {
            $(
                $(#[doc = $help:literal])+
                pub $key:ident: $type:ty as $value:literal = $default:expr,
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $section {
            $(
                $(#[doc = $help])+
                pub $key: $type,
            )+
        }

        impl Default for $section {
            fn default() -> Self {
                $section { $($key: $default,)+ }
            }
        }

        impl $crate::Section for $section {
            const NAME: &'static str = $name;
            const HELP: &'static str = concat!($($about, "\n",)+);
            const KEYS: &'static [$crate::Key] = &[
                $($crate::Key { name: stringify!($key), value: $value, help: concat!($($help, "\n",)+) },)+
            ];

            fn contradictions(&self) -> Vec<$crate::Contradiction> {
                $check(self)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lapse;

    crate::section! {
        /// A section.
        /// Of tests.
        pub struct Sample as "sample", checked by nothing {
            /// How long.
            ///
            /// Really.
            pub lease: Lapse as "TIME" = Lapse::seconds(2),
            /// Where.
            pub place: Option<String> as "DIR" = None,
        }
    }

    fn nothing(_: &Sample) -> Vec<Contradiction> {
        vec![]
    }

    #[test]
    fn the_keys_are_the_fields() {
        assert_eq!((Sample::NAME, Sample::HELP), ("sample", " A section.\n Of tests.\n"));
        assert_eq!(Sample::KEYS.iter().map(|key| key.name).collect::<Vec<_>>(), ["lease", "place"]);
        assert_eq!(Sample::KEYS[0].help, " How long.\n\n Really.\n");
        assert_eq!(Sample::default().lease, Lapse::seconds(2));
        assert_eq!(Sample::default().contradictions(), []);
    }
}
