//! One control connection as a machine: bytes of the client and outcomes of work in, replies and work out.
//!
//! Commands are carried out one after the other, in the order in which they came: while one waits for an outcome
//! ([`Waiting`]), lines behind it are kept, and the caller reads no more once [`Machine::wants_input`] says so. During a
//! transfer `STAT`, `NOOP` and `ABOR` do not wait for its end, if nothing is kept before them (rule T15).
//!
//! ```text
//!   Start --USER--> Named --PASS--> (Login) --> Ready --RETR/STOR/LIST--> (Transfer: Opened, Ended) --> Ready
//! ```
//! The machine does no input or output and knows no clock: [`crate::serve`] runs it on sockets, a test on a script.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use verbena_terms::Time;

use crate::command::{Command, CommandError, Representation};
use verbena_transfer::FileError;

use crate::error::TransferError;
use crate::extended::{Extended, Mode};
use crate::file_work::{FileAnswer, FileWork};
use crate::line::{Line, Lines};
use crate::listing::{FactSet, Form};
use crate::rights::Login;
use crate::settings::Settings;
use verbena_transfer::VirtualPath;
use verbena_transfer::{ChannelKind, Endpoint};

/// Lines that are kept behind one that waits.
const MOST_KEPT: usize = 64;
/// Wrong commands until the connection is closed.
const MOST_WRONG: u32 = 10;
/// Wrong passwords until the connection is closed.
pub(crate) const MOST_WRONG_PASSWORDS: u32 = 3;

/// Work for the caller. Each of the first group ends in exactly one [`Outcome`], before which no further one is handed out,
/// but for `Progress` and `Abort`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Check a password: [`Outcome::Login`].
    Login {
        /// The name after `USER`.
        user: Vec<u8>,
        /// The argument of `PASS`.
        password: Vec<u8>,
    },
    /// Work on files: [`Outcome::File`].
    File(FileWork),
    /// Listen for one data connection, in the place of an earlier one (rule T14): [`Outcome::Listening`].
    Listen,
    /// Listen for the streams of one session, over the first of these groups of channels of which one works: [`Outcome::Session`].
    ListenSession {
        /// In the client's order.
        channels: Vec<Vec<ChannelKind>>,
        /// How many there will be at first.
        first: u16,
        /// How many there may be.
        most: u16,
        /// Whose they are, where that is not the client: another server (rule T17).
        from: Option<IpAddr>,
    },
    /// Make the streams of the next session, to another server (rule T17).
    ConnectSession {
        /// Where that one listens: one for each channel.
        endpoints: Vec<Endpoint>,
        /// How many of a channel to make at first.
        first: u16,
        /// How many of a channel there may be.
        most: u16,
    },
    /// Open the file, then the data connection: [`Outcome::Opened`], then [`Outcome::Ended`]; or `Ended` alone.
    Transfer(Transfer),

    /// Say how many bytes the transfer has moved: [`Outcome::Progress`].
    Progress,
    /// Break the transfer off. `Ended` follows as ever.
    Abort,
    /// Forget the port that listens.
    CloseListener,
    /// Send these bytes.
    Send(Vec<u8>),
    /// Begin a TLS handshake once everything before is sent.
    StartTls,
    /// Close once everything before is sent.
    Close,
}

/// A transfer by a data connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// What moves.
    pub what: What,
    /// How bytes stand for bytes.
    pub representation: Representation,
    /// How they are cut, and by how many connections they go.
    pub mode: Mode,
    /// Whom to connect to; `None` waits at the port that listens.
    pub connect: Option<SocketAddr>,
    /// Whether data is encrypted.
    pub is_private: bool,
}

/// What moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A file to the client.
    Retrieve {
        /// Which.
        path: VirtualPath,
        /// The first byte.
        from: u64,
        /// The byte behind the last one; `u64::MAX` is the end.
        to: u64,
    },
    /// A file from the client.
    Store {
        /// Which; the directory, for `Unique`.
        path: VirtualPath,
        /// Where it goes.
        place: Place,
        /// What `ALLO` announced.
        announced: Option<u64>,
    },
    /// A tree to the client, by the streams of a session.
    SendTree {
        /// From where.
        path: VirtualPath,
    },
    /// A tree from the client, by the streams of a session.
    ReceiveTree {
        /// To where.
        path: VirtualPath,
    },
    /// A listing.
    List {
        /// Of which directory or file.
        path: VirtualPath,
        /// How it is written.
        form: Form,
        /// What stands before each name of `NLST`, so that the client can ask for it as it is.
        prefix: Vec<u8>,
    },
}

/// Where an upload goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Into the file, from this byte.
    Byte(u64),
    /// Behind its end.
    End,
    /// Into a part that replaces the file at the end.
    Whole,
    /// Into a file that is not there yet.
    Unique,
}

/// Why a login came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginError {
    /// Wrong name or password.
    Wrong,
    /// Both are right, and the user's directory cannot be entered.
    Home,
    /// Both are right, and the user has as many connections as may be.
    TooMany,
}

/// What came of an [`Action`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// What came of a login.
    Login(Result<Login, LoginError>),
    /// Of `File`.
    File(Result<FileAnswer, FileError>),
    /// The port, and for IPv4 the address that clients are told. `None`: no port is free.
    Listening(Option<SocketAddr>),
    /// The channels, ports and token of a session (rule T1). None: no port is free.
    Session(Vec<Endpoint>),
    /// The file is open: its size where known, its name where the client does not know it.
    Opened {
        /// Bytes that will move, for downloads.
        size: Option<u64>,
        /// Of `STOU`.
        name: Option<Vec<u8>>,
    },
    /// The transfer has ended.
    Ended(Result<(), TransferError>),
    /// Bytes that the transfer has moved.
    Progress(u64),
    /// The same without being asked, while an upload in MODE E runs, and the time in tenths of a second since 1970.
    Marker {
        /// Bytes.
        moved: u64,
        /// Of the look.
        tenths: u64,
    },
    /// What a session with another server came to, as lines of a reply (rule T17). `Ended` follows.
    Report(Vec<u8>),
    /// An upload in MODE E is in its place: its bytes. `Ended` follows.
    Stored(u64),
}

/// What the command that is being carried out waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    Login,
    /// And what to answer.
    File(Question),
    Listen(Passive),
    Session,
    Transfer {
        is_open: bool,
        is_aborted: bool,
        name: Vec<u8>,
    },
}

/// Which command made the server listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passive {
    Pasv,
    Epsv,
    Spas,
}

/// Which command asked for work on files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Cwd(VirtualPath),
    Rnfr(VirtualPath),
    Mkd(VirtualPath),
    /// 250 and this text.
    Done(&'static str),
    Mfmt(i64, VirtualPath),
    SiteUtime,
    SiteChmod,
    Size,
    Mdtm,
    Mlst(VirtualPath),
    Hash(Vec<u8>),
    Xsha256,
    Cksm,
    Stat(VirtualPath),
}

/// The machine of one control connection.
#[derive(Debug)]
pub struct Machine {
    pub(crate) settings: Settings,
    lines: Lines,
    kept: VecDeque<Line>,
    pub(crate) waiting: Option<Waiting>,
    pub(crate) actions: Vec<Action>,
    pub(crate) user: Option<Vec<u8>>,
    pub(crate) login: Option<Login>,
    pub(crate) directory: VirtualPath,
    pub(crate) representation: Representation,
    pub(crate) restart: u64,
    pub(crate) range: Option<(u64, u64)>,
    pub(crate) announced: Option<u64>,
    pub(crate) rename_from: Option<VirtualPath>,
    pub(crate) facts: FactSet,
    pub(crate) data: Option<DataPlace>,
    pub(crate) extended: Extended,
    /// Of the transfer that is about to end.
    pub(crate) report: Vec<u8>,
    pub(crate) is_epsv_all: bool,
    pub(crate) is_secure: bool,
    pub(crate) has_buffer_size: bool,
    pub(crate) is_private: bool,
    wrong: u32,
    pub(crate) wrong_passwords: u32,
    opened: Time,
    quiet_since: Time,
    is_draining: bool,
    is_closed: bool,
}

/// Where the next data connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataPlace {
    Passive,
    Session,
    Active(SocketAddr),
    /// Those of the transfer in MODE E before this one.
    Kept {
        is_upload: bool,
    },
}

impl Machine {
    /// A machine for a connection that was taken at `now`. Its first action is the greeting.
    pub fn new(settings: Settings, now: Time) -> Machine {
        let mut machine = Machine {
            settings,
            lines: Lines::default(),
            kept: VecDeque::new(),
            waiting: None,
            actions: Vec::new(),
            user: None,
            login: None,
            directory: VirtualPath::root(),
            representation: Representation::Ascii,
            restart: 0,
            range: None,
            announced: None,
            rename_from: None,
            facts: FactSet::default(),
            data: None,
            extended: Extended::default(),
            report: Vec::new(),
            is_epsv_all: false,
            is_secure: false,
            has_buffer_size: false,
            is_private: false,
            wrong: 0,
            wrong_passwords: 0,
            opened: now,
            quiet_since: now,
            is_draining: false,
            is_closed: false,
        };
        machine.reply(220, "Verbena FTP server ready.");
        machine
    }

    /// What is to be done, in order.
    pub fn actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Whether the caller should read from the client. False once enough lines are kept, and after the end.
    pub fn wants_input(&self) -> bool {
        !self.is_closed && self.kept.len() < MOST_KEPT
    }

    /// Whether a transfer is running.
    pub fn is_transferring(&self) -> bool {
        matches!(self.waiting, Some(Waiting::Transfer { .. }))
    }

    /// Whether a command waits for an outcome.
    pub fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Takes bytes of the client.
    pub fn input(&mut self, bytes: &[u8], now: Time) {
        if self.is_closed {
            return;
        }
        self.quiet_since = now;
        let mut lines = Vec::new();
        self.lines.take(bytes, &mut lines);
        self.kept.extend(lines);
        self.go_on();
    }

    /// Takes what came of an action.
    pub fn outcome(&mut self, outcome: Outcome, now: Time) {
        if self.is_closed {
            return;
        }
        self.quiet_since = now;
        self.on_outcome(outcome);
        if self.waiting.is_none() && self.is_draining {
            self.end(421, "The server is shutting down.");
        }
        self.go_on();
    }

    /// The TLS handshake has succeeded.
    pub fn secured(&mut self, now: Time) {
        self.quiet_since = now;
        self.is_secure = true;
    }

    /// The server stops: a transfer that is running goes on to its end, nothing else begins.
    pub fn drain(&mut self) {
        self.is_draining = true;
        if self.waiting.is_none() && !self.is_closed {
            self.end(421, "The server is shutting down.");
        }
    }

    /// The administrator ends the connection, and what runs on it.
    pub fn kick(&mut self) {
        if !self.is_closed {
            self.end(421, "The administrator of this server has closed the connection.");
        }
    }

    /// Until when the client may be silent. None while the server is at work.
    pub fn next_deadline(&self) -> Option<Time> {
        if self.is_closed || self.waiting.is_some() {
            return None;
        }
        let idle = self.quiet_since + self.settings.idle_timeout;
        Some(if self.login.is_none() { idle.min(self.opened + self.settings.login_timeout) } else { idle })
    }

    /// Closes a connection that has been silent for too long.
    pub fn tick(&mut self, now: Time) {
        if self.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.end(421, "No command for too long; closing.");
        }
    }

    /// Carries out kept lines until one waits.
    fn go_on(&mut self) {
        while !self.is_closed {
            let may_begin = match self.waiting {
                None => true,
                Some(Waiting::Transfer { is_aborted: false, .. }) => self.kept.front().is_some_and(is_immediate),
                Some(_) => false,
            };
            if !may_begin {
                return;
            }
            let Some(line) = self.kept.pop_front() else { return };
            self.on_line(line);
        }
    }

    fn on_line(&mut self, line: Line) {
        match line {
            Line::Endless => self.end(500, "No line is that long; closing."),
            Line::TooLong => self.wrong(500, "A line has at most 4096 bytes."),
            Line::Text(text) => match Command::parse(&text) {
                Ok(command) if self.is_transferring() => self.on_command_meanwhile(command),
                Ok(command) => self.on_command(command),
                Err(CommandError::Http) => self.end(500, "This is no HTTP server; closing."),
                Err(CommandError::Unknown) => self.wrong(500, "Unknown command."),
                Err(CommandError::Syntax(what)) => self.wrong(501, what),
                Err(CommandError::Parameter(what)) => self.reply(504, what),
                Err(CommandError::Family) => self.reply(522, "Network protocol not supported, use (1,2)."),
            },
        }
    }

    fn on_command_meanwhile(&mut self, command: Command) {
        match command {
            Command::Noop => self.reply(200, "A transfer is running."),
            Command::Stat(None) => self.actions.push(Action::Progress),
            Command::Abor => {
                if let Some(Waiting::Transfer { is_aborted, .. }) = &mut self.waiting {
                    *is_aborted = true;
                }
                self.actions.push(Action::Abort);
            }
            // `is_immediate` lets nothing else through.
            _ => self.reply(503, "A transfer is running."),
        }
    }

    fn wrong(&mut self, code: u16, text: &str) {
        self.wrong += 1;
        if self.wrong >= MOST_WRONG {
            self.end(421, "Too many wrong commands; closing.");
        } else {
            self.reply(code, text);
        }
    }

    /// Whether bytes have come behind the command that is being carried out.
    pub(crate) fn has_more(&self) -> bool {
        !self.kept.is_empty() || self.lines.is_inside()
    }

    pub(crate) fn reply(&mut self, code: u16, text: &str) {
        self.reply_bytes(code, text.as_bytes());
    }

    pub(crate) fn reply_bytes(&mut self, code: u16, text: &[u8]) {
        let mut line = format!("{code} ").into_bytes();
        line.extend(text.iter().map(|byte| if matches!(byte, b'\r' | b'\n' | 0) { b'?' } else { *byte }));
        line.extend_from_slice(b"\r\n");
        self.send(line);
    }

    /// A reply of several lines: `lines` hold their own ends.
    pub(crate) fn reply_lines(&mut self, code: u16, first: &str, lines: &[u8], last: &str) {
        let mut text = format!("{code}-{first}\r\n").into_bytes();
        text.extend_from_slice(lines);
        text.extend_from_slice(format!("{code} {last}\r\n").as_bytes());
        self.send(text);
    }

    fn send(&mut self, bytes: Vec<u8>) {
        match self.actions.last_mut() {
            Some(Action::Send(earlier)) => earlier.extend_from_slice(&bytes),
            _ => self.actions.push(Action::Send(bytes)),
        }
    }

    /// The last reply.
    pub(crate) fn end(&mut self, code: u16, text: &str) {
        self.reply(code, text);
        self.kept.clear();
        self.actions.push(Action::Close);
        self.is_closed = true;
    }
}

/// Whether a line can be answered while a transfer is running.
fn is_immediate(line: &Line) -> bool {
    match line {
        Line::Text(text) => {
            let text = text.trim_ascii();
            [&b"ABOR"[..], b"NOOP", b"STAT"].iter().any(|verb| text.eq_ignore_ascii_case(verb))
        }
        Line::TooLong | Line::Endless => true,
    }
}
