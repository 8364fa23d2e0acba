//! What a page is made of, and what a write touches, by names that the application chooses.

use std::collections::HashSet;

use verbena_terms::{MAX_DEPENDENCIES, MAX_DEPENDENCY_NAME_BYTES};

use crate::api::Touched;

/// Names of data, or everything.
///
/// The names are the application's own: a row, a table, a list that would show what is not there yet. A page and a write that share
/// one have to do with each other. Whatever cannot be said by names is everything, never nothing: it costs misses only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope(Option<Vec<String>>);

impl Scope {
    /// Everything there is.
    pub const EVERYTHING: Scope = Scope(None);

    /// These names, each counted once. Of none, of more than [`MAX_DEPENDENCIES`], or with one that is empty or longer than
    /// [`MAX_DEPENDENCY_NAME_BYTES`], it is everything.
    pub fn of<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Scope {
        let (mut each, mut seen) = (Vec::new(), HashSet::new());
        for (nth, name) in names.into_iter().map(Into::into).enumerate() {
            // What is beyond the bound is not looked at, so it must count as anything (rule P4).
            if nth == 4 * MAX_DEPENDENCIES || name.is_empty() || name.len() > MAX_DEPENDENCY_NAME_BYTES {
                return Scope::EVERYTHING;
            }
            if seen.insert(name.clone()) {
                each.push(name);
            }
        }
        if each.is_empty() || each.len() > MAX_DEPENDENCIES { Scope::EVERYTHING } else { Scope(Some(each)) }
    }

    /// The names; none if it is everything.
    pub fn names(&self) -> &[String] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Whether it is everything.
    pub fn is_everything(&self) -> bool {
        self.0.is_none()
    }
}

impl From<&Scope> for Touched {
    fn from(scope: &Scope) -> Self {
        Touched { dependencies: scope.names().to_vec(), everything: scope.is_everything(), ..Touched::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_their_order_each_once() {
        let scope = Scope::of(["b", "a", "b"]);
        assert_eq!((scope.names(), scope.is_everything()), (&["b".to_owned(), "a".to_owned()][..], false));
        let most = (0..2 * MAX_DEPENDENCIES).map(|n| format!("{}", n % MAX_DEPENDENCIES));
        assert_eq!(Scope::of(most).names().len(), MAX_DEPENDENCIES);
    }

    #[test]
    fn what_cannot_be_said_is_everything() {
        assert_eq!(Scope::of([""; 0]), Scope::EVERYTHING);
        assert_eq!(Scope::of(["a", ""]), Scope::EVERYTHING);
        assert_eq!(Scope::of(["x".repeat(MAX_DEPENDENCY_NAME_BYTES + 1)]), Scope::EVERYTHING);
        assert_eq!(Scope::of((0..=MAX_DEPENDENCIES).map(|n| n.to_string())), Scope::EVERYTHING);
        assert_eq!(Scope::of(std::iter::repeat("a")), Scope::EVERYTHING, "and the list is not read for ever");
    }
}
