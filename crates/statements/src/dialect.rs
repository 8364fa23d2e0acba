//! How a session's server reads the bytes of a statement.

/// The database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// MySQL.
    MySql,
    /// MariaDB.
    MariaDb,
    /// PostgreSQL.
    PostgreSql,
    /// SQLite.
    Sqlite,
}

/// What the bytes of a session's statements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charset {
    /// UTF-8, as the text in the tables.
    Utf8,
    /// Another one in which each byte below 0x80 is ASCII. A text with other bytes has no name: the server converts it.
    AsciiCompatible,
    /// One whose second byte may be a backslash or a quote (Big5, GBK, Shift JIS): nothing is understood.
    Other,
}

/// The server and the session's settings that change how a statement is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// The database.
    pub product: Product,
    /// Its version as executable comments write it (101119 for 10.11.19); nothing if it is not known.
    pub version: Option<u32>,
    /// MySQL's `ANSI_QUOTES`: double quotes are around identifiers.
    pub ansi_quotes: bool,
    /// Whether a backslash escapes in a text: MySQL without `NO_BACKSLASH_ESCAPES`, PostgreSQL without
    /// `standard_conforming_strings`.
    pub backslash_escapes: bool,
    /// The session's character set.
    pub charset: Charset,
}

impl Dialect {
    /// The database with the settings that it has by default.
    pub fn new(product: Product) -> Dialect {
        Dialect {
            product,
            version: None,
            ansi_quotes: false,
            backslash_escapes: matches!(product, Product::MySql | Product::MariaDb),
            charset: Charset::Utf8,
        }
    }

    pub(crate) fn is_mysql(&self) -> bool {
        matches!(self.product, Product::MySql | Product::MariaDb)
    }

    pub(crate) fn is_postgres(&self) -> bool {
        self.product == Product::PostgreSql
    }

    /// Whether double quotes are around an identifier.
    pub(crate) fn double_quotes_name(&self) -> bool {
        !self.is_mysql() || self.ansi_quotes
    }
}
