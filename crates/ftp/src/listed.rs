//! What other servers list: lines of `MLSD` (RFC 3659, section 7), and lines of `LIST` as Unix and DOS servers write them.
//!
//! Names are the server's own bytes, and may be anything: what makes files of them goes through [`crate::VirtualPath`]
//! and [`crate::Root`].

use crate::date::Date;

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name, as the server wrote it.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: ListedKind,
    /// Bytes, of files whose size is known.
    pub size: Option<u64>,
    /// Seconds since 1970. `LIST` tells a time without a zone, which is none.
    pub modified: Option<i64>,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, a pipe, or what the server does not say.
    Other,
}

const MONTHS: [&[u8]; 12] =
    [b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];

/// A line of `MLSD`. `None`: it is none, or stands for the directory itself or its parent.
pub fn parse_mlsd(line: &[u8]) -> Option<Listed> {
    let space = line.iter().position(|byte| *byte == b' ')?;
    let (facts, name) = (&line[..space], &line[space + 1..]);
    let mut listed = Listed { name: name.to_vec(), kind: ListedKind::Other, size: None, modified: None };
    let mut has_type = false;
    for fact in facts.split(|byte| *byte == b';').filter(|fact| !fact.is_empty()) {
        let equals = fact.iter().position(|byte| *byte == b'=')?;
        let (key, value) = (fact[..equals].to_ascii_lowercase(), &fact[equals + 1..]);
        match key.as_slice() {
            b"type" => {
                has_type = true;
                let value = value.to_ascii_lowercase();
                listed.kind = match value.as_slice() {
                    b"file" => ListedKind::File,
                    b"dir" => ListedKind::Directory,
                    b"cdir" | b"pdir" => return None,
                    other if other.starts_with(b"os.unix=slink") || other.starts_with(b"os.unix=symlink") => {
                        ListedKind::Link
                    }
                    _ => ListedKind::Other,
                };
            }
            b"size" => listed.size = number(value),
            b"modify" => listed.modified = Date::parse(value).map(|date| date.seconds()),
            _ => {}
        }
    }
    (has_type && is_name(name)).then_some(listed)
}

/// A line of `LIST`, in the form of Unix or of DOS. `None`: it is neither (a total, a blank line), or stands for the
/// directory itself or its parent.
pub fn parse_list(line: &[u8]) -> Option<Listed> {
    let listed = if line.first().is_some_and(u8::is_ascii_digit) { dos(line) } else { unix(line) };
    listed.filter(|listed| is_name(&listed.name))
}

fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..")
}

fn number(digits: &[u8]) -> Option<u64> {
    let all = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    if all { std::str::from_utf8(digits).ok()?.parse().ok() } else { None }
}

/// Where each word of a line begins and ends.
fn words(line: &[u8]) -> Vec<(usize, usize)> {
    let mut words = Vec::new();
    let mut begin = None;
    for (at, byte) in line.iter().enumerate() {
        match (byte.is_ascii_whitespace(), begin) {
            (false, None) => begin = Some(at),
            (true, Some(from)) => {
                words.push((from, at));
                begin = None;
            }
            _ => {}
        }
    }
    words.extend(begin.map(|from| (from, line.len())));
    words
}

/// `-rw-r--r-- 1 user group 1234 Jan  2 12:34 name`. Users and groups may be left out or hold blanks, so the date is
/// looked for: a number before a month, a day, and a time or a year behind it. The name begins one blank later.
fn unix(line: &[u8]) -> Option<Listed> {
    let kind = match line.first()? {
        b'-' => ListedKind::File,
        b'd' => ListedKind::Directory,
        b'l' => ListedKind::Link,
        b'b' | b'c' | b'p' | b's' => ListedKind::Other,
        _ => return None,
    };
    let is_mode = |byte: &u8| b"-rwxsStTlL".contains(byte);
    if !line.get(1..10)?.iter().all(is_mode) {
        return None;
    }
    let words = words(line);
    let word = |at: usize| words.get(at).map_or(&b""[..], |(from, to)| &line[*from..*to]);
    let is_date = |at: usize| {
        let month = word(at).to_ascii_lowercase();
        let is_day = number(word(at + 1)).is_some_and(|day| (1..=31).contains(&day));
        let last = word(at + 2);
        let is_time = match last.iter().position(|byte| *byte == b':') {
            Some(colon) => number(&last[..colon]).is_some() && number(&last[colon + 1..]).is_some(),
            None => last.len() == 4 && number(last).is_some(),
        };
        MONTHS.contains(&month.as_slice()) && is_day && is_time && number(word(at - 1)).is_some()
    };
    let month = (2..words.len().saturating_sub(2)).find(|at| is_date(*at))?;
    let name = line.get(words.get(month + 2)?.1 + 1..)?;
    let name = match (kind, name.windows(4).position(|window| window == b" -> ")) {
        (ListedKind::Link, Some(arrow)) => &name[..arrow],
        _ => name,
    };
    let size = if kind == ListedKind::File { number(word(month - 1)) } else { None };
    Some(Listed { name: name.to_vec(), kind, size, modified: None })
}

/// `01-02-26  03:04PM       <DIR>          name`, or a size in the place of `<DIR>`.
fn dos(line: &[u8]) -> Option<Listed> {
    let words = words(line);
    let word = |at: usize| words.get(at).map_or(&b""[..], |(from, to)| &line[*from..*to]);
    let parts: Vec<_> = word(0).split(|byte| matches!(byte, b'-' | b'/')).collect();
    let is_date = parts.len() == 3 && parts.iter().all(|part| number(part).is_some());
    let is_time = word(1).contains(&b':') && word(1).first().is_some_and(u8::is_ascii_digit);
    if !is_date || !is_time {
        return None;
    }
    let (kind, size) = match word(2) {
        b"<DIR>" => (ListedKind::Directory, None),
        b"<JUNCTION>" | b"<SYMLINK>" | b"<SYMLINKD>" => (ListedKind::Link, None),
        digits => (ListedKind::File, Some(number(digits)?)),
    };
    // Directories have their names in a column of their own; a name that begins with blanks cannot be told from it.
    let name = &line[words.get(3)?.0..];
    Some(Listed { name: name.to_vec(), kind, size, modified: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn listed(line: &str) -> (String, ListedKind, Option<u64>) {
        let listed = parse_list(line.as_bytes()).unwrap_or_else(|| panic!("{line}"));
        (String::from_utf8(listed.name).unwrap(), listed.kind, listed.size)
    }

    #[test]
    fn lines_of_unix_servers() {
        use ListedKind::*;
        let cases = [
            ("-rw-r--r--   1 ftp      ftp         5368709120 Jan  1  1970  a b ", " a b ", File, Some(5_368_709_120)),
            ("drwxr-xr-x    2 0        0            4096 Nov 29 12:00 dir", "dir", Directory, None),
            ("lrwxrwxrwx 1 u g 3 May 3 2001 a -> b -> c", "a", Link, None),
            ("-rw-rw-r-- 1 domain users 7 Dec 31 23:59 Jan 1 2001 x", "Jan 1 2001 x", File, Some(7)),
            ("-rw-r--r-- 1 owner 12 Feb 28 9:05 no group", "no group", File, Some(12)),
            ("brw-rw---- 1 root disk 8, 0 Mar 1 00:00 sda", "sda", Other, None),
        ];
        for (line, name, kind, size) in cases {
            assert_eq!(listed(line), (name.to_owned(), kind, size), "{line}");
        }
        for line in
            ["total 12", "", "drwxr-xr-x 2 0 0 4096 Nov 29 12:00 .", "drwxr-xr-x 2 0 0 4096 Nov 29 12:00 ..", "-rw"]
        {
            assert_eq!(parse_list(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn lines_of_dos_servers() {
        assert_eq!(
            listed("01-02-26  03:04PM       <DIR>          My Files"),
            ("My Files".into(), ListedKind::Directory, None)
        );
        assert_eq!(
            listed("11-29-2026  13:04                12345 a  b.txt"),
            ("a  b.txt".into(), ListedKind::File, Some(12_345))
        );
        assert_eq!(parse_list(b"2 files"), None);
    }

    #[test]
    fn lines_of_facts() {
        let line = b"Type=file;Size=3;Modify=20240229123456.789;perm=r;  a b;c=d ";
        let expected = Listed {
            name: b" a b;c=d ".to_vec(),
            kind: ListedKind::File,
            size: Some(3),
            modified: Some(1_709_210_096),
        };
        assert_eq!(parse_mlsd(line), Some(expected));
        assert_eq!(parse_mlsd(b"type=OS.unix=slink:/x; l").unwrap().kind, ListedKind::Link);
        assert_eq!(parse_mlsd(b"type=dir; ../x").unwrap().name, b"../x");
        for line in [&b"type=cdir; ."[..], b"type=pdir; ..", b"size=3; a", b"type=file;", b"type=dir; ..", b"x y"] {
            assert_eq!(parse_mlsd(line), None);
        }
    }

    proptest! {
        #[test]
        fn no_line_panics(line in proptest::collection::vec(any::<u8>(), 0..200), text in "[-drwx0-9 :a-zA-Z,<>=;]{0,80}") {
            for line in [line.as_slice(), text.as_bytes()] {
                let _ = (parse_mlsd(line), parse_list(line));
                let _ = parse_list(&[b"-rw-r--r-- 1 a b 1 ", line].concat());
            }
        }
    }
}
