//! Paths as clients see them: absolute below the user's root, without `.`, `..` and empty components.
//!
//! A path is only a name here. What it leads to is decided by the kernel (rule T16), when [`crate::Root`] opens it.

/// An absolute path below the user's root. Never holds NUL, CR or LF.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VirtualPath {
    components: Vec<Vec<u8>>,
}

/// Names that no client sees or opens: parts of files that are on their way (rule T5).
const HIDDEN: &[u8] = b".~verbena.";

/// Whether a name belongs to us and not to clients.
pub(crate) fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(HIDDEN)
}

/// The names of the record and of a part of a target, which both belong to its name.
pub(crate) fn record_name(target: &[u8]) -> Vec<u8> {
    [HIDDEN, &digits(target), b".record"].concat()
}

/// The name of the part with this random number.
pub(crate) fn owned_part_name(target: &[u8], part: u64) -> Vec<u8> {
    [HIDDEN, &digits(target), format!(".{part:016x}.part").as_bytes()].concat()
}

/// The name of the part with this number of a machine that is written from its beginning to its end by one upload.
pub(crate) fn stored_part_name(target: &[u8], machine: u32, number: u32) -> Vec<u8> {
    [HIDDEN, &digits(target), format!(".{machine:08x}-{number}.part").as_bytes()].concat()
}

/// Sixteen digits for a name.
fn digits(target: &[u8]) -> Vec<u8> {
    blake3::hash(target).to_hex().as_bytes()[..16].to_vec()
}

/// The name of a part beside a target, from random bits.
pub(crate) fn part_name(random: u64) -> Vec<u8> {
    [HIDDEN, format!("{random:016x}.part").as_bytes()].concat()
}

impl VirtualPath {
    /// The user's root.
    pub fn root() -> VirtualPath {
        VirtualPath { components: Vec::new() }
    }

    /// The path that `argument` means in this directory: absolute if it begins with a slash. `..` at the root is the
    /// root. `None` if it holds NUL, CR or LF.
    pub fn join(&self, argument: &[u8]) -> Option<VirtualPath> {
        if argument.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')) {
            return None;
        }
        let mut components = if argument.first() == Some(&b'/') { Vec::new() } else { self.components.clone() };
        for component in argument.split(|byte| *byte == b'/') {
            match component {
                b"" | b"." => {}
                b".." => drop(components.pop()),
                name => components.push(name.to_vec()),
            }
        }
        Some(VirtualPath { components })
    }

    /// The path of components below this one, joined by slashes, as another machine names them. `None` for `..`, `.`, an
    /// empty component or a NUL. The empty path is this one.
    pub fn descend(&self, relative: &[u8]) -> Option<VirtualPath> {
        let mut components = self.components.clone();
        if !relative.is_empty() {
            for component in relative.split(|byte| *byte == b'/') {
                if matches!(component, b"" | b"." | b"..") || component.contains(&0) {
                    return None;
                }
                components.push(component.to_vec());
            }
        }
        Some(VirtualPath { components })
    }

    /// The directory that holds this.
    pub fn parent(&self) -> VirtualPath {
        let all_but_last = self.components.len().saturating_sub(1);
        VirtualPath { components: self.components[..all_but_last].to_vec() }
    }

    /// The last component. `None` for the root.
    pub fn name(&self) -> Option<&[u8]> {
        self.components.last().map(Vec::as_slice)
    }

    /// Whether a component has a name that belongs to us.
    pub fn is_hidden(&self) -> bool {
        self.components.iter().any(|name| is_hidden(name))
    }

    /// The path for the kernel, relative to the root's descriptor.
    pub fn relative(&self) -> Vec<u8> {
        if self.components.is_empty() { b".".to_vec() } else { self.components.join(&b'/') }
    }

    /// The path with a slash before each component.
    pub fn display(&self) -> Vec<u8> {
        let mut text = vec![b'/'];
        text.extend_from_slice(&self.components.join(&b'/'));
        text
    }

    /// The path as in a `257` answer: in quotes, quotes inside doubled (RFC 959, appendix II).
    pub fn quoted(&self) -> Vec<u8> {
        let mut text = vec![b'"'];
        for byte in self.display() {
            text.extend_from_slice(if byte == b'"' { b"\"\"" } else { std::slice::from_ref(&byte) });
        }
        text.push(b'"');
        text
    }
}

/// Whether a name has a star or a question mark.
pub fn is_pattern(name: &[u8]) -> bool {
    name.iter().any(|byte| matches!(byte, b'*' | b'?'))
}

/// Whether `name` matches a pattern of `*` and `?`. Takes at most the product of the two lengths.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut star, mut resume) = (0, None, 0);
    let mut index = 0;
    while index < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                (star, resume) = (Some(at), index);
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[index] => {
                at += 1;
                index += 1;
            }
            _ => {
                let Some(star) = star else { return false };
                resume += 1;
                (at, index) = (star + 1, resume);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_argument_leaves_the_root() {
        let home = VirtualPath::root().join(b"/a/b").unwrap();
        for (argument, expected) in [
            (&b"c"[..], &b"/a/b/c"[..]),
            (b"../c", b"/a/c"),
            (b"../../../../c", b"/c"),
            (b"/", b"/"),
            (b"//x//./y/", b"/x/y"),
            (b"..", b"/a"),
            (b" c ", b"/a/b/ c "),
        ] {
            assert_eq!(home.join(argument).unwrap().display(), expected);
        }
        for bad in [&b"a\0b"[..], b"a\rb", b"a\nb"] {
            assert_eq!(home.join(bad), None);
        }
    }

    #[test]
    fn quotes_are_doubled() {
        assert_eq!(VirtualPath::root().join(b"a\"b").unwrap().quoted(), b"\"/a\"\"b\"");
        assert_eq!(VirtualPath::root().relative(), b".");
    }

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            (&b"*"[..], &b""[..], true),
            (b"*.txt", b"a.txt", true),
            (b"*.txt", b"a.txt.gz", false),
            (b"a*b*c", b"aXbYbc", true),
            (b"?", b"", false),
            (b"?b", b"ab", true),
        ] {
            assert_eq!(matches(pattern, name), expected);
        }
        assert!(!matches(&b"*a".repeat(60), &b"a".repeat(59)));
    }
}
