//! What a command answers once its work has an outcome.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::address::pasv_text;
use crate::date::Date;
use verbena_transfer::FileError;

use crate::endpoint::written;
use crate::error::{TransferError, file_code};
use crate::file_work::FileAnswer;
use crate::listing::write_facts;
use crate::machine::{DataPlace, LoginError, MOST_WRONG_PASSWORDS, Machine, Outcome, Passive, Question, Waiting};
use crate::rights::{Login, Rights};
use verbena_transfer::{Facts, Kind};

impl Machine {
    pub(crate) fn on_outcome(&mut self, outcome: Outcome) {
        match (outcome, self.waiting.take()) {
            (Outcome::Progress(bytes), waiting) => {
                self.waiting = waiting;
                self.reply_lines(211, "Status:", format!(" {bytes} bytes moved\r\n").as_bytes(), "End");
            }
            (Outcome::Marker { moved, tenths }, waiting @ Some(Waiting::Transfer { .. })) => {
                self.waiting = waiting;
                self.on_marker(moved, tenths);
            }
            (Outcome::Report(lines), waiting @ Some(Waiting::Transfer { .. })) => {
                self.waiting = waiting;
                self.report = lines;
            }
            (Outcome::Stored(bytes), waiting @ Some(Waiting::Transfer { .. })) => {
                self.waiting = waiting;
                self.on_stored(bytes);
            }
            (Outcome::Login(login), Some(Waiting::Login)) => self.on_login(login),
            (Outcome::Listening(address), Some(Waiting::Listen(command))) => self.on_listening(address, command),
            (Outcome::Session(endpoints), Some(Waiting::Session)) => match endpoints.as_slice() {
                [] => self.reply(425, "No port is free; try again later."),
                endpoints => {
                    self.data = Some(DataPlace::Session);
                    self.reply(229, &format!("Entering Transfer Mode {}", written(endpoints)));
                }
            },
            (Outcome::File(answer), Some(Waiting::File(question))) => match answer {
                Ok(answer) => self.on_file(answer, question),
                Err(error) => self.reply(file_code(error), &error.to_string()),
            },
            (Outcome::Opened { size, name }, Some(Waiting::Transfer { is_aborted, name: path, .. })) => {
                self.on_opened(size, name.as_deref(), &path);
                self.waiting = Some(Waiting::Transfer { is_open: true, is_aborted, name: path });
            }
            (Outcome::Ended(result), Some(Waiting::Transfer { is_open, is_aborted, .. })) => {
                self.on_ended(result, is_open, is_aborted);
            }
            // An outcome that nothing waits for changes nothing.
            (_, waiting) => self.waiting = waiting,
        }
    }

    fn on_login(&mut self, login: Result<Login, LoginError>) {
        match login {
            Ok(login) => {
                self.login = Some(login);
                self.reply(230, "Logged in.");
            }
            Err(LoginError::Home) => {
                self.reply(530, "Your directory on this server cannot be entered: its administrator has to make it, or to allow it.");
            }
            Err(LoginError::TooMany) => {
                self.reply(530, "This user has too many connections; close one, or try again later.");
            }
            Err(LoginError::Wrong) => {
                self.wrong_passwords += 1;
                if self.wrong_passwords >= MOST_WRONG_PASSWORDS {
                    self.end(421, "Too many wrong passwords; closing.");
                } else {
                    self.reply(530, "Wrong name or password.");
                }
            }
        }
    }

    fn on_listening(&mut self, address: Option<SocketAddr>, command: Passive) {
        match address {
            None => self.reply(425, "No port is free; try again later."),
            Some(address) => {
                self.data = Some(DataPlace::Passive);
                let port = address.port();
                if command == Passive::Epsv {
                    self.reply(229, &format!("Entering Extended Passive Mode (|||{port}|)"));
                } else {
                    let host = match address.ip().to_canonical() {
                        IpAddr::V4(host) => host,
                        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
                    };
                    let text = pasv_text(host, port);
                    match command {
                        Passive::Spas => {
                            let line = format!(" {}\r\n", text.trim_matches(['(', ')']));
                            self.reply_lines(229, "Entering Striped Passive Mode", line.as_bytes(), "End");
                        }
                        _ => self.reply(227, &format!("Entering Passive Mode {text}.")),
                    }
                }
            }
        }
    }

    fn on_opened(&mut self, size: Option<u64>, name: Option<&[u8]>, path: &[u8]) {
        match (name, size) {
            _ if self.extended.is_reused => self.reply(125, "The data connections of before are used again."),
            // The form that clients look for (RFC 1123, section 4.1.2.9).
            (Some(name), _) => self.reply_bytes(150, &[b"FILE: ", name].concat()),
            (None, Some(size)) => {
                let text = [b"Opening data connection for ", path, format!(" ({size} bytes).").as_bytes()].concat();
                self.reply_bytes(150, &text);
            }
            (None, None) => self.reply(150, "Opening data connection."),
        }
    }

    fn on_ended(&mut self, result: Result<(), TransferError>, is_open: bool, is_aborted: bool) {
        let keeps = self.after_blocks(is_open, result.is_ok());
        if !is_open && !keeps {
            self.actions.push(crate::machine::Action::CloseListener);
        }
        let (code, text) = match result {
            Ok(()) => (226, "Transfer complete.".to_owned()),
            Err(_) if is_aborted => (426, "Transfer aborted.".to_owned()),
            Err(error) => (error.code(), error.to_string()),
        };
        match std::mem::take(&mut self.report).as_slice() {
            [] => self.reply(code, &text),
            report => self.reply_lines(code, "Session:", report, &text),
        }
        if is_aborted {
            self.reply(226, "Abort done.");
        }
    }

    fn on_file(&mut self, answer: FileAnswer, question: Question) {
        match (question, answer) {
            (Question::Cwd(path), FileAnswer::Done) => {
                self.directory = path;
                self.reply(250, "Directory changed.");
            }
            (Question::Rnfr(path), FileAnswer::Done) => {
                self.rename_from = Some(path);
                self.reply(350, "RNTO, please.");
            }
            (Question::Mkd(path), FileAnswer::Done) => {
                self.reply_bytes(257, &[path.quoted(), b" was made.".to_vec()].concat());
            }
            (Question::Done(text), FileAnswer::Done) => self.reply(250, text),
            (Question::Mfmt(seconds, path), FileAnswer::Done) => {
                let date = Date::of(seconds).compact();
                self.reply_bytes(213, &[format!("Modify={date}; ").into_bytes(), path.display()].concat());
            }
            (Question::SiteUtime, FileAnswer::Done) => self.reply(213, "The time is set."),
            (Question::SiteChmod, FileAnswer::Done) => self.reply(200, "The mode is set."),
            (Question::Size, FileAnswer::Facts(facts)) if facts.kind == Kind::File => {
                self.reply(213, &facts.size.to_string());
            }
            (Question::Size, FileAnswer::Facts(_)) => self.reply(550, &FileError::NotRegular.to_string()),
            (Question::Mdtm, FileAnswer::Facts(facts)) => self.reply(213, &Date::of(facts.modified).compact()),
            (Question::Mlst(path), FileAnswer::Facts(facts)) => self.on_mlst(&path.display(), &facts),
            (Question::Hash(path), FileAnswer::Hash(digits, from, to)) => {
                let range = format!("SHA-256 {from}-{} {digits} ", to.saturating_sub(1));
                self.reply_bytes(213, &[range.into_bytes(), path].concat());
            }
            (Question::Cksm, FileAnswer::Hash(digits, ..)) => self.reply(213, &digits),
            (Question::Xsha256, FileAnswer::Hash(digits, ..)) => self.reply(250, &digits.to_ascii_uppercase()),
            (Question::Stat(path), FileAnswer::Lines(lines)) => {
                let name = String::from_utf8_lossy(&path.display()).into_owned();
                self.reply_lines(212, &format!("Status of {name}:"), &lines, "End");
            }
            // The caller answers another question than it was asked.
            _ => self.reply(451, "Internal error."),
        }
    }

    fn on_mlst(&mut self, path: &[u8], facts: &Facts) {
        let rights = self.login.as_ref().map_or(Rights::default(), |login| login.rights);
        let mut line = vec![b' '];
        write_facts(self.facts, facts, rights, &mut line);
        line.push(b' ');
        line.extend_from_slice(path);
        line.extend_from_slice(b"\r\n");
        self.reply_lines(250, "Listing", &line, "End");
    }
}
