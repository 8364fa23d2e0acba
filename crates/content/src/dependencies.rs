//! What a response says that it depends on.
//!
//! Best first; the best that is there counts, the others are not looked at:
//!
//! | field | form | source |
//! |---|---|---|
//! | `Verbena-Dependencies` | structured field, a list of strings or tokens | this project, RFC 9651 |
//! | `Surrogate-Key` | names between spaces | Fastly, Akamai |
//! | `Cache-Tag` | names between commas | Cloudflare, Akamai |
//! | `Cache-Groups` | structured field, a list of strings | RFC 9875 |
//!
//! Whatever cannot be understood, or is too much, depends on everything, never on nothing: the page is then cached only
//! while nothing at all is updated, and the reason says why.

use sfv::{BareItem, ListEntry, Parser};
use thiserror::Error;
use verbena_terms::{DEPENDENCY_FIELD, MAX_DEPENDENCIES, MAX_DEPENDENCY_FIELD_BYTES, MAX_DEPENDENCY_NAME_BYTES};

use crate::names::{Dependency, Names, Scope};

/// A field that names dependencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DependencyField {
    /// `Verbena-Dependencies`.
    Own,
    /// `Surrogate-Key`.
    SurrogateKey,
    /// `Cache-Tag`.
    CacheTag,
    /// `Cache-Groups`.
    CacheGroups,
}

/// What a response depends on, and how that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// What it depends on.
    pub scope: Scope,
    /// The field that said so, or why it is everything.
    pub because: Result<DependencyField, Undeclared>,
}

/// Why a response is taken to depend on everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Undeclared {
    /// No field names a dependency.
    #[error("no field names its dependencies")]
    Nothing,
    /// The field is empty.
    #[error("its {} names nothing", .0.name())]
    Empty(DependencyField),
    /// The field is not of its form.
    #[error("its {} is malformed", .0.name())]
    Malformed(DependencyField),
    /// The field, or a name in it, is too long.
    #[error("its {} is longer than {MAX_DEPENDENCY_FIELD_BYTES} bytes, or a name in it than {MAX_DEPENDENCY_NAME_BYTES}", .0.name())]
    Long(DependencyField),
    /// The field names too many.
    #[error("its {} names more than {MAX_DEPENDENCIES}", .0.name())]
    Many(DependencyField),
}

impl Undeclared {
    /// In one word, for metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Empty(_) => "empty",
            Self::Malformed(_) => "malformed",
            Self::Long(_) => "too-long",
            Self::Many(_) => "too-many",
        }
    }
}

impl DependencyField {
    /// All of them, the best first.
    pub const ALL: [DependencyField; 4] = [Self::Own, Self::SurrogateKey, Self::CacheTag, Self::CacheGroups];

    /// The field's name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own => DEPENDENCY_FIELD,
            Self::SurrogateKey => "surrogate-key",
            Self::CacheTag => "cache-tag",
            Self::CacheGroups => "cache-groups",
        }
    }

    /// The field of this name, in any case.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name().eq_ignore_ascii_case(name))
    }
}

impl Declared {
    /// What the header fields of a response declare. Fields of other names are passed over.
    pub fn of_response<'a>(names: &Names, fields: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Declared {
        let mut lines: [Option<Vec<u8>>; 4] = Default::default();
        for (name, value) in fields {
            let Some(field) = DependencyField::of_name(name) else { continue };
            let line = &mut lines[field as usize];
            match line {
                None => *line = Some(value.to_vec()),
                // Enough to know that it is too long, and no more.
                Some(joined) if joined.len() > MAX_DEPENDENCY_FIELD_BYTES => {}
                Some(joined) => {
                    joined.extend_from_slice(if field == DependencyField::SurrogateKey { b" " } else { b", " });
                    joined.extend_from_slice(value);
                }
            }
        }
        let best =
            DependencyField::ALL.into_iter().find_map(|field| lines[field as usize].take().map(|line| (field, line)));
        match best {
            Some((field, value)) => Self::of_field(names, field, &value),
            None => Self::everything(Undeclared::Nothing),
        }
    }

    /// What one field declares, its lines joined as RFC 9110 section 5.3 says.
    pub fn of_field(names: &Names, field: DependencyField, value: &[u8]) -> Declared {
        if value.len() > MAX_DEPENDENCY_FIELD_BYTES {
            return Self::everything(Undeclared::Long(field));
        }
        let parsed = match field {
            DependencyField::Own => structured(value, true),
            DependencyField::CacheGroups => structured(value, false),
            DependencyField::SurrogateKey => separated(value, |byte| byte == b' ' || byte == b'\t'),
            DependencyField::CacheTag => separated(value, |byte| byte == b','),
        };
        let Some(parsed) = parsed else { return Self::everything(Undeclared::Malformed(field)) };
        if parsed.is_empty() {
            return Self::everything(Undeclared::Empty(field));
        }
        if parsed.iter().any(|name| name.len() > MAX_DEPENDENCY_NAME_BYTES) {
            return Self::everything(Undeclared::Long(field));
        }
        let hashed: Vec<Dependency> = parsed.iter().map(|name| names.dependency(name)).collect();
        match Scope::of(hashed) {
            Scope::Everything => Self::everything(Undeclared::Many(field)),
            scope => Declared { scope, because: Ok(field) },
        }
    }

    fn everything(why: Undeclared) -> Declared {
        Declared { scope: Scope::Everything, because: Err(why) }
    }
}

/// The strings (and tokens) of a list; parameters say nothing to us and are passed over, as RFC 9651 wants.
fn structured(value: &[u8], with_tokens: bool) -> Option<Vec<Vec<u8>>> {
    let list: sfv::List = Parser::new(value).parse().ok()?;
    list.into_iter()
        .map(|entry| match entry {
            ListEntry::Item(item) => match item.bare_item {
                BareItem::String(name) => Some(name.as_str().as_bytes().to_vec()),
                BareItem::Token(name) if with_tokens => Some(name.as_str().as_bytes().to_vec()),
                _ => None,
            },
            ListEntry::InnerList(_) => None,
        })
        .collect()
}

/// Visible names between separators. Anything that is not visible ASCII, blank or above makes it malformed.
fn separated(value: &[u8], is_separator: impl Fn(u8) -> bool) -> Option<Vec<Vec<u8>>> {
    if value.iter().any(|&byte| byte.is_ascii_control() && byte != b'\t') {
        return None;
    }
    let trimmed = value.split(|&byte| is_separator(byte)).map(|name| name.trim_ascii());
    Some(trimmed.filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names() -> Names {
        Names::new([1; 16])
    }

    fn declared(fields: &[(&str, &[u8])]) -> Declared {
        Declared::of_response(&names(), fields.iter().copied())
    }

    fn on(wanted: &[&str]) -> Scope {
        Scope::of(wanted.iter().map(|name| names().dependency(name.as_bytes())))
    }

    #[test]
    fn every_field_is_read_in_its_own_form() {
        let own = declared(&[("Verbena-Dependencies", br#""product 1", stock:1;w=1, "Quoted\"""#)]);
        assert_eq!(
            own,
            Declared { scope: on(&["product 1", "stock:1", "quoted\""]), because: Ok(DependencyField::Own) }
        );
        let surrogate = declared(&[("surrogate-key", b"a  b\tc")]);
        assert_eq!(surrogate, Declared { scope: on(&["a", "b", "c"]), because: Ok(DependencyField::SurrogateKey) });
        let tag = declared(&[("CACHE-TAG", b" a, b c ,,d")]);
        assert_eq!(tag, Declared { scope: on(&["a", "b c", "d"]), because: Ok(DependencyField::CacheTag) });
        let groups = declared(&[("cache-groups", br#""eurovision-results", "all""#)]);
        assert_eq!(
            groups,
            Declared { scope: on(&["eurovision-results", "all"]), because: Ok(DependencyField::CacheGroups) }
        );
    }

    #[test]
    fn lines_of_one_field_are_one_list_and_the_best_field_counts() {
        let fields: [(&str, &[u8]); 4] = [
            ("cache-tag", b"x"),
            ("verbena-dependencies", b"a"),
            ("surrogate-key", b"y"),
            ("verbena-dependencies", b"b"),
        ];
        assert_eq!(declared(&fields), Declared { scope: on(&["a", "b"]), because: Ok(DependencyField::Own) });
    }

    #[test]
    fn what_is_not_understood_depends_on_everything() {
        use DependencyField::*;
        let why = |name: &str, value: &[u8]| {
            let declared = declared(&[(name, value), ("cache-tag", b"fine")]);
            assert_eq!(declared.scope, Scope::Everything, "{name}: {}", value.escape_ascii());
            declared.because.unwrap_err()
        };
        assert_eq!(why("verbena-dependencies", b"\"open"), Undeclared::Malformed(Own));
        assert_eq!(why("verbena-dependencies", b"a,"), Undeclared::Malformed(Own));
        assert_eq!(why("verbena-dependencies", b"1"), Undeclared::Malformed(Own));
        assert_eq!(why("verbena-dependencies", b"(a b)"), Undeclared::Malformed(Own));
        assert_eq!(why("verbena-dependencies", b""), Undeclared::Empty(Own));
        assert_eq!(why("surrogate-key", b"   "), Undeclared::Empty(SurrogateKey));
        assert_eq!(why("surrogate-key", b"a\x01b"), Undeclared::Malformed(SurrogateKey));
        assert_eq!(why("surrogate-key", &[b'a'; MAX_DEPENDENCY_NAME_BYTES + 1]), Undeclared::Long(SurrogateKey));
        assert_eq!(why("surrogate-key", &[b' '; MAX_DEPENDENCY_FIELD_BYTES + 1]), Undeclared::Long(SurrogateKey));
        let many: Vec<String> = (0..=MAX_DEPENDENCIES).map(|n| format!("k{n}")).collect();
        assert_eq!(why("surrogate-key", many.join(" ").as_bytes()), Undeclared::Many(SurrogateKey));
        let groups = declared(&[("cache-groups", b"token")]);
        assert_eq!(groups.because, Err(Undeclared::Malformed(CacheGroups)));
        assert_eq!(declared(&[("date", b"x")]).because, Err(Undeclared::Nothing));
    }

    proptest! {
        #[test]
        fn what_is_written_as_our_own_field_is_read_so(wanted in proptest::collection::vec("[ -~]{1,40}", 1..20)) {
            let value = verbena_terms::dependency_field(wanted.iter().map(String::as_str)).unwrap();
            let scope = on(&wanted.iter().map(String::as_str).collect::<Vec<_>>());
            let read = Declared::of_field(&names(), DependencyField::Own, value.as_bytes());
            prop_assert_eq!(read, Declared { scope, because: Ok(DependencyField::Own) });
        }

        #[test]
        fn any_value_gives_a_scope_that_can_be_sent(
            field in 0..4usize,
            lines in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 1..4),
        ) {
            let name = DependencyField::ALL[field].name();
            let declared = Declared::of_response(&names(), lines.iter().map(|line| (name, line.as_slice())));
            prop_assert!(declared.scope.is_well_formed());
            prop_assert_eq!(declared.scope == Scope::Everything, declared.because.is_err());
        }
    }
}
