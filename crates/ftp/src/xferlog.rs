//! The transfer log, in the format of xferlog(5) that log analysers read.

use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::date::Date;

/// One transfer.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    pub lasted: Duration,
    pub peer: IpAddr,
    pub bytes: u64,
    pub path: &'a [u8],
    pub is_ascii: bool,
    pub is_upload: bool,
    pub user: &'a [u8],
    pub is_anonymous: bool,
    pub is_complete: bool,
}

/// An open log. Lines are appended by one write each.
#[derive(Debug)]
pub(crate) struct TransferLog {
    file: Mutex<File>,
}

impl TransferLog {
    pub(crate) fn open(path: &Path) -> std::io::Result<TransferLog> {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path)?;
        Ok(TransferLog { file: Mutex::new(file) })
    }

    pub(crate) fn write(&self, record: &Record<'_>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
        let line = line(record, now);
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Err(error) = file.write_all(&line) {
            tracing::warn!(%error, "the transfer log cannot be written");
        }
    }
}

/// `date seconds host bytes path type _ direction mode user ftp 0 * completion`.
fn line(record: &Record<'_>, now: i64) -> Vec<u8> {
    let Record { lasted, peer, bytes, is_ascii, is_upload, is_anonymous, is_complete, .. } = *record;
    // A blank in a name would shift the fields, a line feed forge a line.
    let word = |text: &[u8]| -> Vec<u8> {
        text.iter().map(|byte| if *byte <= b' ' || *byte == 0x7F { b'_' } else { *byte }).collect()
    };
    let mut line = format!("{} {} {} {bytes} ", Date::of(now).log(), lasted.as_secs().max(1), peer.to_canonical());
    let letters = [("b", "a"), ("o", "i"), ("r", "a"), ("i", "c")];
    let chosen = [is_ascii, is_upload, is_anonymous, is_complete];
    let [kind, direction, mode, end] =
        std::array::from_fn(|index| if chosen[index] { letters[index].1 } else { letters[index].0 });
    let mut bytes = std::mem::take(&mut line).into_bytes();
    bytes.extend_from_slice(&word(record.path));
    bytes.extend_from_slice(format!(" {kind} _ {direction} {mode} ").as_bytes());
    bytes.extend_from_slice(&word(record.user));
    bytes.extend_from_slice(format!(" ftp 0 * {end}\n").as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_fields_whatever_a_name_holds() {
        let record = Record {
            lasted: Duration::from_millis(10),
            peer: "::ffff:192.0.2.1".parse().unwrap(),
            bytes: 5,
            path: b"/a b\nc",
            is_ascii: false,
            is_upload: true,
            user: b"al ice",
            is_anonymous: false,
            is_complete: true,
        };
        let text = String::from_utf8(line(&record, 0)).unwrap();
        assert_eq!(text, "Thu Jan  1 00:00:00 1970 1 192.0.2.1 5 /a_b_c b _ i r al_ice ftp 0 * c\n");
    }
}
