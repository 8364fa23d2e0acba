//! `verbena cp` between two sides on this machine.

use std::io::Write;
use std::time::Instant;

use serde::Serialize;
use verbena_ftp::{Change, ChannelKind, CopyError, LocalOptions, Progress, copy_local};

use super::super::ftp::files;
use super::{Changed, Command, Failed, Shown, failed, say_failures};
use crate::error::{Error, Result};
use crate::output::{output, write_json};

#[derive(Serialize)]
struct CopiedLocally {
    /// Files and directories that stand.
    entries: u64,
    /// Bytes that were copied.
    bytes: u64,
    seconds: f64,
    channel: &'static str,
    /// Whether what was copied was hashed on its way.
    is_proven: bool,
    changes: Vec<Changed>,
    failures: Vec<Failed>,
}

impl Command {
    /// Copies from here to here.
    pub(super) fn locally(&self, began: Instant) -> Result<()> {
        self.check_is_local()?;
        let options = LocalOptions {
            from: self.from.clone().into(),
            to: self.to.clone().into(),
            is_durable: !self.no_sync,
            is_proven: !self.no_proof,
            compares: self.checksum,
            is_update: self.update,
            exclude: self.exclude.iter().map(|name| name.clone().into_bytes()).collect(),
            deletes: self.delete,
            is_dry: self.dry_run,
            preserves: self.preserve,
        };
        let (mut changes, mut count, mut out) = (Vec::new(), 0_u64, output());
        let mut gone = Ok(());
        let mut changed = |change: &Change| {
            count += 1;
            match (self.format.json, self.dry_run) {
                (true, _) => changes.push(Changed::of(change)),
                // The first error is told at the end.
                (false, true) if gone.is_ok() => gone = Changed::of(change).say(&mut out),
                _ => {}
            }
        };
        let mut shown = Shown::new(&self.format, began);
        let copied = copy_local(&options, &mut changed, &mut |progress: &Progress| shown.report(progress));
        shown.clear();
        let summary = copied.map_err(CopyError::from)?;
        gone?;
        let (entries, bytes, seconds) = (summary.files, summary.bytes, began.elapsed().as_secs_f64());
        let failures = failed(&summary);
        let all_stand = failures.is_empty();
        if self.format.json {
            let (channel, is_proven) = (ChannelKind::Descriptor.name(), options.is_proven);
            write_json(&mut out, &CopiedLocally { entries, bytes, seconds, channel, is_proven, changes, failures })?;
        } else {
            if self.explain {
                let proof = match options.is_proven {
                    true => "each file is proven by the root of its hashes",
                    false => "nothing is proven, because of --no-proof",
                };
                writeln!(
                    out,
                    "descriptor: both sides are on this machine, so that the receiver copies from the files; {proof}"
                )?;
            }
            say_failures(&mut out, &failures)?;
            writeln!(
                out,
                "{entries} files and directories stand, {count} changes, {bytes} bytes were copied in {seconds:.1} s"
            )?;
        }
        if all_stand { Ok(()) } else { Err(Error::No) }
    }

    /// What is for servers is refused between two sides here.
    fn check_is_local(&self) -> Result<()> {
        let is_other = |kind: &ChannelKind| *kind != ChannelKind::Descriptor;
        let options = [
            (self.streams.is_some(), "--streams"),
            (self.channel.iter().any(is_other), "--channel"),
            (self.limit.is_some(), "--limit"),
            (self.plain, "--plain"),
            (self.reach.is_encrypted(), "--tls"),
        ];
        refuse(&options, "is for FTP servers, and both sides are on this machine: nothing was copied. Leave it out")
    }

    /// What is for two sides here is refused where one is a server.
    pub(super) fn check_is_not_local(&self) -> Result<()> {
        let options = [(self.checksum, "--checksum"), (self.preserve, "--preserve"), (self.no_proof, "--no-proof")];
        refuse(&options, "is for two sides on this machine, and one is a server: nothing was copied. Leave it out")
    }
}

fn refuse(options: &[(bool, &str)], why: &str) -> Result<()> {
    match options.iter().find(|(is_given, _)| *is_given) {
        Some((_, option)) => Err(files::refused(format!("{option} {why}"))),
        None => Ok(()),
    }
}
