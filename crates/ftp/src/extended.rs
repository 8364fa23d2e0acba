//! MODE E in the control machine: how many connections there are, which of them are kept, markers, and restarts.
//!
//! The sender connects, so downloads need `PORT` and uploads `PASV`. Data connections outlive their transfer: a further
//! one of the same direction uses them again, without another `PORT` or `PASV`, as GridFTP clients expect.

use crate::blocks::{MOST_CONNECTIONS, Pieces};
use crate::command::Representation;
use crate::machine::{DataPlace, Machine, Place, What};

/// How the bytes of a transfer are cut, and by how many data connections they go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One connection, whose end is that of the file.
    Stream,
    /// Blocks over several connections.
    Extended {
        /// How many the server makes to send.
        connections: u16,
        /// Whether those of the transfer before are used.
        is_reused: bool,
        /// Parts of the file that the client has.
        parts: Pieces,
    },
}

/// What the machine remembers of MODE E.
#[derive(Debug)]
pub(crate) struct Extended {
    pub is_on: bool,
    /// Of `OPTS RETR Parallelism`.
    connections: u16,
    /// Of `REST`, for the next transfer.
    pub parts: Pieces,
    /// Whether the transfer that runs uses connections again.
    pub is_reused: bool,
    /// Whether the transfer that runs is by MODE E, and an upload then.
    running: Option<bool>,
}

impl Default for Extended {
    fn default() -> Extended {
        Extended { is_on: false, connections: 1, parts: Pieces::default(), is_reused: false, running: None }
    }
}

impl Machine {
    pub(crate) fn on_mode(&mut self, is_extended: bool) {
        self.extended.is_on = is_extended;
        if !is_extended {
            self.close_kept();
        }
        self.reply(200, if is_extended { "Mode is E." } else { "Mode is S." });
    }

    /// Ends the data connections of an earlier transfer.
    pub(crate) fn close_kept(&mut self) {
        if matches!(self.data, Some(DataPlace::Kept { .. })) {
            self.close_listener();
        }
    }

    /// `Parallelism=starting,least,most;`, in capitals.
    pub(crate) fn on_parallelism(&mut self, options: &[u8]) {
        let numbers = |option: &[u8]| -> Option<Vec<u16>> {
            let text = std::str::from_utf8(option.strip_prefix(b"PARALLELISM=")?).ok()?;
            text.split(',').map(|number| number.trim().parse().ok()).collect()
        };
        let (first, least) = match numbers(options.strip_suffix(b";").unwrap_or(options)).as_deref() {
            Some(&[first]) => (first, first),
            Some(&[first, least, most]) if least <= first && first <= most => (first, least),
            _ => return self.reply(501, "OPTS RETR takes Parallelism=starting,least,most;"),
        };
        if first == 0 || least > MOST_CONNECTIONS {
            return self.reply(504, &format!("A transfer has 1 to {MOST_CONNECTIONS} data connections."));
        }
        self.extended.connections = first.min(MOST_CONNECTIONS);
        // The client expects as many as it has said.
        self.close_kept();
        self.reply(200, &format!("Downloads in MODE E have {} data connections.", self.extended.connections));
    }

    pub(crate) fn on_rest_parts(&mut self, parts: &[(u64, u64)]) {
        let mut pieces = Pieces::default();
        if parts.iter().any(|(from, to)| pieces.add(*from, *to).is_err()) {
            return self.reply(501, "REST names too many parts.");
        }
        (self.extended.parts, self.restart, self.range) = (pieces, 0, None);
        self.reply(350, "The next download in MODE E leaves these parts out.");
    }

    /// What a transfer in MODE E does, or why there is none.
    pub(crate) fn blocks(&mut self, what: &What, data: DataPlace, parts: Pieces) -> Result<Mode, (u16, &'static str)> {
        let is_upload = match what {
            What::List { .. } => return Err((504, "Listings come by MODE S.")),
            What::Store { place, .. } if *place != Place::Whole => {
                return Err((504, "Uploads in MODE E replace whole files: send STOR."));
            }
            What::Store { .. } => true,
            _ => false,
        };
        if self.representation == Representation::Ascii {
            return Err((504, "MODE E moves bytes: send TYPE I first."));
        }
        match (data, is_upload) {
            (DataPlace::Kept { is_upload: earlier }, _) if earlier == is_upload => {}
            (DataPlace::Passive, true) | (DataPlace::Active(_), false) => {}
            (_, true) => return Err((425, "In MODE E the sender connects: say PASV, EPSV or SPAS first.")),
            (_, false) => return Err((425, "In MODE E the sender connects: say PORT, EPRT or SPOR first.")),
        }
        let is_reused = matches!(data, DataPlace::Kept { .. });
        (self.extended.running, self.extended.is_reused) = (Some(is_upload), is_reused);
        Ok(Mode::Extended { connections: self.extended.connections, is_reused, parts })
    }

    /// A transfer has ended. Whether its data connections, or those before, stay.
    pub(crate) fn after_blocks(&mut self, is_open: bool, is_whole: bool) -> bool {
        let is_reused = std::mem::take(&mut self.extended.is_reused);
        let Some(is_upload) = self.extended.running.take() else { return false };
        // A file that could not be opened has touched no connection.
        let stays = is_whole || (is_reused && !is_open);
        if stays {
            self.data = Some(DataPlace::Kept { is_upload });
        }
        stays
    }

    pub(crate) fn on_marker(&mut self, moved: u64, tenths: u64) {
        let lines = format!(
            " Timestamp:  {}.{}\r\n Stripe Index: 0\r\n Stripe Bytes Transferred: {moved}\r\n Total Stripe Count: 1\r\n",
            tenths / 10,
            tenths % 10
        );
        self.reply_lines(112, "Perf Marker", lines.as_bytes(), "End.");
    }

    pub(crate) fn on_stored(&mut self, bytes: u64) {
        if bytes > 0 {
            self.reply(111, &format!("Range Marker 0-{bytes}"));
        }
    }
}
