//! Reads a section, and finds every mistake in it: a value that is refused is reported, taken out of the tree, and the section is
//! read again without it. Each round takes something out, so the rounds end.

use serde::de::DeserializeOwned;
use verbena_terms::Section;

use super::mistake::{Mistake, Place, closest};
use super::reading::{Reason, Refusal, Step};
use super::tree::{Node, Table, Value};

/// Reads the section out of `tree`; what is wrong in it is added to `mistakes` and has its default in the result.
pub fn read<S: Section>(tree: &Table, mistakes: &mut Vec<Mistake>) -> S {
    let Some(entry) = tree.find(S::NAME) else { return S::default() };
    let node = entry.node.clone();
    if !matches!(node.value, Value::Table(_)) {
        mistakes.push(Mistake {
            place: node.place,
            key: S::NAME.into(),
            problem: "this is a section, not a key".into(),
            expected: Some(format!("[{}] with keys below it", S::NAME)),
            suggestion: None,
        });
        return S::default();
    }
    let found = mistakes.len();
    let section: S = read_table(node, S::NAME, mistakes).unwrap_or_default();
    // Values that do not fit together are worth telling only when each of them is right.
    if mistakes.len() == found {
        mistakes.extend(section.contradictions().into_iter().map(|contradiction| Mistake {
            place: place_of(tree, &format!("{}.{}", S::NAME, contradiction.key)),
            key: format!("{}.{}", S::NAME, contradiction.key),
            problem: contradiction.problem,
            ..Mistake::default()
        }));
    }
    section
}

/// Reads what is called `name` (empty for a whole file) out of a table. `None` if something is missing that has no default, which is among the
/// mistakes then.
pub(super) fn read_table<T: DeserializeOwned>(mut node: Node, name: &str, mistakes: &mut Vec<Mistake>) -> Option<T> {
    loop {
        let refusal = match T::deserialize(&node) {
            Ok(read) => return Some(read),
            Err(refusal) => refusal,
        };
        mistakes.extend(take_out(&mut node, name, refusal)?);
    }
}

/// Where the value of a dotted key was written, or what is nearest to it on the way there.
pub(super) fn place_of(root: &Table, key: &str) -> Place {
    let mut steps = key.split('.');
    let Some(section) = steps.next().and_then(|section| root.find(section)) else { return Place::Default };
    let mut node = &section.node;
    for step in steps {
        let next = match &node.value {
            Value::Table(table) => table.find(step).map(|entry| &entry.node),
            Value::Array(elements) => {
                elements.iter().find(|(index, _)| step.parse() == Ok(*index)).map(|(_, element)| element)
            }
            _ => None,
        };
        let Some(next) = next else { break };
        node = next;
    }
    node.place.clone()
}

/// Takes the refused value out. `None` if the value does not exist, `Some(None)` if it was only a consequence of another mistake.
fn take_out(root: &mut Node, section: &str, mut refusal: Refusal) -> Option<Option<Mistake>> {
    refusal.path.reverse();
    let taken = cut(root, &refusal.path)?;
    let key = refusal.path.iter().fold(section.to_owned(), |key, step| {
        let dot = if key.is_empty() { "" } else { "." };
        match step {
            Step::Key(name) => format!("{key}{dot}{name}"),
            Step::Index(index) => format!("{key}{dot}{index}"),
        }
    });
    let mistake =
        |place, problem, expected, suggestion| Some(Some(Mistake { place, key, problem, expected, suggestion }));
    match refusal.reason {
        Reason::UnknownKey(known) => {
            let written = refusal.path.last().map_or("", |step| if let Step::Key(name) = step { name } else { "" });
            let suggestion = closest(written, known.iter().copied());
            mistake(taken.key_place, "there is no such key".into(), one_of(known), suggestion)
        }
        Reason::Missing(lacking) if taken.lost.iter().any(|lost| lost == lacking) => Some(None),
        Reason::Missing(lacking) => mistake(taken.place, format!("`{lacking}` is missing"), None, None),
        Reason::Value { found, expected } => {
            mistake(taken.place, format!("found {found}"), Some(in_words(expected)), None)
        }
        Reason::NotOneOf { found, known } => {
            let suggestion = closest(&found, known.iter().copied()).map(|word| format!("{word:?}"));
            mistake(taken.place, format!("`{found}` is not one of the choices"), one_of(known), suggestion)
        }
        Reason::Other(problem) if problem == "invalid socket address syntax" => {
            let expected = "an address with a port, for example 127.0.0.1:8080".to_owned();
            mistake(taken.place, "this is no address with a port".into(), Some(expected), None)
        }
        Reason::Other(problem) => mistake(taken.place, problem, None, None),
    }
}

struct Taken {
    place: Place,
    key_place: Place,
    lost: Vec<String>,
}

/// Takes out what the path leads to, or the last thing on it that the tree has (a flag's value is one thing).
fn cut(node: &mut Node, path: &[Step]) -> Option<Taken> {
    let (step, rest) = path.split_first()?;
    match (&mut node.value, step) {
        (Value::Table(table), Step::Key(key)) => {
            if let Some(taken) = cut(&mut table.find_mut(key)?.node, rest) {
                return Some(taken);
            }
            let entry = table.take(key)?;
            table.lost.push(entry.key);
            Some(Taken { key_place: entry.place, ..Taken::of(entry.node) })
        }
        (Value::Array(elements), Step::Index(index)) => {
            let at = elements.iter().position(|(written, _)| written == index)?;
            cut(&mut elements[at].1, rest).or_else(|| Some(Taken::of(elements.remove(at).1)))
        }
        _ => None,
    }
}

impl Taken {
    fn of(node: Node) -> Self {
        let lost = if let Value::Table(table) = node.value { table.lost } else { vec![] };
        Taken { key_place: node.place.clone(), place: node.place, lost }
    }
}

fn one_of(known: &[&str]) -> Option<String> {
    let words: Vec<_> = known.iter().map(|word| format!("`{word}`")).collect();
    match words.as_slice() {
        [] => None,
        [only] => Some(only.clone()),
        all => Some(format!("one of {}", all.join(", "))),
    }
}

fn in_words(expected: String) -> String {
    let bounded = |largest: u64| format!("a whole number from 0 to {largest}");
    match expected.as_str() {
        "u8" => bounded(u8::MAX.into()),
        "u16" => bounded(u16::MAX.into()),
        "u32" => bounded(u32::MAX.into()),
        "u64" | "usize" => "a whole number, 0 or more".into(),
        "path string" | "a string" => "text in quotes".into(),
        "a boolean" => "true or false".into(),
        "a sequence" => "a list in brackets".into(),
        word if word.starts_with("struct ") => "a table in braces, or with a header of its own".into(),
        _ => expected,
    }
}
