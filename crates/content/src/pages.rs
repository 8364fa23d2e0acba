//! What each page at a home depends on, both ways round, within bounds.
//!
//! Memory is about 48 bytes a page and twice 24 bytes a dependency of a page. When a bound is reached the page that was
//! registered longest ago is dropped (a home does not see hits, so it cannot know which one is used least); the caller
//! that drops a page must bump its word (rule P7), so that copies of it are not served for ever.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::{Dependency, PageId, Scope};

/// The dependency sets of a home's pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Pages {
    sets: BTreeMap<PageId, Entry>,
    by_dependency: BTreeSet<(Dependency, PageId)>,
    by_age: BTreeMap<u64, PageId>,
    dependencies: usize,
    next_age: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry {
    set: Box<[Dependency]>,
    age: u64,
}

impl Pages {
    /// How many pages have a set.
    pub(crate) fn len(&self) -> usize {
        self.sets.len()
    }

    /// The sum of the sizes of all sets.
    pub(crate) fn dependencies(&self) -> usize {
        self.dependencies
    }

    /// Whether a set stands for the page that is not this one.
    pub(crate) fn another_stands(&self, page: PageId, scope: &Scope) -> bool {
        self.sets.get(&page).is_some_and(|entry| *entry.set != *scope.dependencies())
    }

    /// Lets the set stand for the page, as the youngest.
    pub(crate) fn put(&mut self, page: PageId, scope: &Scope) {
        self.remove(page);
        let set: Box<[Dependency]> = scope.dependencies().into();
        self.by_dependency.extend(set.iter().map(|&dependency| (dependency, page)));
        self.dependencies += set.len();
        let age = self.next_age;
        self.next_age += 1;
        self.by_age.insert(age, page);
        self.sets.insert(page, Entry { set, age });
    }

    /// Drops the oldest page and says which, if there are more than `pages` or more than `dependencies` in all.
    pub(crate) fn shed(&mut self, pages: usize, dependencies: usize) -> Option<PageId> {
        if self.sets.len() <= pages && self.dependencies <= dependencies {
            return None;
        }
        let (_, &oldest) = self.by_age.first_key_value()?;
        self.remove(oldest);
        Some(oldest)
    }

    /// The pages that depend on this, and the page that it names.
    pub(crate) fn depending_on(&self, dependency: Dependency) -> impl Iterator<Item = PageId> + '_ {
        let itself = PageId(dependency.0);
        self.by_dependency
            .range((dependency, PageId(0))..=(dependency, PageId(u64::MAX)))
            .map(|&(_, page)| page)
            .chain(self.sets.contains_key(&itself).then_some(itself))
    }

    fn remove(&mut self, page: PageId) {
        if let Some(entry) = self.sets.remove(&page) {
            for &dependency in &entry.set {
                self.by_dependency.remove(&(dependency, page));
            }
            self.dependencies -= entry.set.len();
            self.by_age.remove(&entry.age);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(dependencies: &[u64]) -> Scope {
        Scope::of(dependencies.iter().copied().map(Dependency))
    }

    #[test]
    fn a_page_is_found_by_what_it_depends_on_now() {
        let mut pages = Pages::default();
        pages.put(PageId(1), &on(&[10, 11]));
        pages.put(PageId(2), &on(&[11]));
        pages.put(PageId(1), &on(&[12]));
        let found = |dependency| pages.depending_on(Dependency(dependency)).collect::<Vec<_>>();
        assert_eq!(found(10), []);
        assert_eq!(found(11), [PageId(2)]);
        assert_eq!(found(12), [PageId(1)]);
        assert_eq!(found(2), [PageId(2)]);
        assert!(pages.another_stands(PageId(1), &on(&[10, 11])) && !pages.another_stands(PageId(1), &on(&[12])));
        assert!(!pages.another_stands(PageId(3), &on(&[10])), "where none stands there is no other");
        assert_eq!((pages.len(), pages.dependencies()), (2, 2));
    }

    #[test]
    fn the_page_registered_longest_ago_is_shed_first() {
        let mut pages = Pages::default();
        for page in 1..=3 {
            pages.put(PageId(page), &on(&[10]));
        }
        pages.put(PageId(1), &on(&[10]));
        assert_eq!(pages.shed(2, 10), Some(PageId(2)));
        assert_eq!(pages.shed(2, 10), None);
        assert_eq!(pages.shed(2, 1), Some(PageId(3)));
        assert_eq!(pages.depending_on(Dependency(10)).collect::<Vec<_>>(), [PageId(1)]);
    }
}
