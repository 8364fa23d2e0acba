//! `verbena cp` from one server to another one: by a session between them, directly by FTP's own means, or through here.

use std::time::Instant;

use verbena_ftp::{
    BetweenOptions, CopyError, ListedKind, Location, PlainSides, Progress, Remote, copy_between, copy_file_between,
};

use super::super::ftp::files;
use super::{Command, Shown};
use crate::error::Result;

/// The ways, as they are named for programs, of what was said of them.
pub(super) fn name_of(ways: &[String]) -> Option<&'static str> {
    let has = |name: &str| ways.iter().any(|way| way.starts_with(name));
    match (has("fxp:"), has("client:")) {
        (true, true) => Some("fxp and client"),
        (true, false) => Some("fxp"),
        (false, true) => Some("client"),
        (false, false) => None,
    }
}

impl Command {
    /// Copies from server to server.
    pub(super) fn between(&self, began: Instant) -> Result<()> {
        let location = |url| self.reach.location(url).map_err(files::refused);
        let (from, to) = (location(&self.from)?, location(&self.to)?);
        self.check_is_not_local()?;
        self.check_channels()?;
        let mut notes = Vec::new();
        // A rate is kept by this side, which a session between two servers does not pass.
        if self.is_plain().is_none() && self.limit.is_none() {
            let options = BetweenOptions {
                from: from.clone(),
                to: to.clone(),
                streams: self.streams,
                channels: self.channel.clone(),
                timeout: self.reach.timeout(),
            };
            let mut shown = Shown::new(&self.format, began);
            let copied = copy_between(&options, &mut |progress: &Progress| shown.report(progress));
            shown.clear();
            match copied {
                Ok(summary) => return self.say(summary, Some("token"), began),
                Err(error) if error.is_without_third() && self.may_be_plain() => {
                    notes.push(format!("no session between the two: {error}"));
                }
                Err(error) => return Err(error.into()),
            }
        }
        match self.file_between(&from, &to)? {
            Some((moved, ways)) => {
                notes.extend(ways);
                self.say_single(moved, notes, began)
            }
            None => self.copy_plainly(PlainSides::Between(from, to), notes, began),
        }
    }

    /// Copies one file, if it is one.
    fn file_between(&self, from: &Location, to: &Location) -> Result<Option<(verbena_ftp::Moved, Vec<String>)>> {
        if from.path.ends_with(b"/") {
            return Ok(None);
        }
        let mut source = Remote::connect(from, self.reach.timeout())?;
        let facts = source.facts(&from.path)?;
        source.quit();
        if facts.kind != ListedKind::File {
            return Ok(None);
        }
        if let Some(option) = self.is_for_trees() {
            return Err(files::refused(format!("{option} compares directories, and this is one file")));
        }
        let mut there = Remote::connect(to, self.reach.timeout())?;
        let is_into = to.path.ends_with(b"/")
            || match there.facts(&to.path) {
                Ok(facts) => facts.kind == ListedKind::Directory,
                // Nothing may be there yet.
                Err(CopyError::Refused { .. }) => false,
                Err(error) => return Err(error.into()),
            };
        there.quit();
        let target = match is_into {
            true => [to.path.strip_suffix(b"/").unwrap_or(&to.path), b"/", &facts.name].concat(),
            false => to.path.clone(),
        };
        Ok(Some(copy_file_between((from, to), &target, self.rate_limit().as_ref(), self.reach.timeout())?))
    }
}
