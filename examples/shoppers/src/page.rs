//! What a page says of itself.

use std::ops::Range;

use thiserror::Error;

/// Why a page cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Malformed {
    /// Not text.
    #[error("it is not UTF-8")]
    NotText,
    /// The end is missing.
    #[error("it does not end with </html>: {0} bytes came")]
    Cut(usize),
    /// No `data-commit`.
    #[error("it does not say its commit")]
    NoCommit,
    /// A row without `data-changed`, or with a strange one.
    #[error("it does not say when {0} changed")]
    NoChange(String),
}

/// A page, read.
#[derive(Debug, PartialEq, Eq)]
pub struct Shown<'a> {
    /// The commit that it shows.
    pub commit: i64,
    /// Where in the text that number stands.
    pub commit_at: Range<usize>,
    /// Each row, and the commit that last changed it. A row can be there several times.
    pub rows: Vec<(&'a str, i64)>,
}

/// Reads a page.
pub fn read(body: &[u8]) -> Result<Shown<'_>, Malformed> {
    let text = std::str::from_utf8(body).map_err(|_| Malformed::NotText)?;
    if !text.ends_with("</html>") {
        return Err(Malformed::Cut(text.len()));
    }
    let (commit, commit_at) = number(text, 0, " data-commit=\"").ok_or(Malformed::NoCommit)?;
    let mut rows = Vec::new();
    for (at, label) in text.match_indices(" data-row=\"") {
        let start = at + label.len();
        let length = text[start..].find('"').ok_or_else(|| Malformed::NoChange("a row without a name".into()))?;
        let name = &text[start..start + length];
        let after = &text[start + length + 1..];
        let changed = after.starts_with(CHANGED).then(|| number(after, 0, CHANGED)).flatten();
        let (changed, _) = changed.ok_or_else(|| Malformed::NoChange(name.into()))?;
        rows.push((name, changed));
    }
    Ok(Shown { commit, commit_at, rows })
}

const CHANGED: &str = " data-changed=\"";

/// The number in quotes after the first `label`.
fn number(text: &str, from: usize, label: &str) -> Option<(i64, Range<usize>)> {
    let start = from + text[from..].find(label)? + label.len();
    let end = start + text[start..].find('"')?;
    Some((text[start..end].parse().ok()?, start..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_commit_are_read() {
        let text = "<html lang=\"en\" data-commit=\"12\"><li data-row=\"a:1\" data-changed=\"7\">x</li>\
                    <p data-row=\"b\" data-changed=\"12\"></html>";
        let shown = read(text.as_bytes()).unwrap();
        assert_eq!((shown.commit, &text[shown.commit_at.clone()]), (12, "12"));
        assert_eq!(shown.rows, [("a:1", 7), ("b", 12)]);
    }

    #[test]
    fn what_is_not_a_whole_page_is_refused() {
        let row = |rest: &str| format!("<html data-commit=\"1\"><p data-row=\"a\"{rest}</html>");
        assert_eq!(read(b"\xff</html>"), Err(Malformed::NotText));
        assert_eq!(read(b"<html data-commit=\"1\">"), Err(Malformed::Cut(22)));
        assert_eq!(read(b"<html></html>"), Err(Malformed::NoCommit));
        assert_eq!(read(b"<html data-commit=\"x\"></html>"), Err(Malformed::NoCommit));
        for rest in ["> data-changed=\"1\"", " data-changed=\"\"", " data-changed=\"1"] {
            assert_eq!(read(row(rest).as_bytes()), Err(Malformed::NoChange("a".into())), "{rest}");
        }
    }
}
