//! Copies of pages that a program keeps itself, and its writes: what the proxy does in its own process, for a cache that stands elsewhere.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use verbena_ipc::Connection;
use verbena_terms::{BootClock, Clock, Incarnation, Time};

use crate::error::{Error, Result};
use crate::helper::connect_to;
use crate::page_wire::{PageAnswer, PageRequest, PageWords, Touches};
use crate::socket::Socket;
use crate::wire::{Answer, Request};
use crate::{Outcome, Scope};

/// How long a write may take to begin or to end: longer than the helper's own deadline, so that it is the helper that says what is wrong.
const WRITE: Duration = Duration::from_secs(10);

/// A program's connection for its copies of pages. For one thread at a time; other threads connect for themselves.
///
/// A copy may be served if [`words`](Self::words), read after the request for it arrived, are those of its [`Stamp`] (rule P1). An error means: use
/// no copy, store none, forward no write. Dropped, or when the program ends in whatever way, the outcome of each write that has not ended is unknown (rule P6).
pub struct Pages {
    connection: Connection,
    patience: Duration,
    /// A child after a fork has the same memory, in which both would write.
    maker: u32,
}

/// What a copy was stored under. Its text is kept within the copy, never beside it (rule V1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    page: u64,
    home: Incarnation,
    word: u64,
    everything: u64,
    /// Of a copy that depends on everything (rule P4).
    clock: Option<u64>,
    /// When the lifetime is over that the application set.
    expires: Option<Time>,
    /// Whether it is for requests with credentials as well.
    is_shared: bool,
}

/// What the helper says that an answer depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Depends(Option<Vec<u64>>);

impl Pages {
    /// Connects to the helper at `socket`. A look, and what is asked about an answer, waits at most `patience`.
    ///
    /// # Errors
    /// As [`Helper::connect`](crate::Helper::connect).
    pub fn connect(socket: &Socket, patience: Duration) -> Result<Pages> {
        Ok(Pages { connection: connect_to(socket, patience)?, patience, maker: std::process::id() })
    }

    /// The words of the page that clients ask for by this target (path and query) at this host.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the node has no lease, or the words cannot be read.
    pub fn words(&mut self, host: &str, target: &str) -> Result<PageWords> {
        let request = PageRequest::Look { host: host.to_owned(), target: target.to_owned() };
        match self.ask(request, self.patience)? {
            PageAnswer::Looked(words) => Ok(words),
            other => Err(unexpected(&other)),
        }
    }

    /// What an answer of [`words`](Self::words)' page with these fields depends on: what they name, and by what it is purged with others. Only those that name
    /// dependencies matter.
    ///
    /// # Errors
    /// If the helper does not answer.
    pub fn depends(&mut self, host: &str, target: &str, fields: Vec<(String, Vec<u8>)>) -> Result<Depends> {
        let asked = PageRequest::Depends { host: host.to_owned(), target: target.to_owned(), fields };
        // Longer than a message: as with all that is too much, everything (rule P4).
        if Request::Page(asked.clone()).encode().len() > self.connection.longest_request() {
            return Ok(Depends(None));
        }
        match self.ask(asked, self.patience)? {
            PageAnswer::Depends(set) => Ok(Depends(set)),
            other => Err(unexpected(&other)),
        }
    }

    /// Asks the page's home whether an answer may be stored under [`Stamp::new`] of the same words (rule P2). The whole answer must be here.
    ///
    /// # Errors
    /// [`Error::Refused`]: store nothing. Also if the page depended on other things before: its word has moved by that, and the next answer can be stored.
    pub fn register(&mut self, words: &PageWords, depends: &Depends) -> Result<()> {
        let request = PageRequest::Register { words: *words, dependencies: depends.0.clone() };
        match self.ask(request, self.patience)? {
            PageAnswer::Registered(Ok(word)) if word == words.word => Ok(()),
            PageAnswer::Registered(Ok(_)) => Err(Error::Refused("the page depended on other things before".into())),
            PageAnswer::Registered(Err(why)) => Err(Error::Refused(why)),
            other => Err(unexpected(&other)),
        }
    }

    /// Begins a write. When it is here, and not before, may the write be forwarded (rule P3). Gives what it is called.
    ///
    /// # Errors
    /// Forward nothing then, and answer 503.
    pub fn begin(&mut self, touched: &Scope) -> Result<u64> {
        let touched = match touched {
            scope if scope.names().is_empty() => Touches::Everything,
            scope => Touches::Names(scope.names().iter().map(|name| name.clone().into_bytes()).collect()),
        };
        match self.ask(PageRequest::Begin { touched }, WRITE)? {
            PageAnswer::Begun { update } => Ok(update),
            other => Err(unexpected(&other)),
        }
    }

    /// Ends it, after the whole answer was read. `Ok`: the client may get the end of it.
    ///
    /// # Errors
    /// After [`Outcome::Done`]: close the client's connection without the end of the answer (rule P7).
    pub fn end(&mut self, update: u64, outcome: Outcome) -> Result<()> {
        match self.ask(PageRequest::End { update, outcome }, WRITE)? {
            PageAnswer::Ended { acknowledge: false } if outcome == Outcome::Done => Err(Error::Unconfirmed),
            PageAnswer::Ended { .. } => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn ask(&mut self, asked: PageRequest, patience: Duration) -> Result<PageAnswer> {
        if self.maker != std::process::id() {
            return Err(Error::Forked { maker: self.maker });
        }
        let answer = self.connection.call(&Request::Page(asked).encode(), BootClock.now() + patience)?;
        match Answer::decode(&answer)? {
            Answer::Page(PageAnswer::Unavailable(why)) => Err(Error::Unavailable(why)),
            Answer::Page(answer) => Ok(answer),
            Answer::Refused(why) => Err(Error::Refused(why)),
            _ => Err(Error::Malformed("another question's".into())),
        }
    }
}

impl Stamp {
    /// Of an answer that was asked for after these words were read.
    pub fn new(words: &PageWords, depends: &Depends, expires: Option<Time>, is_shared: bool) -> Stamp {
        let clock = depends.0.is_none().then_some(words.clock);
        let PageWords { page, home, word, everything, .. } = *words;
        Stamp { page, home, word, everything, clock, expires, is_shared }
    }

    /// Whether a copy with this stamp is current at the moment in which the words were read, and its lifetime is not over.
    pub fn is_current(&self, words: &PageWords, now: Time) -> bool {
        !words.is_busy()
            && (self.page, self.home, self.word, self.everything)
                == (words.page, words.home, words.word, words.everything)
            && self.clock.is_none_or(|clock| clock == words.clock)
            && self.expires.is_none_or(|expires| now < expires)
    }

    /// Whether it is for requests with credentials as well.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }
}

/// `PAGE.HOME.WORD.EVERYTHING.CLOCK.EXPIRES.SHARED` in hexadecimal, with `-` for what is not there.
impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{:x}.{:x}.{:x}", self.page, self.home.to_word(), self.word, self.everything)?;
        for optional in [self.clock, self.expires.map(Time::nanos)] {
            match optional {
                Some(number) => write!(f, ".{number:x}")?,
                None => f.write_str(".-")?,
            }
        }
        write!(f, ".{}", u8::from(self.is_shared))
    }
}

impl FromStr for Stamp {
    type Err = Error;

    fn from_str(text: &str) -> Result<Stamp> {
        let malformed = || Error::Malformed(format!("{text:?} is no stamp"));
        let number = |part: &str| u64::from_str_radix(part, 16).map_err(|_| malformed());
        let optional = |part: &str| if part == "-" { Ok(None) } else { number(part).map(Some) };
        let parts: Vec<&str> = text.split('.').collect();
        let [page, home, word, everything, clock, expires, is_shared] = parts[..] else { return Err(malformed()) };
        Ok(Stamp {
            page: number(page)?,
            home: Incarnation::from_word(number(home)?),
            word: number(word)?,
            everything: number(everything)?,
            clock: optional(clock)?,
            expires: optional(expires)?.map(Time::from_nanos),
            is_shared: number(is_shared)? == 1,
        })
    }
}

fn unexpected(answer: &PageAnswer) -> Error {
    Error::Malformed(format!("another question's: {answer:?}"))
}

#[cfg(test)]
mod tests {
    use verbena_terms::ViewNumber;

    use super::*;

    const NOW: Time = Time::from_nanos(50);

    fn words() -> PageWords {
        let home = Incarnation::new(2, 7);
        PageWords { page: u64::MAX, view: ViewNumber(3), home, word: 10, everything: 4, clock: 9 }
    }

    #[test]
    fn a_stamp_is_its_text() {
        for (depends, expires, shared) in [(None, None, true), (Some(vec![1]), Some(NOW), false)] {
            let stamp = Stamp::new(&words(), &Depends(depends), expires, shared);
            assert_eq!(stamp.to_string().parse::<Stamp>().unwrap(), stamp);
        }
        for text in ["", "1.2.3", "1.2.3.4.5.6.7.8", "1.2.3.x.-.-.0", "-.2.3.4.-.-.0"] {
            assert!(text.parse::<Stamp>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_copy_is_current_under_the_words_that_it_was_stored_under_and_no_others() {
        let on_everything = Stamp::new(&words(), &Depends(None), None, false);
        let on_names = Stamp::new(&words(), &Depends(Some(vec![1])), Some(Time::from_nanos(51)), false);
        for stamp in [on_everything, on_names] {
            assert!(stamp.is_current(&words(), NOW));
            let others = [
                PageWords { page: 1, ..words() },
                PageWords { home: Incarnation::new(2, 8), ..words() },
                PageWords { word: 12, ..words() },
                PageWords { word: 11, ..words() },
                PageWords { everything: 6, ..words() },
                PageWords { everything: 5, ..words() },
            ];
            assert!(others.iter().all(|words| !stamp.is_current(words, NOW)));
        }
        let moved = PageWords { clock: 10, ..words() };
        assert!(on_names.is_current(&moved, NOW) && !on_everything.is_current(&moved, NOW));
        assert!(!on_names.is_current(&words(), Time::from_nanos(51)), "its lifetime is over");
        let busy = PageWords { word: 11, ..words() };
        assert!(!Stamp::new(&busy, &Depends(None), None, false).is_current(&busy, NOW), "an update was open");
    }
}
