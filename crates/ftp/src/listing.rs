//! Lines of listings: `LIST` as `ls -l` writes them, `NLST`, and facts (RFC 3659, section 7).

use crate::date::Date;
use crate::rights::Rights;
use verbena_transfer::{Facts, Kind};

/// How a listing is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `LIST`.
    Long,
    /// `NLST`.
    Names,
    /// `MLSD`, with the facts that the client chose.
    Facts(FactSet),
}

/// The facts of `MLSD` and `MLST`, in the order in which they are written.
const FACTS: [&str; 6] = ["type", "size", "modify", "perm", "unique", "UNIX.mode"];

/// Which facts a client wants (`OPTS MLST`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FactSet(u8);

impl Default for FactSet {
    fn default() -> FactSet {
        FactSet((1 << FACTS.len()) - 1)
    }
}

impl FactSet {
    /// The set that the argument of `OPTS MLST` names; unknown facts are passed over.
    pub fn parse(names: &[u8]) -> FactSet {
        let is_named =
            |fact: &str| names.split(|byte| *byte == b';').any(|name| name.eq_ignore_ascii_case(fact.as_bytes()));
        FactSet(FACTS.iter().enumerate().filter(|(_, fact)| is_named(fact)).fold(0, |set, (bit, _)| set | 1 << bit))
    }

    fn has(self, bit: usize) -> bool {
        self.0 & (1 << bit) != 0
    }

    /// The facts with a semicolon behind each.
    pub fn names(self) -> String {
        let chosen = FACTS.iter().enumerate().filter(|(bit, _)| self.has(*bit));
        chosen.map(|(_, fact)| format!("{fact};")).collect()
    }

    /// The line of `FEAT`: every fact, a star behind those that are chosen.
    pub fn feature(self) -> String {
        let star = |bit| if self.has(bit) { "*" } else { "" };
        FACTS.iter().enumerate().map(|(bit, fact)| format!("{fact}{};", star(bit))).collect()
    }
}

impl Form {
    /// Appends the line of one entry, with CR LF. A name that a line cannot hold (one with CR or LF) is left out, or shown
    /// with question marks where people read it.
    pub fn write(self, name: &[u8], facts: &Facts, rights: Rights, now: i64, out: &mut Vec<u8>) {
        let is_one_line = !name.iter().any(|byte| matches!(byte, b'\r' | b'\n'));
        match self {
            Form::Long => write_long(name, facts, now, out),
            Form::Names if is_one_line => out.extend_from_slice(name),
            Form::Facts(set) if is_one_line => {
                write_facts(set, facts, rights, out);
                out.push(b' ');
                out.extend_from_slice(name);
            }
            Form::Names | Form::Facts(_) => return,
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// Bytes of a name without those that end or move a line.
pub(crate) fn printable(text: &[u8]) -> impl Iterator<Item = u8> + '_ {
    text.iter().map(|byte| if *byte < 0x20 || *byte == 0x7F { b'?' } else { *byte })
}

fn write_long(name: &[u8], facts: &Facts, now: i64, out: &mut Vec<u8>) {
    out.push(match facts.kind {
        Kind::Directory => b'd',
        Kind::Link(_) => b'l',
        Kind::File | Kind::Other => b'-',
    });
    for bit in (0..9).rev() {
        out.push(if facts.mode >> bit & 1 == 1 { b"xwr"[bit % 3] } else { b'-' });
    }
    let date = Date::of(facts.modified).ls(now);
    out.extend_from_slice(format!(" {:3} ftp      ftp      {:>13} {date} ", facts.links, facts.size).as_bytes());
    out.extend(printable(name));
    if let Kind::Link(target) = &facts.kind {
        out.extend_from_slice(b" -> ");
        out.extend(printable(target));
    }
}

/// Appends the facts, each with a semicolon behind it.
pub(crate) fn write_facts(set: FactSet, facts: &Facts, rights: Rights, out: &mut Vec<u8>) {
    let mut fact = |bit: usize, value: &[u8]| {
        if set.has(bit) {
            out.extend_from_slice(FACTS[bit].as_bytes());
            out.push(b'=');
            out.extend_from_slice(value);
            out.push(b';');
        }
    };
    match &facts.kind {
        Kind::File => fact(0, b"file"),
        Kind::Directory => fact(0, b"dir"),
        Kind::Link(target) => {
            let is_plain = target.iter().all(|byte| *byte >= 0x20 && *byte != b';' && *byte != 0x7F);
            let target = if is_plain { target.as_slice() } else { b"" };
            fact(0, &[b"OS.unix=slink:", target].concat());
        }
        Kind::Other => fact(0, b"OS.unix=other"),
    }
    if facts.kind == Kind::File {
        fact(1, facts.size.to_string().as_bytes());
    }
    fact(2, Date::of(facts.modified).compact().as_bytes());
    fact(3, permissions(&facts.kind, rights).as_bytes());
    fact(4, format!("{:x}g{:x}", facts.unique.0, facts.unique.1).as_bytes());
    fact(5, format!("{:04o}", facts.mode & 0o7777).as_bytes());
}

/// What the user may do (RFC 3659, section 7.5.5).
fn permissions(kind: &Kind, rights: Rights) -> String {
    let mut letters = String::new();
    let mut add = |is_allowed: bool, more: &str| {
        if is_allowed {
            letters.push_str(more);
        }
    };
    match kind {
        Kind::Directory => {
            add(true, "el");
            add(rights.write, "cm");
            add(rights.delete, "dfp");
        }
        Kind::File => {
            add(rights.read, "r");
            add(rights.write, "aw");
            add(rights.delete, "df");
        }
        Kind::Link(_) | Kind::Other => add(rights.delete, "df"),
    }
    letters
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(form: Form, name: &[u8], kind: Kind) -> String {
        let facts = Facts { kind, size: 5_368_709_120, modified: 0, mode: 0o640, unique: (1, 255), links: 1 };
        let mut out = Vec::new();
        form.write(name, &facts, Rights::READ, 2_000_000_000, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_form_has_its_line() {
        let long = line(Form::Long, b"a b", Kind::File);
        assert_eq!(long, "-rw-r-----   1 ftp      ftp         5368709120 Jan  1  1970 a b\r\n");
        assert!(line(Form::Long, b"a", Kind::Link(b"b\n".to_vec())).ends_with(" a -> b?\r\n"));
        let all = Form::Facts(FactSet::default());
        let facts = line(all, b" a", Kind::File);
        assert_eq!(facts, "type=file;size=5368709120;modify=19700101000000;perm=r;unique=1gff;UNIX.mode=0640;  a\r\n");
        assert!(line(all, b"a", Kind::Link(b"b;type=dir".to_vec())).starts_with("type=OS.unix=slink:;modify"));
    }

    #[test]
    fn a_name_of_two_lines_forges_none() {
        assert_eq!(line(Form::Names, b"a\nb", Kind::File), "");
        assert_eq!(line(Form::Facts(FactSet::default()), b"a\r\nb", Kind::File), "");
        assert!(line(Form::Long, b"a\r\nb", Kind::File).ends_with(" a??b\r\n"));
    }

    #[test]
    fn facts_are_chosen_by_name() {
        assert_eq!(FactSet::parse(b"Size;x;unix.mode;").names(), "size;UNIX.mode;");
        assert_eq!(FactSet::parse(b"").feature(), "type;size;modify;perm;unique;UNIX.mode;");
    }
}
