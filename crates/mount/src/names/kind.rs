//! What is asked for, by kind.

/// The kinds of what is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameKind {
    /// A name that is there, and the attributes of its file.
    Name,
    /// A name that is missing.
    Missing,
    /// Attributes alone.
    Attributes,
    /// All names of a directory.
    Listing,
    /// Where a link leads.
    Link,
    /// Extended attributes that a file does not have, or the names of those that it has.
    Extended,
}

impl NameKind {
    pub(crate) const ALL: [NameKind; 6] = [
        NameKind::Name,
        NameKind::Missing,
        NameKind::Attributes,
        NameKind::Listing,
        NameKind::Link,
        NameKind::Extended,
    ];

    /// Its part of the names of its counters.
    pub(crate) fn name(self) -> &'static str {
        match self {
            NameKind::Name => "name",
            NameKind::Missing => "missing",
            NameKind::Attributes => "attribute",
            NameKind::Listing => "listing",
            NameKind::Link => "link",
            NameKind::Extended => "xattr",
        }
    }
}
