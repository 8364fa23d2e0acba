//! What a client of PostgreSQL sets by its startup message.

use super::path::Set;
use crate::search::path;

/// The path that the settings of a startup message give; nothing if they do what is not followed.
///
/// `options` has the server's command line, `-c name=value` or `--name=value`, with a backslash before a blank that belongs to a value.
pub(super) fn path_of(settings: &[(Vec<u8>, Vec<u8>)]) -> Option<Set> {
    let mut found = Set::Usual;
    for (name, value) in settings {
        match name.to_ascii_lowercase().as_slice() {
            b"options" => {
                for (name, value) in options(value)? {
                    set(&mut found, &name, &value)?;
                }
            }
            b"user" | b"database" => {}
            name => set(&mut found, name, value)?,
        }
    }
    Some(found)
}

fn set(found: &mut Set, name: &[u8], value: &[u8]) -> Option<()> {
    match name {
        b"search_path" => *found = path(value).map_or(Set::Unknown, Set::To),
        b"replication" | b"role" | b"session_authorization" | b"session_replication_role" => return None,
        _ => {}
    }
    Some(())
}

type Setting = (Vec<u8>, Vec<u8>);

fn options(text: &[u8]) -> Option<Vec<Setting>> {
    let (mut words, mut word, mut bytes) = (Vec::new(), Vec::new(), text.iter());
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => word.push(*bytes.next()?),
            blank if blank.is_ascii_whitespace() => words.push(std::mem::take(&mut word)),
            other => word.push(*other),
        }
    }
    words.push(word);
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        let setting = match word.as_slice() {
            b"-c" => words.next()?,
            [b'-', b'c' | b'-', setting @ ..] => setting.to_vec(),
            _ => return None,
        };
        let equals = setting.iter().position(|byte| *byte == b'=')?;
        let name = setting[..equals]
            .to_ascii_lowercase()
            .iter()
            .map(|byte| if *byte == b'-' { b'_' } else { *byte })
            .collect();
        found.push((name, setting[equals + 1..].to_vec()));
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_the_server_reads_its_command_line() {
        let of = |name: &str, value: &str| path_of(&[(name.into(), value.into())]);
        let to = |text: &str| Some(Set::To(path(text.as_bytes()).unwrap()));
        assert_eq!(of("options", r"-c search_path=shop,\ public --geqo=off"), to("shop, public"));
        assert_eq!(of("options", "-csearch_path=a --search-path=b"), to("b"));
        assert_eq!(of("search_path", "a"), to("a"));
        assert_eq!(of("client_encoding", "UTF8"), Some(Set::Usual));
        for (name, value) in [("options", "-c role=x"), ("replication", "true"), ("options", "-d 5"), ("options", "-c")]
        {
            assert_eq!(of(name, value), None, "{value}");
        }
    }
}
