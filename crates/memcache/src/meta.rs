//! The line of `mg`, `ms`, `md` or `ma`.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::base64;
use crate::limits::{Limits, OPAQUE_BYTES};
use crate::number::{signed_32, unsigned, unsigned_32};
use crate::request::{
    Arithmetic, Direction, Exptime, Meta, MetaVerb, Mode, Operation, Read, Recache, Rejection, Remove, Request, Shown,
    Store,
};
use crate::text::{BAD_FORMAT, Line, Words, announced, is_key, reject};

/// Command, key and flags, with the end of the line as one more: memcached's MFLAG_MAX_OPT_LENGTH.
const MAX_WORDS: usize = 20;
const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";

/// The flags of a line, whatever they mean to its command.
#[derive(Default)]
struct Flags<'a> {
    shown: SmallVec<[Shown<'a>; 8]>,
    key: Option<Vec<u8>>,
    is_base64: bool,
    with_value: bool,
    is_quiet: bool,
    is_silent: bool,
    is_invalid: bool,
    drops_value: bool,
    vivify: Option<Exptime>,
    /// Of `N` and `T` the one that stands last: the time of an item that `N` makes.
    last_time: Option<Exptime>,
    touch: Option<Exptime>,
    recache: Option<Recache>,
    compare: Option<u64>,
    new_cas: Option<u64>,
    client_flags: u32,
    mode: Option<u8>,
    delta: Option<u64>,
    initial: u64,
}

pub(crate) fn line<'a>(words: &Words<'a>, limits: &Limits) -> Line<'a> {
    let verb = match words[0] {
        b"mg" => MetaVerb::Get,
        b"ms" => MetaVerb::Set,
        b"md" => MetaVerb::Delete,
        _ => MetaVerb::Arithmetic,
    };
    let Some(&key) = words.get(1) else { return reject("ERROR") };
    let first_flag = if verb == MetaVerb::Set { 3 } else { 2 };
    let follows = if verb == MetaVerb::Set { words.get(2).map_or(0, |length| announced(length)) } else { 0 };
    let refuse = |line| Line::Rejected(Rejection { line, noreply: false }, follows);
    if !is_key(key) {
        return refuse(BAD_FORMAT);
    }
    if words.len() + 1 > MAX_WORDS {
        let is_get = verb == MetaVerb::Get;
        return refuse(if is_get {
            "CLIENT_ERROR options flags are too long"
        } else {
            "CLIENT_ERROR options flags too long"
        });
    }
    if verb == MetaVerb::Set && follows == 0 {
        return refuse(BAD_FORMAT);
    }
    let flags = match Flags::of(key, &words[first_flag..]) {
        Ok(flags) => flags,
        Err(_) if matches!(verb, MetaVerb::Delete | MetaVerb::Arithmetic) => {
            return refuse("CLIENT_ERROR invalid or duplicate flag");
        }
        Err(line) => return refuse(line),
    };
    if flags.shown.iter().any(|shown| matches!(shown, Shown::Opaque(token) if token.len() > OPAQUE_BYTES)) {
        return refuse("CLIENT_ERROR opaque token too long");
    }
    let operation = match verb {
        MetaVerb::Get => Operation::Read(flags.read()),
        MetaVerb::Set => match flags.store() {
            Some(_) if follows - 2 > limits.value_bytes => Operation::TooLarge,
            Some(store) => Operation::Store(store),
            None => return refuse("CLIENT_ERROR invalid mode for ms M token"),
        },
        MetaVerb::Delete => Operation::Remove(flags.remove()),
        MetaVerb::Arithmetic => match flags.arithmetic() {
            Some(arithmetic) => Operation::Arithmetic(arithmetic),
            None => return refuse("CLIENT_ERROR invalid mode for ma M token"),
        },
    };
    let is_refused = operation == Operation::TooLarge;
    let request = Request::Meta(Meta {
        verb,
        key: flags.key.map_or(Cow::Borrowed(key), Cow::Owned),
        is_base64: flags.is_base64,
        operation,
        shown: flags.shown,
        with_value: flags.with_value,
        is_quiet: flags.is_quiet,
    });
    match verb {
        MetaVerb::Set if is_refused => Line::Refused(request, follows),
        MetaVerb::Set => Line::Store(request, follows - 2),
        _ => Line::Request(request),
    }
}

impl<'a> Flags<'a> {
    /// Reads all flags even behind a bad one: the answer names the last.
    fn of(key: &[u8], words: &[&'a [u8]]) -> Result<Flags<'a>, &'static str> {
        let mut flags = Flags::default();
        let mut seen = [false; 128];
        let mut error = None;
        for &word in words {
            let letter = word[0];
            if letter >= 127 || std::mem::replace(&mut seen[usize::from(letter)], true) {
                return Err("CLIENT_ERROR duplicate flag");
            }
            match flags.take(key, letter, word) {
                Ok(()) => {}
                Err(Bad::Letter) => return Err("CLIENT_ERROR invalid flag"),
                Err(Bad::ClientFlags) => error = error.or(Some(BAD_FORMAT)),
                Err(Bad::Token(line)) => error = Some(line),
            }
        }
        error.map_or(Ok(flags), Err)
    }

    fn take(&mut self, key: &[u8], letter: u8, word: &'a [u8]) -> Result<(), Bad> {
        let token = &word[1..];
        let time = || signed_32(token).map(Exptime).ok_or(Bad::Token(BAD_TOKEN));
        let number = |line| unsigned(token).ok_or(Bad::Token(line));
        match letter {
            b'b' => {
                self.is_base64 = true;
                self.key = Some(base64::decode(key).ok_or(Bad::Token("CLIENT_ERROR error decoding key"))?);
            }
            b'N' => {
                self.vivify = Some(time()?);
                self.last_time = self.vivify;
            }
            b'T' => {
                self.touch = Some(time()?);
                self.last_time = self.touch;
            }
            b'R' => self.recache = Some(Recache { remaining: time()?, is_after_touch: self.touch.is_some() }),
            b'O' => self.shown.push(Shown::Opaque(word)),
            b'k' => self.shown.push(Shown::Key),
            b's' => self.shown.push(Shown::Size),
            b't' => {
                let (standing, made) = (self.touch, self.last_time);
                self.shown.push(Shown::Remaining { standing, made });
            }
            b'c' => self.shown.push(Shown::Cas),
            b'f' => self.shown.push(Shown::Flags),
            b'l' => self.shown.push(Shown::Idle),
            b'h' => self.shown.push(Shown::Hit),
            b'v' => self.with_value = true,
            b'u' => self.is_silent = true,
            b'q' => self.is_quiet = true,
            b'I' => self.is_invalid = true,
            b'x' => self.drops_value = true,
            b'F' => self.client_flags = unsigned_32(token).ok_or(Bad::ClientFlags)?,
            b'C' => self.compare = Some(number(BAD_TOKEN)?),
            b'E' => self.new_cas = Some(number(BAD_TOKEN)?),
            b'J' => self.initial = number("CLIENT_ERROR invalid numeric initial value")?,
            b'D' => self.delta = Some(number("CLIENT_ERROR invalid numeric delta value")?),
            b'M' => match token {
                [mode] => self.mode = Some(*mode),
                _ => return Err(Bad::Token("CLIENT_ERROR incorrect length for M token")),
            },
            // For routers between client and server.
            b'P' | b'L' => {}
            _ => return Err(Bad::Letter),
        }
        Ok(())
    }

    fn read(&self) -> Read {
        Read {
            touch: self.touch,
            vivify: self.vivify.and(self.last_time),
            recache: self.recache,
            may_win: true,
            is_silent: self.is_silent,
            new_cas: self.new_cas,
        }
    }

    fn store(&self) -> Option<Store<'a>> {
        let mode = match self.mode {
            None | Some(b'S') if self.compare.is_some() => Mode::Cas,
            None | Some(b'S') => Mode::Set,
            Some(b'R') if self.compare.is_some() => Mode::Cas,
            Some(b'R') => Mode::Replace,
            Some(b'E') => Mode::Add,
            Some(b'A') => Mode::Append,
            Some(b'P') => Mode::Prepend,
            Some(_) => return None,
        };
        Some(Store {
            mode,
            flags: self.client_flags,
            exptime: self.touch.unwrap_or_default(),
            value: &[],
            compare: self.compare,
            is_stale_allowed: self.is_invalid && mode == Mode::Cas,
            new_cas: self.new_cas,
            vivify: self.vivify,
        })
    }

    fn remove(&self) -> Remove {
        Remove {
            compare: self.compare,
            is_invalidation: self.is_invalid,
            exptime: self.touch,
            drops_value: self.drops_value,
            flags: self.client_flags,
            new_cas: self.new_cas,
        }
    }

    fn arithmetic(&self) -> Option<Arithmetic> {
        let direction = match self.mode {
            None | Some(b'I' | b'+') => Direction::Up,
            Some(b'D' | b'-') => Direction::Down,
            Some(_) => return None,
        };
        Some(Arithmetic {
            direction,
            delta: self.delta.unwrap_or(1),
            compare: self.compare.unwrap_or(0),
            vivify: self.vivify.and(self.last_time),
            initial: self.initial,
            touch: self.touch,
            new_cas: self.new_cas,
        })
    }
}

/// What is wrong with a flag.
enum Bad {
    Letter,
    ClientFlags,
    Token(&'static str),
}
