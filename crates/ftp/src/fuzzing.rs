//! What strangers write, for the fuzz targets: a client's commands, and a server's replies and listings.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use verbena_terms::Time;
use verbena_transfer::{Facts, FileError, Kind, VirtualPath};

use crate::blocks::{BlockReader, Gathered, Step};
use crate::dialogue::read_reply;
use crate::file_work::FileWork;
use crate::listed::{Listed, ListedKind, parse_list, parse_mlsd};
use crate::listing::{FactSet, Form};
use crate::machine::{Action, Machine, Outcome, What};
use crate::rights::{Login, Rights};
use crate::settings::{Settings, Tls};

/// Sends `input` to a machine whose work all fails but logins and ports. Returns the replies.
///
/// # Panics
/// If a path of an action could lead outside, or a reply is no line of FTP.
pub fn ftp_commands(input: &[u8]) -> usize {
    let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let settings = Settings {
        peer: host,
        local: host,
        login_timeout: Duration::from_secs(60),
        idle_timeout: Duration::from_secs(60),
        hosts: Vec::new(),
        tls: Tls::Allowed,
    };
    let now = Time::default();
    let mut machine = Machine::new(settings, now);
    machine.input(b"USER a\r\nPASS b\r\n", now);
    let (mut replies, mut pieces) = (0, input.chunks(7));
    loop {
        let actions = machine.actions();
        if actions.is_empty() {
            match pieces.next() {
                Some(piece) if machine.wants_input() => machine.input(piece, now),
                _ => return replies,
            }
        }
        for action in actions {
            match action {
                Action::Send(bytes) => replies += check_replies(&bytes),
                Action::Login { .. } => {
                    let login = Login { rights: Rights::ALL, ..Login::default() };
                    machine.outcome(Outcome::Login(Ok(login)), now);
                }
                Action::Listen => machine.outcome(Outcome::Listening(Some((host, 4000).into())), now),
                Action::ListenSession { .. } => machine.outcome(Outcome::Session(Vec::new()), now),
                Action::File(work) => {
                    check_paths(&work);
                    machine.outcome(Outcome::File(Err(FileError::NotFound)), now);
                }
                Action::Transfer(transfer) => {
                    let (What::Retrieve { path, .. }
                    | What::Store { path, .. }
                    | What::SendTree { path }
                    | What::ReceiveTree { path }
                    | What::List { path, .. }) = &transfer.what;
                    check_path(path);
                    machine.outcome(Outcome::Ended(Err(FileError::NotFound.into())), now);
                }
                Action::Progress => machine.outcome(Outcome::Progress(0), now),
                Action::StartTls => machine.secured(now),
                Action::Close => return replies,
                Action::Abort | Action::ConnectSession { .. } | Action::CloseListener => {}
            }
        }
    }
}

fn check_path(path: &VirtualPath) {
    let relative = path.relative();
    assert!(!relative.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')), "a path has a line end");
    let mut parts = relative.split(|byte| *byte == b'/');
    assert!(relative == b"." || parts.all(|part| !matches!(part, b"" | b"." | b"..")), "a path leads elsewhere");
}

fn check_paths(work: &FileWork) {
    match work {
        FileWork::Enter(path)
        | FileWork::Facts(path)
        | FileWork::Exists(path)
        | FileWork::Remove(path)
        | FileWork::RemoveDirectory(path)
        | FileWork::MakeDirectory(path)
        | FileWork::SetModified(path, _)
        | FileWork::SetMode(path, _)
        | FileWork::Hash(_, path, ..)
        | FileWork::Lines(path) => check_path(path),
        FileWork::Rename(from, to) => {
            check_path(from);
            check_path(to);
        }
    }
}

/// All bytes are replies, as the client reads them.
fn check_replies(mut bytes: &[u8]) -> usize {
    let mut replies = 0;
    while !bytes.is_empty() {
        let reply = read_reply(&mut bytes);
        assert!(reply.is_ok_and(|reply| (100..600).contains(&reply.code)), "no reply");
        replies += 1;
    }
    replies
}

/// Reads `input` as the blocks of several connections: the first byte of each piece says by which it comes, the second how
/// many bytes come at once. Returns the blocks and ends.
///
/// # Panics
/// If a file is whole that has a byte which did not come, or bytes lie behind the largest offset.
pub fn ftp_blocks(input: &[u8]) -> usize {
    let (mut readers, mut rest, mut steps) = (HashMap::new(), input, 0);
    let (mut gathered, mut written) = (Gathered::default(), Vec::new());
    while let [connection, length, more @ ..] = rest {
        let (piece, behind) = more.split_at(usize::from(*length).min(more.len()));
        rest = behind;
        let reader = readers.entry(connection % 4).or_insert_with(BlockReader::default);
        let mut piece = piece;
        while !piece.is_empty() {
            let (bytes, left) = piece.split_at(reader.wants().min(piece.len()));
            piece = left;
            let Ok(step) = reader.take(bytes) else { return steps };
            if let Some(offset) = step.data {
                assert!(offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= i64::MAX as u64));
                written.push((offset, offset + bytes.len() as u64));
                if gathered.written(offset, bytes.len()).is_err() {
                    return steps;
                }
            }
            if gathered.said(step).is_err() {
                return steps;
            }
            steps += usize::from(step != Step::default());
        }
    }
    if let Some(size) = gathered.size() {
        // Sorted, each begins where bytes are already.
        written.sort_unstable();
        let reached = written.iter().try_fold(0, |end, (from, to)| (*from <= end).then(|| end.max(*to)));
        assert_eq!(reached, Some(size), "a file is whole, and bytes are missing");
    }
    steps
}

/// Reads `input` as lines of listings and as replies. Returns the entries.
///
/// # Panics
/// If an entry has no name, or the server's own line of it reads differently.
pub fn ftp_listing(input: &[u8]) -> usize {
    let _ = read_reply(&mut &*input);
    let mut entries = 0;
    for line in input.split(|byte| *byte == b'\n') {
        for listed in parse_mlsd(line).into_iter().chain(parse_list(line)) {
            entries += 1;
            check_entry(&listed);
        }
    }
    entries
}

/// Writes an entry as the server does, and reads it again.
fn check_entry(listed: &Listed) {
    assert!(!matches!(listed.name.as_slice(), b"" | b"." | b".."), "an entry has no name");
    let kind = match listed.kind {
        ListedKind::File => Kind::File,
        ListedKind::Directory => Kind::Directory,
        ListedKind::Link | ListedKind::Other => return,
    };
    let size = listed.size.unwrap_or(0);
    let facts = Facts { kind, size, modified: 1_000_000_000, mode: 0o644, unique: (1, 2), links: 1 };
    let mut line = Vec::new();
    Form::Facts(FactSet::default()).write(&listed.name, &facts, Rights::READ, 0, &mut line);
    if let Some(line) = line.strip_suffix(b"\r\n") {
        let again = parse_mlsd(line);
        assert!(
            again.as_ref().is_some_and(|again| again.name == listed.name && again.kind == listed.kind),
            "{listed:?} is read as {again:?}"
        );
    }
    line.clear();
    Form::Long.write(&listed.name, &facts, Rights::READ, 0, &mut line);
    let shown: Vec<u8> = crate::listing::printable(&listed.name).collect();
    let again = line.strip_suffix(b"\r\n").and_then(parse_list);
    assert!(
        again.as_ref().is_some_and(|again| again.name == shown && again.kind == listed.kind),
        "{listed:?} is shown as {again:?}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::Header;
    use proptest::prelude::*;
    use verbena_terms::testing::corpus;

    #[test]
    fn the_corpus_holds() {
        let replies: usize = corpus("ftp_commands").iter().map(|input| ftp_commands(input)).sum();
        let blocks: usize = corpus("ftp_blocks").iter().map(|input| ftp_blocks(input)).sum();
        assert!(blocks > 20, "{blocks}");
        let entries: usize = corpus("ftp_listing").iter().map(|input| ftp_listing(input)).sum();
        assert!(replies > 50 && entries > 5, "{replies} {entries}");
    }

    proptest! {
        #[test]
        fn commands_hold(input in "((RETR|STOR|CWD|RNFR|RNTO|MKD|EPSV|PORT|REST|SITE CHMOD|NLST|TPRT|AUTH|HASH) [ -~\u{0}\u{ff}]{0,12}\r?\n){0,12}") {
            ftp_commands(input.as_bytes());
        }

        #[test]
        fn blocks_hold(pieces in proptest::collection::vec((0u8..4, prop_oneof![
            (0u64..9, 0u64..9).prop_map(|(offset, count)| [&Header::data(offset, count).written()[..], &vec![7; count as usize]].concat()),
            (0u64..6).prop_map(|count| Header::end(Some(count)).written().to_vec()),
            Just(Header::end(None).written().to_vec()),
            proptest::collection::vec(any::<u8>(), 0..20),
        ]), 0..12)) {
            let pieces = pieces.iter().flat_map(|(connection, piece)| [&[*connection, piece.len() as u8][..], piece].concat());
            ftp_blocks(&pieces.collect::<Vec<u8>>());
        }

        #[test]
        fn listings_hold(name in proptest::collection::vec(any::<u8>(), 1..40), head in "(-rw-r--r-- 1 a b 12 Jan  2 12:34|type=file;size=1;|01-02-26  03:04PM  <DIR> ) ?") {
            ftp_listing(&[head.as_bytes(), b" ", &name].concat());
        }
    }
}
