//! What each command does once its turn has come.

use std::net::{IpAddr, SocketAddr};

use crate::address::canonical;
use crate::blocks::Pieces;
use crate::command::{Command, Extended, Representation};
use crate::extended::Mode;
use crate::file_work::{Digest, FileWork};
use crate::listing::{FactSet, Form};
use crate::machine::{Action, DataPlace, Machine, Passive, Place, Question, Transfer, Waiting, What};
use crate::rights::{Login, Rights};
use crate::settings::Tls;
use crate::streams::LOWEST_PORT;
use verbena_transfer::VirtualPath;

impl Machine {
    pub(crate) fn on_command(&mut self, command: Command) {
        // What RNFR, REST, RANG and ALLO say is for the next command of their kind; anything else takes RNFR back.
        let rename_from = self.rename_from.take();
        match command {
            Command::User(name) => self.on_user(name),
            Command::Pass(password) => self.on_pass(password),
            Command::Acct => self.reply(202, "No account is needed."),
            Command::Host(name) => self.on_host(&name),
            Command::Auth(mechanism) => self.on_auth(&mechanism),
            Command::Pbsz => self.on_pbsz(),
            Command::Prot(level) => self.on_prot(level),
            Command::Rein => self.reply(502, "REIN is not there; connect again."),
            Command::Quit => self.end(221, "Goodbye."),
            Command::Noop => self.reply(200, "OK."),
            Command::Clnt => self.reply(200, "Noted."),
            Command::Syst => self.reply(215, "UNIX Type: L8"),
            Command::Feat => self.on_feat(),
            Command::Help | Command::SiteHelp => self.on_help(),
            Command::Opts(option) => self.on_opts(&option),
            Command::Stru => self.reply(200, "Structure is F."),
            Command::Mode(is_extended) => self.on_mode(is_extended),
            Command::Sbuf => self.reply(200, "Noted; the kernel sizes its buffers as the link asks."),
            Command::SiteClientInfo => self.reply(250, "Noted."),
            command => match self.login.clone() {
                None => self.reply(530, "Log in with USER and PASS first."),
                Some(login) => self.on_file_command(command, &login, rename_from),
            },
        }
    }

    fn on_file_command(&mut self, command: Command, login: &Login, rename_from: Option<VirtualPath>) {
        let rights = login.rights;
        match command {
            Command::Type(representation) => {
                self.representation = representation;
                self.reply(200, if representation == Representation::Ascii { "Type is A." } else { "Type is I." });
            }
            Command::Pasv => self.on_pasv(Passive::Pasv),
            Command::Spas => self.on_pasv(Passive::Spas),
            Command::Epsv(which) => self.on_epsv(which),
            Command::Tprt(channels, counts, from) => self.on_tprt(&channels, counts, from, login),
            Command::Tcon(endpoints, counts) => self.on_tcon(&endpoints, counts, login),
            Command::Port(address) => self.on_port(address, &login.fxp),
            Command::Allo(size) => {
                self.announced = Some(size);
                self.reply(200, "Noted.");
            }
            Command::Rest(byte) => {
                self.restart = byte;
                self.range = None;
                self.extended.parts = Default::default();
                self.reply(350, &format!("The next transfer begins at byte {byte}."));
            }
            Command::RestParts(parts) => self.on_rest_parts(&parts),
            Command::Rang(range) => {
                self.range = range;
                self.restart = 0;
                self.extended.parts = Default::default();
                match range {
                    Some((first, last)) => self.reply(350, &format!("The next command takes bytes {first} to {last}.")),
                    None => self.reply(350, "The next command takes the whole file."),
                }
            }
            Command::Pwd => {
                let text = [self.directory.quoted(), b" is the current directory.".to_vec()].concat();
                self.reply_bytes(257, &text);
            }
            Command::Stat(None) => self.on_stat(),
            Command::Abor => {
                self.close_listener();
                self.reply(226, "No transfer is running.");
            }
            Command::Rnto(path) => match rename_from {
                Some(from) => {
                    self.with(rights.delete, &path, |path| (FileWork::Rename(from, path), Question::Done("Renamed.")))
                }
                None => self.reply(503, "RNFR comes first."),
            },
            Command::Eret(_, (first, behind)) if behind <= first => self.reply(501, "The length is at least 1."),
            Command::Eret(path, (first, behind)) => {
                // The last byte of a range is inclusive.
                (self.range, self.restart) = (Some((first, behind - 1)), 0);
                self.on_transfer(Command::Retr(path), login);
            }
            Command::Retr(_) | Command::Stor(_) | Command::Appe(_) | Command::Stou => self.on_transfer(command, login),
            Command::List(path) => self.list(&path, Form::Long),
            Command::Nlst(path) => self.list(&path, Form::Names),
            Command::Mlsd(path) => self.list(&path, Form::Facts(self.facts)),
            command => self.on_file_work(command, rights),
        }
    }

    fn on_file_work(&mut self, command: Command, rights: Rights) {
        use FileWork as Work;
        let Rights { read, write, delete } = rights;
        match command {
            Command::Cwd(path) => self.with(true, &path, |path| (Work::Enter(path.clone()), Question::Cwd(path))),
            Command::Size(path) if self.representation == Representation::Ascii => {
                let _ = path;
                self.reply(550, "SIZE counts bytes: send TYPE I first.");
            }
            Command::Size(path) => self.with(true, &path, |path| (Work::Facts(path), Question::Size)),
            Command::Mdtm(path) => match crate::command::dated(&path) {
                // Some clients set the time by MDTM.
                Some((seconds, path)) if write => self.with(write, &path, |path| {
                    (Work::SetModified(path.clone(), seconds), Question::Mfmt(seconds, path))
                }),
                _ => self.with(true, &path, |path| (Work::Facts(path), Question::Mdtm)),
            },
            Command::Mlst(path) => self.with(true, &path, |path| (Work::Facts(path.clone()), Question::Mlst(path))),
            Command::Rnfr(path) => self.with(delete, &path, |path| (Work::Exists(path.clone()), Question::Rnfr(path))),
            Command::Dele(path) => self.with(delete, &path, |path| (Work::Remove(path), Question::Done("Removed."))),
            Command::Rmd(path) => {
                self.with(delete, &path, |path| (Work::RemoveDirectory(path), Question::Done("Removed.")))
            }
            Command::Mkd(path) => {
                self.with(write, &path, |path| (Work::MakeDirectory(path.clone()), Question::Mkd(path)))
            }
            Command::Mfmt(seconds, path) => self
                .with(write, &path, |path| (Work::SetModified(path.clone(), seconds), Question::Mfmt(seconds, path))),
            Command::SiteUtime(seconds, path) => {
                self.with(write, &path, |path| (Work::SetModified(path, seconds), Question::SiteUtime))
            }
            Command::SiteChmod(mode, path) => {
                self.with(write, &path, |path| (Work::SetMode(path, mode), Question::SiteChmod))
            }
            Command::Hash(path) => {
                let (from, to) = self.take_range();
                self.with(read, &path.clone(), |full| {
                    (Work::Hash(Digest::Sha256, full, from, to), Question::Hash(path))
                });
            }
            Command::Xsha256(path, range) => {
                let (from, to) = range.unwrap_or((0, u64::MAX));
                self.with(read, &path, |path| (Work::Hash(Digest::Sha256, path, from, to), Question::Xsha256));
            }
            Command::Cksm(digest, path, (from, to)) => {
                self.with(read, &path, |path| (Work::Hash(digest, path, from, to), Question::Cksm));
            }
            Command::Stat(Some(path)) => {
                self.with(true, &path, |path| (Work::Lines(path.clone()), Question::Stat(path)));
            }
            // Each command has its place above.
            _ => self.reply(502, "Not implemented."),
        }
    }

    /// Begins work on a path, if the user may.
    fn with(&mut self, may: bool, path: &[u8], work: impl FnOnce(VirtualPath) -> (FileWork, Question)) {
        if !may {
            return self.reply(550, "You do not have the right to do this here.");
        }
        let Some(path) = self.directory.join(path) else {
            return self.reply(501, "Paths hold no NUL, CR and LF.");
        };
        let (work, question) = work(path);
        self.waiting = Some(Waiting::File(question));
        self.actions.push(Action::File(work));
    }

    fn on_user(&mut self, name: Vec<u8>) {
        if self.settings.tls == Tls::Required && !self.is_secure {
            return self.reply(530, "This server takes logins by TLS alone: send AUTH TLS.");
        }
        self.login = None;
        self.directory = VirtualPath::root();
        self.close_listener();
        self.user = Some(name);
        self.reply(331, "Password, please.");
    }

    fn on_pass(&mut self, password: Vec<u8>) {
        match self.user.take() {
            Some(user) => {
                self.waiting = Some(Waiting::Login);
                self.actions.push(Action::Login { user, password });
            }
            None if self.login.is_some() => self.reply(202, "Logged in already."),
            None => self.reply(503, "USER comes first."),
        }
    }

    fn on_host(&mut self, name: &[u8]) {
        let is_known = self.settings.hosts.is_empty()
            || self.settings.hosts.iter().any(|host| host.as_bytes().eq_ignore_ascii_case(name));
        match (self.login.is_some() || self.user.is_some(), is_known) {
            (true, _) => self.reply(503, "HOST comes before USER."),
            (false, true) => self.reply(220, "Host accepted."),
            (false, false) => self.reply(504, "No such host here."),
        }
    }

    fn on_auth(&mut self, mechanism: &[u8]) {
        if self.settings.tls == Tls::Off {
            self.reply(502, "This server has no certificate.");
        } else if self.is_secure {
            self.reply(503, "The connection is encrypted already.");
        } else if !matches!(mechanism, b"TLS" | b"TLS-C") {
            self.reply(504, "The mechanism is TLS.");
        } else if self.has_more() {
            // What was sent in clear would count as sent by TLS (rule T15).
            self.end(421, "Bytes follow AUTH in clear; closing.");
        } else {
            self.reply(234, "Begin the handshake.");
            self.login = None;
            self.user = None;
            self.actions.push(Action::StartTls);
        }
    }

    fn on_pbsz(&mut self) {
        if !self.is_secure {
            return self.reply(503, "AUTH TLS comes first.");
        }
        self.has_buffer_size = true;
        self.reply(200, "PBSZ=0");
    }

    fn on_prot(&mut self, level: u8) {
        match level {
            _ if !self.has_buffer_size => self.reply(503, "PBSZ comes first."),
            b'C' if self.settings.tls == Tls::Required => self.reply(534, "Data is encrypted here: PROT P."),
            _ => {
                self.is_private = level == b'P';
                if self.is_private && self.data == Some(DataPlace::Session) {
                    // Its channel was chosen while data could be in clear (rule T2).
                    self.close_listener();
                }
                self.close_kept();
                self.reply(200, if self.is_private { "Data is encrypted." } else { "Data is in clear." });
            }
        }
    }

    fn on_feat(&mut self) {
        let mut lines = String::new();
        if self.settings.tls != Tls::Off {
            lines.push_str(" AUTH TLS\r\n PBSZ\r\n PROT\r\n");
        }
        for feature in ["CKSM SHA256:1;MD5:2;", "EPRT", "EPSV", "ERET", "HASH SHA-256*", "HOST", "MDTM", "MFMT"] {
            lines.push_str(&format!(" {feature}\r\n"));
        }
        lines.push_str(&format!(" MLST {}\r\n", self.facts.feature()));
        for feature in [
            "PARALLEL",
            "RANG STREAM",
            "REST STREAM",
            "SITE CHMOD",
            "SITE UTIME",
            "SIZE",
            "SPAS",
            "SPOR",
            "TCON",
            "TPRT descriptor,tcp,quic,udp",
            "TVFS",
            "UTF8",
            "XSHA256",
        ] {
            lines.push_str(&format!(" {feature}\r\n"));
        }
        self.reply_lines(211, "Features:", lines.as_bytes(), "End");
    }

    fn on_help(&mut self) {
        let lines = " USER PASS ACCT HOST QUIT AUTH PBSZ PROT FEAT OPTS SYST HELP NOOP STAT\r\n \
                     TYPE STRU MODE PASV EPSV SPAS PORT EPRT SPOR TPRT TCON SBUF ALLO REST RANG RETR ERET STOR APPE STOU ABOR\r\n \
                     PWD CWD CDUP MKD RMD DELE RNFR RNTO LIST NLST MLSD MLST SIZE MDTM MFMT\r\n \
                     HASH XSHA256 CKSM SITE CHMOD, SITE UTIME, SITE HELP, SITE CLIENTINFO\r\n";
        self.reply_lines(214, "Commands:", lines.as_bytes(), "End");
    }

    fn on_opts(&mut self, option: &[u8]) {
        let upper = option.to_ascii_uppercase();
        match upper.as_slice() {
            b"UTF8" | b"UTF8 ON" | b"UTF-8 ON" => self.reply(200, "Names are UTF-8."),
            b"HASH" | b"HASH SHA-256" => self.reply(200, "SHA-256"),
            b"MLST" => {
                self.facts = FactSet::parse(b"");
                self.reply(200, "MLST OPTS ");
            }
            _ if upper.starts_with(b"MLST ") => {
                self.facts = FactSet::parse(&option[5..]);
                self.reply(200, &format!("MLST OPTS {}", self.facts.names()));
            }
            _ if upper.starts_with(b"RETR ") => self.on_parallelism(&upper[5..]),
            _ if upper.starts_with(b"HASH ") => self.reply(504, "The algorithm is SHA-256."),
            _ => self.reply(501, "No such option."),
        }
    }

    fn on_stat(&mut self) {
        let representation = if self.representation == Representation::Ascii { "A" } else { "I" };
        let lines = format!(
            " Connected from {}\r\n Type {representation}, structure F, mode {}\r\n Control {}, data {}\r\n",
            self.settings.peer,
            if self.extended.is_on { "E" } else { "S" },
            if self.is_secure { "encrypted" } else { "in clear" },
            if self.is_private { "encrypted" } else { "in clear" },
        );
        self.reply_lines(211, "Status:", lines.as_bytes(), "End");
    }

    fn on_pasv(&mut self, command: Passive) {
        if self.is_epsv_all {
            self.reply(503, "EPSV ALL was promised.");
        } else if !canonical(self.settings.local).is_ipv4() {
            self.reply(425, "PASV cannot name an IPv6 address: use EPSV.");
        } else {
            self.listen(command);
        }
    }

    fn on_epsv(&mut self, which: Extended) {
        let is_v4 = canonical(self.settings.local).is_ipv4();
        match which {
            Extended::All => {
                self.is_epsv_all = true;
                self.reply(200, "EPSV ALL is noted.");
            }
            Extended::V4 if !is_v4 => self.reply(522, "Network protocol not supported, use (2)."),
            Extended::V6 if is_v4 => self.reply(522, "Network protocol not supported, use (1)."),
            _ => self.listen(Passive::Epsv),
        }
    }

    fn listen(&mut self, command: Passive) {
        self.data = None;
        self.waiting = Some(Waiting::Listen(command));
        self.actions.push(Action::Listen);
    }

    fn on_port(&mut self, address: SocketAddr, fxp: &[IpAddr]) {
        let host = canonical(address.ip());
        if self.is_epsv_all {
            self.reply(503, "EPSV ALL was promised.");
        } else if !self.may_connect(host, fxp) || address.port() < LOWEST_PORT {
            self.reply(504, "Data goes to your own address, to ports from 1024.");
        } else {
            self.close_listener();
            self.data = Some(DataPlace::Active(SocketAddr::new(host, address.port())));
            self.reply(200, "Noted.");
        }
    }

    pub(crate) fn close_listener(&mut self) {
        if matches!(self.data.take(), Some(DataPlace::Passive | DataPlace::Session | DataPlace::Kept { .. })) {
            self.actions.push(Action::CloseListener);
        }
    }

    fn take_range(&mut self) -> (u64, u64) {
        let restart = std::mem::take(&mut self.restart);
        match self.range.take() {
            // The last byte is inclusive.
            Some((first, last)) => (first, last.saturating_add(1)),
            None => (restart, u64::MAX),
        }
    }

    fn on_transfer(&mut self, command: Command, login: &Login) {
        let rights = login.rights;
        let (from, to) = self.take_range();
        let announced = self.announced.take();
        let parts = std::mem::take(&mut self.extended.parts);
        let replaces = login.atomic_stores || self.extended.is_on;
        if self.representation == Representation::Ascii && (from != 0 || to != u64::MAX) {
            self.close_listener();
            return self.reply(554, "Restarts and ranges count bytes: send TYPE I first.");
        }
        let (may, path) = match &command {
            Command::Retr(path) => (rights.read, path.as_slice()),
            Command::Stor(path) | Command::Appe(path) => (rights.write, path.as_slice()),
            _ => (rights.write, b"".as_slice()),
        };
        let Some(path) = self.directory.join(path).filter(|_| may) else {
            self.close_listener();
            return self.reply(550, "You do not have the right to do this here.");
        };
        let place = match &command {
            Command::Appe(_) => Place::End,
            Command::Stou => Place::Unique,
            Command::Retr(_) => Place::Byte(from),
            _ if replaces && from == 0 && parts.is_empty() => Place::Whole,
            _ if replaces => {
                self.close_listener();
                return self.reply(554, &verbena_transfer::FileError::WholeOnly.to_string());
            }
            _ => Place::Byte(from),
        };
        let is_session = self.data == Some(DataPlace::Session);
        let what = match command {
            Command::Retr(_) if is_session => What::SendTree { path },
            Command::Stor(_) if is_session => What::ReceiveTree { path },
            Command::Retr(_) => What::Retrieve { path, from, to },
            _ => What::Store { path, place, announced },
        };
        self.transfer(what, parts);
    }

    fn list(&mut self, path: &[u8], form: Form) {
        self.take_range();
        match self.directory.join(path) {
            Some(full) => {
                let prefix = if form == Form::Names { path.to_vec() } else { Vec::new() };
                self.transfer(What::List { path: full, form, prefix }, Default::default());
            }
            None => self.reply(501, "Paths hold no NUL, CR and LF."),
        }
    }

    fn transfer(&mut self, what: What, parts: Pieces) {
        if self.settings.tls == Tls::Required && !self.is_private {
            self.close_listener();
            return self.reply(522, "Data is encrypted here: send PBSZ 0 and PROT P.");
        }
        let is_tree = matches!(what, What::SendTree { .. } | What::ReceiveTree { .. });
        let Some(data) = self.data.take().filter(|data| (*data == DataPlace::Session) == is_tree) else {
            return self.reply(425, "Say PASV, EPSV, PORT or EPRT first.");
        };
        let mode = match self.extended.is_on && !is_tree {
            false => Mode::Stream,
            true => match self.blocks(&what, data, parts) {
                Ok(mode) => mode,
                Err((code, text)) => {
                    self.data = Some(data);
                    self.close_listener();
                    return self.reply(code, text);
                }
            },
        };
        let (path, representation) = match &what {
            What::Retrieve { path, .. } | What::Store { path, .. } => (path, self.representation),
            What::SendTree { path } | What::ReceiveTree { path } => (path, Representation::Image),
            // Lines of listings end with CR LF in each type.
            What::List { path, .. } => (path, Representation::Image),
        };
        let name = path.display();
        let connect = match data {
            DataPlace::Active(address) => Some(address),
            DataPlace::Passive | DataPlace::Session | DataPlace::Kept { .. } => None,
        };
        self.waiting = Some(Waiting::Transfer { is_open: false, is_aborted: false, name });
        let is_private = self.is_private;
        self.actions.push(Action::Transfer(Transfer { what, representation, mode, connect, is_private }));
    }
}
