//! What the fuzz targets `dependency_header` and `content_message` drive, and the replay of what they found.
//!
//! A dependency that is lost is a stale page, so it is not enough that a header is read without a panic. Three ways lead to
//! the names that a header names, and they must meet:
//! - lines are read as a response's, and read again by a reader that shares nothing with the first: it only cuts at
//!   separators outside quotes, which is exact for whatever the first accepted;
//! - lines that are accepted alone must, together, declare the union of what they declare alone, or everything;
//! - names are written into each field, and must be read back to the last one, or refused for the limit that they break.

use std::collections::BTreeSet;

use verbena_terms::{MAX_DEPENDENCIES, MAX_DEPENDENCY_FIELD_BYTES, MAX_DEPENDENCY_NAME_BYTES};

use crate::dependencies::{Declared, DependencyField, Undeclared};
use crate::names::{Names, Scope};
use crate::service::exercise_introduction;
use crate::wire::{Body, MAX_OPEN_UPDATES, Message};

/// What became of the headers of one input, so that a replay of the corpus can say that every road was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Headers {
    pub accepted: BTreeSet<DependencyField>,
    pub refused: Vec<Undeclared>,
    /// How many lines were accepted together as the union of what they declare alone.
    pub combined: usize,
}

/// Reads `input` as header lines, `name: value` between line feeds, and then each of its lines as a dependency's name.
///
/// # Panics
/// If a dependency is lost, a limit is not kept, or a refusal is not for everything.
pub fn dependency_header(input: &[u8]) -> Headers {
    let mut seen = Headers::default();
    let lines: Vec<&[u8]> = input.split(|&byte| byte == b'\n').collect();
    read(&lines, &mut seen);
    write_and_read(&lines, &mut seen);
    seen
}

/// Reads `input` as a message of the page protocol and as an introduction; how many of the two it is.
///
/// # Panics
/// If what is read is not written as something that reads the same, and no longer.
pub fn content_message(input: &[u8]) -> usize {
    let mut read = 0;
    if let Ok(message) = Message::decode(input) {
        let written = message.encode();
        assert!(written.len() <= input.len(), "{message:?} has grown");
        assert_eq!(Message::decode(&written).as_ref(), Ok(&message));
        if let Message::Updates(updates) = message {
            for body in &updates.bodies {
                let length = postcard::to_stdvec(body).expect("invariant: it was part of a message").len();
                assert!(length <= body.max_bytes(), "{body:?} is longer than it says");
                match body {
                    Body::Sync { open, .. } => assert!(open.len() <= MAX_OPEN_UPDATES),
                    Body::Begin { scope, .. } => assert!(scope.is_well_formed()),
                    Body::End { .. } | Body::Void { .. } => {}
                }
            }
        }
        read += 1;
    }
    read + usize::from(exercise_introduction(input))
}

fn names() -> Names {
    Names::new([1; 16])
}

/// The fields in these lines, as a server's head parser would give them.
fn fields<'a>(lines: &[&'a [u8]]) -> Vec<(&'a str, &'a [u8])> {
    let field = |line: &&'a [u8]| {
        let colon = line.iter().position(|&byte| byte == b':')?;
        Some((str::from_utf8(&line[..colon]).ok()?, line[colon + 1..].trim_ascii()))
    };
    lines.iter().filter_map(field).collect()
}

fn read(lines: &[&[u8]], seen: &mut Headers) {
    let fields = fields(lines);
    let declared = Declared::of_response(&names(), fields.iter().copied());
    let best = fields.iter().filter_map(|(name, _)| DependencyField::of_name(name)).min();
    let values: Vec<&[u8]> = fields
        .iter()
        .filter(|(name, _)| best.is_some() && DependencyField::of_name(name) == best)
        .map(|(_, v)| *v)
        .collect();
    let Some(best) = best else {
        assert_eq!(declared, Declared { scope: Scope::Everything, because: Err(Undeclared::Nothing) });
        return;
    };
    check(&declared, best, seen);

    if declared.because.is_ok() {
        let joint: &[u8] = if best == DependencyField::SurrogateKey { b" " } else { b", " };
        let joined = values.join(joint);
        assert!(joined.len() <= MAX_DEPENDENCY_FIELD_BYTES);
        let named = named(best, &joined);
        assert!(named.iter().all(|name| name.len() <= MAX_DEPENDENCY_NAME_BYTES));
        assert_eq!(declared.scope, scope(&named), "{} in {}", best.name(), joined.escape_ascii());
        let written = write(best, &named).expect("invariant: what was read can be written");
        assert_eq!(Declared::of_field(&names(), best, &written), declared, "{}", written.escape_ascii());
    }

    let alone: Vec<Declared> = values.iter().map(|value| Declared::of_field(&names(), best, value)).collect();
    if alone.iter().all(|declared| declared.because.is_ok()) && alone.len() > 1 {
        let union = Scope::of(alone.iter().flat_map(|declared| declared.scope.dependencies().iter().copied()));
        match declared.because {
            Ok(_) => assert_eq!(declared.scope, union, "what lines declare together is what each declares"),
            Err(Undeclared::Many(_) | Undeclared::Long(_)) => {}
            Err(why) => panic!("each of {} lines is accepted, but together: {why}", alone.len()),
        }
        seen.combined += usize::from(declared.because.is_ok());
    }
}

/// Every name in every field that can carry it; in one field, which the input's length chooses, up to eight times.
fn write_and_read(lines: &[&[u8]], seen: &mut Headers) {
    let length: usize = lines.iter().map(|line| line.len()).sum();
    for field in DependencyField::ALL {
        let again = if length % 4 == field as usize { 1 + length / 4 % 8 } else { 1 };
        let names_there: Vec<Vec<u8>> =
            lines.iter().map(|line| line.to_ascii_lowercase()).filter(|name| can_name(field, name)).collect();
        let repeated: Vec<Vec<u8>> = (0..again).flat_map(|_| names_there.iter().cloned()).collect();
        let Some(written) = write(field, &repeated) else { continue };
        let declared = Declared::of_field(&names(), field, &written);
        check(&declared, field, seen);
        let distinct: BTreeSet<&Vec<u8>> = names_there.iter().collect();
        let expected = if written.len() > MAX_DEPENDENCY_FIELD_BYTES {
            Err(Undeclared::Long(field))
        } else if repeated.is_empty() {
            Err(Undeclared::Empty(field))
        } else if repeated.iter().any(|name| name.len() > MAX_DEPENDENCY_NAME_BYTES) {
            Err(Undeclared::Long(field))
        } else if distinct.len() > MAX_DEPENDENCIES || repeated.len() > 4 * MAX_DEPENDENCIES {
            Err(Undeclared::Many(field))
        } else {
            Ok(field)
        };
        assert_eq!(declared.because, expected, "{} in {}", field.name(), written.escape_ascii());
        if expected.is_ok() {
            assert_eq!(declared.scope, scope(&repeated), "{} in {}", field.name(), written.escape_ascii());
        }
    }
}

/// What is true of every answer.
fn check(declared: &Declared, field: DependencyField, seen: &mut Headers) {
    assert!(declared.scope.is_well_formed());
    match declared.because {
        Ok(by) => {
            assert_eq!(by, field, "the best field counts");
            assert!(declared.scope.dependencies().len() <= MAX_DEPENDENCIES && declared.scope != Scope::Everything);
            seen.accepted.insert(by);
        }
        Err(why) => {
            assert_eq!(declared.scope, Scope::Everything, "{why}");
            seen.refused.push(why);
        }
    }
}

fn scope(named: &[Vec<u8>]) -> Scope {
    let names = names();
    Scope::of(named.iter().map(|name| names.dependency(name)))
}

/// The names in a value that was accepted.
fn named(field: DependencyField, value: &[u8]) -> Vec<Vec<u8>> {
    let is_separator = |byte: u8| match field {
        DependencyField::SurrogateKey => byte == b' ' || byte == b'\t',
        _ => byte == b',',
    };
    let structured = matches!(field, DependencyField::Own | DependencyField::CacheGroups);
    let mut members = vec![Member::default()];
    let (mut quoted, mut escaped) = (false, false);
    for &byte in value {
        let member = members.last_mut().expect("invariant: there is one from the beginning");
        if !structured {
            if is_separator(byte) {
                members.push(Member::default())
            } else {
                member.name.push(byte)
            }
            continue;
        }
        match byte {
            _ if escaped => {
                escaped = false;
                member.push(byte);
            }
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => member.push(byte),
            b';' => member.in_parameters = true,
            b' ' | b'\t' => {}
            _ if is_separator(byte) => members.push(Member::default()),
            _ => member.push(byte),
        }
    }
    let trimmed = members.into_iter().map(|member| match structured {
        true => member.name,
        false => member.name.trim_ascii().to_vec(),
    });
    // The empty string is a name in a list of strings, but not between separators.
    trimmed.filter(|name| structured || !name.is_empty()).collect()
}

#[derive(Default)]
struct Member {
    name: Vec<u8>,
    in_parameters: bool,
}

impl Member {
    fn push(&mut self, byte: u8) {
        if !self.in_parameters {
            self.name.push(byte);
        }
    }
}

/// Whether the field has a form for this name.
fn can_name(field: DependencyField, name: &[u8]) -> bool {
    match field {
        DependencyField::Own | DependencyField::CacheGroups => name.iter().all(|byte| matches!(byte, b' '..=b'~')),
        DependencyField::SurrogateKey => {
            !name.is_empty() && !name.iter().any(|byte| byte.is_ascii_control() || byte.is_ascii_whitespace())
        }
        DependencyField::CacheTag => {
            let is_visible = |byte: &u8| !byte.is_ascii_control() || *byte == b'\t';
            !name.is_empty() && name.trim_ascii() == name && name.iter().all(|byte| is_visible(byte) && *byte != b',')
        }
    }
}

/// The names as a field's value, if there is a form for all of them.
fn write(field: DependencyField, names: &[Vec<u8>]) -> Option<Vec<u8>> {
    if !names.iter().all(|name| can_name(field, name)) {
        return None;
    }
    let separator: &[u8] = if field == DependencyField::SurrogateKey { b" " } else { b"," };
    let form = |name: &Vec<u8>| match field {
        DependencyField::Own if is_token(name) => name.clone(),
        DependencyField::Own | DependencyField::CacheGroups => quoted(name),
        DependencyField::SurrogateKey | DependencyField::CacheTag => name.clone(),
    };
    Some(names.iter().map(form).collect::<Vec<_>>().join(separator))
}

/// RFC 9651 section 3.3.4.
fn is_token(name: &[u8]) -> bool {
    let begins = name.first().is_some_and(|first| first.is_ascii_alphabetic() || *first == b'*');
    begins && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(byte))
}

/// RFC 9651 section 3.3.3.
fn quoted(name: &[u8]) -> Vec<u8> {
    let escaped = name.iter().flat_map(|&byte| match byte {
        b'"' | b'\\' => vec![b'\\', byte],
        _ => vec![byte],
    });
    std::iter::once(b'"').chain(escaped).chain(std::iter::once(b'"')).collect()
}

#[cfg(test)]
mod tests {
    use verbena_terms::testing::corpus;

    use super::*;

    #[test]
    fn no_header_of_the_corpus_loses_a_dependency_and_every_refusal_is_met() {
        let mut all = Headers::default();
        let inputs = corpus("dependency_header");
        for input in &inputs {
            let mut one = dependency_header(input);
            all.accepted.append(&mut one.accepted);
            all.refused.append(&mut one.refused);
            all.combined += one.combined;
        }
        assert!(inputs.len() >= 20, "{} inputs", inputs.len());
        assert_eq!(all.accepted.len(), 4, "{:?}", all.accepted);
        assert!(all.combined >= 3, "{} combined", all.combined);
        for field in DependencyField::ALL {
            let whys: [fn(DependencyField) -> Undeclared; 4] =
                [Undeclared::Empty, Undeclared::Malformed, Undeclared::Long, Undeclared::Many];
            for why in whys.map(|why| why(field)) {
                assert!(all.refused.contains(&why), "{why:?} is not in the corpus");
            }
        }
    }

    #[test]
    fn every_message_of_the_corpus_is_read_as_it_is_written() {
        let inputs = corpus("content_message");
        let read: usize = inputs.iter().map(|input| content_message(input)).sum();
        assert!(inputs.len() >= 12 && read >= 8, "{read} of {} inputs are messages", inputs.len());
    }

    #[test]
    fn the_second_reader_reads_by_itself() {
        let named = |field, value: &str| {
            named(field, value.as_bytes()).into_iter().map(|name| String::from_utf8(name).unwrap()).collect::<Vec<_>>()
        };
        let own = named(DependencyField::Own, r#""a,b";x="c,d\";";y, *t:1/2 ,"\\\"" "#);
        assert_eq!(own, ["a,b", "*t:1/2", "\\\""]);
        assert_eq!(named(DependencyField::SurrogateKey, " a,\"b  c\t"), ["a,\"b", "c"]);
        assert_eq!(named(DependencyField::CacheTag, "a b ,, \"c,d"), ["a b", "\"c", "d"]);
    }
}
