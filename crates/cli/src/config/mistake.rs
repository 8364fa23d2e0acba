//! What is wrong with a configuration, where, and what to write instead.

use std::fmt::Write as _;
use std::ops::Range;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

const BAD: Style = AnsiColor::Red.on_default().bold();
const MARK: Style = AnsiColor::Cyan.on_default().bold();

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The user did not set it.
    Default,
    /// These bytes of the file.
    File(Range<usize>),
    /// This command-line flag.
    Flag(String),
}

impl Place {
    /// The first byte, for what stands in the file.
    pub fn start(&self) -> usize {
        if let Place::File(span) = self { span.start } else { 0 }
    }
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where it was made.
    pub place: Place,
    /// The key it concerns, dotted, with indices of arrays: `cluster.nodes.0.name`. Empty if it concerns none.
    pub key: String,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub expected: Option<String>,
    /// What was probably meant.
    pub suggestion: Option<String>,
}

impl Default for Mistake {
    fn default() -> Self {
        Mistake { place: Place::Default, key: String::new(), problem: String::new(), expected: None, suggestion: None }
    }
}

/// The text of a file, to find lines and columns in.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file's name as the user knows it.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// A mistake with its place worked out, as `--json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Located {
    /// The file, or the flag.
    pub at: String,
    /// The line, from 1; absent for a flag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The column in characters, from 1; absent for a flag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    /// The key, dotted; empty if none is meant.
    pub key: String,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// What was probably meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
}

impl Source {
    /// Line and column, both from 1, of a byte.
    pub fn position(&self, byte: usize) -> (usize, usize) {
        let before = &self.text[..floor_char_boundary(&self.text, byte)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }

    /// The line around a byte, without its end.
    fn line(&self, byte: usize) -> &str {
        let (line, _) = self.position(byte);
        self.text.split('\n').nth(line - 1).unwrap_or("").trim_end_matches('\r')
    }
}

impl Mistake {
    /// With its place as people and programs name it.
    pub fn locate(&self, source: &Source) -> Located {
        let (at, position) = match &self.place {
            Place::Default => (source.name.clone(), None),
            Place::File(span) => (source.name.clone(), Some(source.position(span.start))),
            Place::Flag(flag) => (flag.clone(), None),
        };
        Located {
            at,
            line: position.map(|(line, _)| line),
            column: position.map(|(_, column)| column),
            key: self.key.clone(),
            problem: self.problem.clone(),
            expected: self.expected.clone(),
            suggestion: self.suggestion.clone(),
        }
    }

    /// For people: the place, what is wrong, the line with the spot marked, what to do. Coloured; a caller that prints it to
    /// something that shows no colours takes them out.
    pub fn explain(&self, source: &Source) -> String {
        let located = self.locate(source);
        let mut text = format!("{BAD}{}", located.at);
        if let (Some(line), Some(column)) = (located.line, located.column) {
            let _ = write!(text, ":{line}:{column}");
        }
        let key = if self.key.is_empty() { String::new() } else { format!("{}: ", self.key) };
        let _ = writeln!(text, ":{BAD:#} {key}{}", self.problem);
        if let (Place::File(span), Some(line)) = (&self.place, located.line) {
            text.push_str(&excerpt(source, span, line));
        }
        if let Some(expected) = &self.expected {
            let _ = writeln!(text, "    expected {expected}");
        }
        if let Some(suggestion) = &self.suggestion {
            let _ = writeln!(text, "    did you mean {MARK}{suggestion}{MARK:#}?");
        }
        text
    }
}

/// The line with the bytes of `span` underlined, as far as they are on it.
fn excerpt(source: &Source, span: &Range<usize>, number: usize) -> String {
    let (_, column) = source.position(span.start);
    let line = printable(source.line(span.start));
    let text = &source.text;
    let marked = &text[floor_char_boundary(text, span.start)..floor_char_boundary(text, span.end.max(span.start))];
    let width = marked.lines().next().unwrap_or("").chars().count().max(1);
    let margin = " ".repeat(number.to_string().len());
    let indent = " ".repeat(column - 1);
    let marks = "^".repeat(width);
    format!("  {number} | {line}\n  {margin} | {indent}{MARK}{marks}{MARK:#}\n")
}

/// Control characters would move what stands below them.
fn printable(line: &str) -> String {
    line.chars()
        .map(|c| {
            if c == '\t' {
                ' '
            } else if c.is_control() {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

fn floor_char_boundary(text: &str, byte: usize) -> usize {
    text.floor_char_boundary(byte)
}

/// The word of `known` that the author of `written` can have meant.
pub fn closest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let likeness = |word: &str| strsim::damerau_levenshtein(&written.to_lowercase(), word);
    let nearest = known.into_iter().map(|word| (likeness(word), word)).min()?;
    // A third of the characters wrong is a slip; more is another word.
    (nearest.0 <= nearest.1.len().max(3) / 3).then(|| nearest.1.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_characters_and_both_count_from_one() {
        let source = Source { name: "f".into(), text: "a\näb = 1\n".into() };
        assert_eq!(source.position(0), (1, 1));
        assert_eq!(source.position(2), (2, 1));
        assert_eq!(source.position(4), (2, 2));
        assert_eq!(source.position(3), (2, 1), "inside a character");
        assert_eq!(source.position(1000), (3, 1), "behind the end");
    }

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let known = ["lease", "nodes", "drift"];
        assert_eq!(closest("leese", known), Some("lease".into()));
        assert_eq!(closest("Nodse", known), Some("nodes".into()));
        assert_eq!(closest("colour", known), None);
    }

    #[test]
    fn a_mistake_shows_its_line() {
        let source = Source { name: "verbena.toml".into(), text: "[node]\nnaem = 3\n".into() };
        let mistake = Mistake {
            place: Place::File(7..11),
            key: "node.naem".into(),
            problem: "there is no such key".into(),
            suggestion: Some("name".into()),
            ..Mistake::default()
        };
        let shown = anstream::adapter::strip_str(&mistake.explain(&source)).to_string();
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(
            lines,
            [
                "verbena.toml:2:1: node.naem: there is no such key",
                "  2 | naem = 3",
                "    | ^^^^",
                "    did you mean name?",
            ]
        );
    }
}
