//! The meta protocol as bytes (memcached's `protocol.txt`, "Meta Commands").
//!
//! ```text
//!  mg NAME v O<n>\r\n                        VA <bytes> O<n>\r\n<data>\r\n, or EN\r\n
//!  ms NAME <bytes> T<seconds> O<n>\r\n<data>\r\n    HD O<n>\r\n, NS, EX or NF O<n>\r\n
//!  md NAME O<n>\r\n                          HD O<n>\r\n or NF O<n>\r\n
//! ```
//!
//! A daemon answers in the order of the requests. `O<n>` comes back in all answers but `EN`, and shows that the two sides still agree.

use std::fmt::Write as _;

use super::LinkError;

/// Longest line of an answer that is waited for, in bytes.
const MAX_LINE: usize = 2048;

/// Largest item that is taken from a daemon, in bytes: a block of 1 MiB in its envelope, with room.
const MAX_ITEM: usize = 4 << 20;

/// One request to a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Get an item.
    Get {
        /// Its name: at most 250 bytes without space or control characters.
        name: Vec<u8>,
    },
    /// Store an item.
    Set {
        /// Its name.
        name: Vec<u8>,
        /// What to store.
        item: Vec<u8>,
        /// Replace, or only if there is none.
        store: Store,
        /// Seconds after which the daemon forgets it; 0 is never.
        seconds: u32,
    },
    /// Remove an item, to save memory.
    Delete {
        /// Its name.
        name: Vec<u8>,
    },
}

/// How an item is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// Whatever stands there.
    Replace,
    /// Only where nothing stands.
    Add,
}

/// What a daemon answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// `VA`: the item.
    Item(Vec<u8>),
    /// `EN` or `NF`: no such item.
    None,
    /// `HD`: done.
    Done,
    /// `NS` or `EX`: not stored, for what stands there.
    Kept,
    /// `SERVER_ERROR`: refused, as when the item is too large or memory is out. The connection goes on.
    Refused(String),
}

/// An answer with the number of its request, where the daemon sends it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The answer.
    pub answer: Answer,
    /// `n` of `O<n>`.
    pub number: Option<u32>,
}

impl Request {
    /// Appends the request to `out`.
    pub fn write(&self, number: u32, out: &mut Vec<u8>) {
        let (command, name) = match self {
            Request::Get { name } => ("mg ", name),
            Request::Set { name, .. } => ("ms ", name),
            Request::Delete { name } => ("md ", name),
        };
        out.extend(command.as_bytes());
        out.extend(name);
        let mut rest = String::new();
        // Writing to a string cannot fail.
        _ = match self {
            Request::Get { .. } => write!(rest, " v O{number}\r\n"),
            Request::Delete { .. } => write!(rest, " O{number}\r\n"),
            Request::Set { item, store, seconds, .. } => {
                let mode = if *store == Store::Add { " ME" } else { "" };
                write!(rest, " {} T{seconds}{mode} O{number}\r\n", item.len())
            }
        };
        out.extend(rest.as_bytes());
        if let Request::Set { item, .. } = self {
            out.extend(item);
            out.extend(b"\r\n");
        }
    }
}

/// The first answer in `bytes` and how many bytes it takes; nothing if more must come. Without input or output, total on any bytes.
pub fn parse_answer(bytes: &[u8]) -> Result<Option<(Reply, usize)>, LinkError> {
    let Some(end) = bytes.iter().take(MAX_LINE).position(|byte| *byte == b'\n') else {
        return if bytes.len() >= MAX_LINE { Err(LinkError::Answer(shown(bytes))) } else { Ok(None) };
    };
    let strange = || LinkError::Answer(shown(&bytes[..end]));
    let line = bytes[..end].strip_suffix(b"\r").ok_or_else(strange)?;
    let line = std::str::from_utf8(line).map_err(|_| strange())?;
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let number = || rest.split(' ').find_map(|flag| flag.strip_prefix('O')?.parse().ok());
    let used = end + 1;
    let answer = match word {
        "VA" => {
            let length = rest.split(' ').next().and_then(|length| length.parse::<usize>().ok()).ok_or_else(strange)?;
            if length > MAX_ITEM {
                return Err(strange());
            }
            let Some(item) = bytes.get(used..used + length + 2) else { return Ok(None) };
            let item = item.strip_suffix(b"\r\n").ok_or_else(strange)?;
            let reply = Reply { answer: Answer::Item(item.to_vec()), number: number() };
            return Ok(Some((reply, used + length + 2)));
        }
        "HD" => Answer::Done,
        "EN" | "NF" => Answer::None,
        "NS" | "EX" => Answer::Kept,
        // After these the daemon and we may not agree where the next request begins.
        "ERROR" | "CLIENT_ERROR" => return Err(strange()),
        "SERVER_ERROR" => Answer::Refused(rest.to_owned()),
        _ => return Err(strange()),
    };
    Ok(Some((Reply { answer, number: number() }, used)))
}

fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(80)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(bytes: &[u8]) -> (Answer, Option<u32>, usize) {
        let (reply, used) = parse_answer(bytes).unwrap().unwrap();
        (reply.answer, reply.number, used)
    }

    #[test]
    fn requests_are_lines_of_the_meta_protocol() {
        let written = |request: Request| {
            let mut out = vec![];
            request.write(7, &mut out);
            String::from_utf8(out).unwrap()
        };
        let name = b"k".to_vec();
        assert_eq!(written(Request::Get { name: name.clone() }), "mg k v O7\r\n");
        assert_eq!(written(Request::Delete { name: name.clone() }), "md k O7\r\n");
        let set = |store| Request::Set { name: name.clone(), item: b"abc".to_vec(), store, seconds: 5 };
        assert_eq!(written(set(Store::Replace)), "ms k 3 T5 O7\r\nabc\r\n");
        assert_eq!(written(set(Store::Add)), "ms k 3 T5 ME O7\r\nabc\r\n");
    }

    #[test]
    fn answers_are_read_one_after_the_other() {
        assert_eq!(parsed(b"VA 3 O4\r\nabc\r\nEN\r\n"), (Answer::Item(b"abc".to_vec()), Some(4), 14));
        assert_eq!(parsed(b"VA 2 O4\r\n\r\n\r\n"), (Answer::Item(b"\r\n".to_vec()), Some(4), 13));
        assert_eq!(parsed(b"EN\r\n"), (Answer::None, None, 4));
        assert_eq!(parsed(b"HD O12\r\n"), (Answer::Done, Some(12), 8));
        assert_eq!(parsed(b"NS O1\r\n").0, Answer::Kept);
        assert_eq!(parsed(b"SERVER_ERROR out of memory\r\n").0, Answer::Refused("out of memory".to_owned()));
    }

    #[test]
    fn half_an_answer_waits_and_no_answer_ends_the_link() {
        let whole = b"VA 3 O4\r\nabc\r\n";
        for end in 0..whole.len() {
            assert_eq!(parse_answer(&whole[..end]).unwrap(), None, "{end}");
        }
        for strange in [
            &b"VA x\r\n"[..],
            b"VA 99999999999\r\n",
            b"VA 1\r\nabc",
            b"HD\n",
            b"CLIENT_ERROR bad\r\n",
            b"?\r\n",
            b"\xFF\r\n",
        ] {
            assert!(parse_answer(strange).is_err(), "{strange:?}");
        }
        assert!(parse_answer(&[b'x'; MAX_LINE]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300), start in 0_usize..5) {
            let start = [&b"VA "[..], b"HD ", b"VA 5 O1\r\n", b"SERVER_ERROR ", b""][start];
            let bytes = [start, &bytes].concat();
            if let Ok(Some((_, used))) = parse_answer(&bytes) {
                prop_assert!(used <= bytes.len() && used > 0);
            }
        }
    }
}
