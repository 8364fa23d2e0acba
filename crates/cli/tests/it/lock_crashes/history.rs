//! What was asked of the locks of a cluster and what was answered, as whoever asked wrote it down.
//!
//! Each connection has a file and appends a line to it before and after each call, by one write(2): what a killed process had written stays. The time is CLOCK_BOOTTIME,
//! the same in all processes of a machine. Calls are numbered within their file.
//!
//! | line | says |
//! |---|---|
//! | `ask CALL LOCK MODE AT MOST` | it asks for a lock, and waits for MOST nanoseconds |
//! | `share CALL OF AT` | it lets others read with what call OF gave it |
//! | `got CALL TOKEN AT` | it has it |
//! | `not CALL AT WHY` | it has not |
//! | `held CALL AT` | at that moment it was held still |
//! | `let CALL AT` | it releases it |
//! | `out CALL AT HOW` | the release was answered: `ok`, or why not |

use std::collections::BTreeMap;
use std::path::Path;

/// How a lock was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Reader,
    Writer,
}

/// A lock that was granted, and what is certain of it. Moments are nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub lock: String,
    pub mode: Mode,
    pub token: u64,
    /// It was not held before it was asked for.
    pub asked: u64,
    /// It was held, or had been, when the answer came.
    pub granted: u64,
    /// The last moment at which it was certainly held, if there is any.
    pub until: Option<u64>,
    /// Of a reader that was a writer: its token as such.
    pub was_writer: Option<u64>,
    /// For people.
    pub who: String,
}

/// All that was written down.
#[derive(Debug, Default)]
pub struct History {
    pub holds: Vec<Hold>,
    /// Those of which the release said that they were lost, or that there is no helper any more.
    pub lost: u64,
    pub not_free: u64,
    pub not_in_time: u64,
    /// Other errors, with which connections ended.
    pub errors: u64,
    /// The longest wait for a lock that was granted.
    pub longest_wait: u64,
    /// By how much the call that came back last was later than it had to wait, and which it was.
    pub latest: (u64, String),
    /// Calls that had no answer.
    pub open: Vec<String>,
}

struct Call {
    lock: String,
    mode: Mode,
    asked: u64,
    at_most: u64,
    was_writer: Option<u64>,
    granted: Option<(u64, u64)>,
    until: Option<u64>,
    let_go: Option<u64>,
    is_open: bool,
}

impl History {
    /// All files of a directory.
    pub fn read(directory: &Path) -> History {
        let mut history = History::default();
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let who = path.file_name().unwrap().to_string_lossy().into_owned();
            history.add(&who, &std::fs::read_to_string(&path).unwrap());
        }
        history
    }

    /// What one connection wrote.
    pub fn add(&mut self, who: &str, text: &str) {
        let mut calls = BTreeMap::<u64, Call>::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap_or_else(|_| panic!("{who}: {line}"));
            let nth = number(1);
            match words[0] {
                "ask" => {
                    let mode = if words[3] == "writer" { Mode::Writer } else { Mode::Reader };
                    calls.insert(nth, Call::new(words[2], mode, number(4), number(5)));
                }
                "share" => {
                    let of = &calls[&number(2)];
                    let was_writer = of.granted.map(|(token, _)| token);
                    calls.insert(nth, Call { was_writer, ..Call::new(&of.lock.clone(), Mode::Reader, number(3), 0) });
                }
                kind => {
                    let call = calls.get_mut(&nth).unwrap_or_else(|| panic!("{who}: {line}"));
                    match kind {
                        "got" => {
                            call.granted = Some((number(2), number(3)));
                            self.returned(who, line, number(3), call.asked, call.at_most);
                            self.longest_wait = self.longest_wait.max(number(3) - call.asked);
                        }
                        "not" => {
                            self.returned(who, line, number(2), call.asked, call.at_most);
                            match words[3] {
                                "free" => self.not_free += 1,
                                "in-time" => self.not_in_time += 1,
                                _ => self.errors += 1,
                            }
                        }
                        "held" => call.until = Some(number(2)),
                        "let" => call.let_go = Some(number(2)),
                        "out" => {
                            let let_go = call.let_go.expect("it was let go before that is answered");
                            self.returned(who, line, number(2), let_go, 0);
                            match words[3] {
                                // It was held when the call began.
                                "ok" => call.until = Some(let_go),
                                "lost" => self.lost += 1,
                                _ => {
                                    self.lost += 1;
                                    self.errors += 1;
                                }
                            }
                        }
                        _ => panic!("{who}: {line}"),
                    }
                    call.is_open = kind == "let";
                }
            }
        }
        for (nth, call) in calls {
            if call.is_open {
                self.open.push(format!("{who}: call {nth}, of {}", call.lock));
            }
            if let Some((token, granted)) = call.granted {
                let Call { lock, mode, asked, until, was_writer, .. } = call;
                let who = format!("{who}, call {nth}");
                self.holds.push(Hold { lock, mode, token, asked, granted, until, was_writer, who });
            }
        }
    }

    fn returned(&mut self, who: &str, line: &str, at: u64, asked: u64, at_most: u64) {
        let late = at.saturating_sub(asked + at_most);
        if late > self.latest.0 {
            self.latest = (late, format!("{who}: {line}"));
        }
    }
}

impl Call {
    fn new(lock: &str, mode: Mode, asked: u64, at_most: u64) -> Call {
        let (granted, until, let_go, was_writer) = (None, None, None, None);
        Call { lock: lock.to_owned(), mode, asked, at_most, was_writer, granted, until, let_go, is_open: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_holds() {
        let mut history = History::default();
        history.add(
            "a",
            "ask 1 x writer 10 5\ngot 1 64 12\nheld 1 13\nshare 2 1 14\ngot 2 65 15\nlet 2 17\nout 2 18 ok\n\
             ask 3 x reader 20 5\nnot 3 45 in-time\nask 4 y reader 50 5\ngot 4 3 52\nheld 4 53\nlet 4 60\nout 4 61 lost\n\
             ask 5 y writer 70 5\n",
        );
        let seen: Vec<_> = history.holds.iter().map(|hold| (hold.token, hold.asked, hold.until)).collect();
        assert_eq!(seen, [(64, 10, Some(13)), (65, 14, Some(17)), (3, 50, Some(53))]);
        assert_eq!(history.holds[1].was_writer, Some(64));
        assert_eq!((history.lost, history.not_in_time, history.latest.0), (1, 1, 20));
        assert_eq!(history.open, ["a: call 5, of y"]);
    }
}
