//! `verbena bank gluster`: the translators of a bank in volumes of GlusterFS.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use verbena_bank::Daemons;
use verbena_bank::gluster::{self, GlusterPaths, TranslatorOptions, VolumeReport};
use verbena_terms::Size;

use crate::error::{Error, Result};
use crate::output::{Format, output};

/// Load the translators of a bank in volumes of GlusterFS, look at them, and take them out.
#[derive(Debug, Subcommand)]
pub enum Command {
    Enable(Enable),
    Check(Check),
    Disable(Disable),
    Filter(Filter),
}

/// Where GlusterFS is.
#[derive(Args, Debug)]
struct Place {
    /// The working directory of glusterd; /var/lib/glusterd if not given.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The directory of GlusterFS with `xlator` in it; the newest /usr/lib/*/glusterfs/* if not given.
    #[arg(long, value_name = "DIR")]
    library: Option<PathBuf>,
}

/// Load the translators in a volume: in the files that glusterd gives to bricks and clients, now and whenever it writes them anew.
///
/// Bricks take them at the next start of the volume, clients at the next mount. Run it on each server, with the same list of daemons. No option of the volume is changed; `disable` puts every file back
/// as it was, also after an `enable` that was killed.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Example:
  make -C adapters/gluster install
  verbena bank gluster enable VOL --bank memcached://h1:11211,h2:11211
  gluster volume stop VOL && gluster volume start VOL")]
pub struct Enable {
    /// The volume.
    #[arg(value_name = "VOL")]
    volume: String,
    /// The daemons, as `verbena bank up` prints them. All servers and clients have to reach them.
    #[arg(long, value_name = "URL")]
    bank: String,
    /// strong: no read is older than the last write that was acknowledged; imca: the paper's, which is not coherent.
    #[arg(long, value_enum, default_value_t = Scheme::Strong)]
    scheme: Scheme,
    /// Bytes of a block: a power of two from 256B to 1MiB.
    #[arg(long, value_name = "SIZE", default_value_t = Size(64 << 10))]
    block: Size,
    /// How blocks are spread over the daemons.
    #[arg(long, value_enum, default_value_t = Spread::Crc32)]
    placement: Spread,
    /// A file with 32 hexadecimal digits, at the same path on all servers and clients. Without it checksums find damage, not forgery.
    #[arg(long, value_name = "FILE")]
    secret: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
}

/// Show whether the translators are in a volume's files, and what above them takes from the promise.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  verbena bank gluster check VOL")]
pub struct Check {
    /// The volume.
    #[arg(value_name = "VOL")]
    volume: String,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    format: Format,
}

/// Take the translators out of a volume's files again.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  verbena bank gluster disable VOL")]
pub struct Disable {
    /// The volume.
    #[arg(value_name = "VOL")]
    volume: String,
    #[command(flatten)]
    place: Place,
}

/// Load the translators in one file of a volume that has them enabled: what glusterd runs on each file that it has written.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  verbena bank gluster filter /var/lib/glusterd/vols/VOL/VOL.tcp-fuse.vol")]
pub struct Filter {
    /// The file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Scheme {
    Strong,
    Imca,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Spread {
    Crc32,
    Modulo,
}

#[derive(Serialize)]
struct Report {
    volume: String,
    enabled: bool,
    unfinished: bool,
    options: std::collections::BTreeMap<String, String>,
    loaded: Vec<PathBuf>,
    plain: Vec<PathBuf>,
    missing: Vec<PathBuf>,
    above: Vec<Above>,
}

#[derive(Serialize)]
struct Above {
    translator: String,
    takes: String,
    remedy: String,
}

impl Place {
    fn paths(self) -> Result<GlusterPaths> {
        Ok(GlusterPaths::find(self.state, self.library)?)
    }
}

impl Command {
    /// Runs it.
    pub fn run(self) -> Result<()> {
        match self {
            Command::Enable(enable) => enable.run(),
            Command::Check(Check { volume, place, format }) => {
                show(&volume, gluster::check(&place.paths()?, &volume)?, format.json)
            }
            Command::Disable(Disable { volume, place }) => {
                let changed = gluster::disable(&place.paths()?, &volume)?;
                changes(&volume, "without the translators", &changed)
            }
            Command::Filter(Filter { file }) => {
                gluster::filter(&file)?;
                Ok(())
            }
        }
    }
}

impl Enable {
    fn run(self) -> Result<()> {
        let refused = |problem: String| Error::Refused { problem, exit_code: 2 };
        let list = Daemons::parse(&self.bank).map_err(|error| refused(format!("--bank: {error}")))?;
        if list.list().iter().any(|daemon| daemon.weight != 1) {
            return Err(refused("--bank: the translators know no weights: leave out =WEIGHT".to_owned()));
        }
        let daemons: Vec<String> = list.list().iter().map(|daemon| daemon.address.to_string()).collect();
        let block = u32::try_from(self.block.0).ok().and_then(|bytes| verbena_bank::BlockSize::new(bytes).ok());
        let block =
            block.ok_or_else(|| refused(format!("--block {}: choose a power of two from 256B to 1MiB", self.block)))?;
        let name = |value: &dyn std::fmt::Debug| format!("{value:?}").to_lowercase();
        let mut options = vec![
            ("scheme", name(&self.scheme)),
            ("daemons", daemons.join(",")),
            ("block-size", block.bytes().to_string()),
            ("placement", name(&self.placement)),
        ];
        if let Some(secret) = &self.secret {
            let secret =
                secret.canonicalize().map_err(|error| refused(format!("--secret {}: {error}", secret.display())))?;
            options.push(("secret", secret.display().to_string()));
        }
        let options = TranslatorOptions::new(&options)?;
        let program = std::env::current_exe().map_err(|source| Error::System { doing: "find this program", source })?;
        let paths = self.place.paths()?;
        let changed = gluster::enable(&paths, &self.volume, &options, &program)?;
        changes(&self.volume, "with the translators", &changed)
    }
}

fn changes(volume: &str, how: &str, changed: &[PathBuf]) -> Result<()> {
    let mut out = output();
    for file in changed {
        writeln!(out, "{} {how}", file.display())?;
    }
    if changed.is_empty() {
        return Ok(writeln!(out, "volume {volume}: nothing to change")?);
    }
    Ok(writeln!(
        out,
        "bricks have it after `gluster volume stop {volume}` and `gluster volume start {volume}`, clients after the next mount"
    )?)
}

fn show(volume: &str, report: VolumeReport, json: bool) -> Result<()> {
    let mut out = output();
    let above = |finding: gluster::Finding| Above {
        translator: finding.translator,
        takes: finding.takes,
        remedy: finding.remedy,
    };
    let report = Report {
        volume: volume.to_owned(),
        enabled: report.is_enabled,
        unfinished: report.is_unfinished,
        options: report.options.into_iter().collect(),
        loaded: report.loaded,
        plain: report.plain,
        missing: report.missing,
        above: report.above.into_iter().map(above).collect(),
    };
    if json {
        let text = serde_json::to_string(&report).map_err(std::io::Error::other)?;
        return Ok(writeln!(out, "{text}")?);
    }
    writeln!(out, "enabled   {}", if report.enabled { "yes" } else { "no" })?;
    for (name, value) in &report.options {
        writeln!(out, "option    {name} {value}")?;
    }
    for (word, files) in [("loaded", &report.loaded), ("plain", &report.plain), ("missing", &report.missing)] {
        for file in files {
            writeln!(out, "{word:<9} {}", file.display())?;
        }
    }
    if report.unfinished {
        let again = if report.enabled { "enable" } else { "disable" };
        writeln!(out, "unfinished: run `verbena bank gluster {again} {volume}` again")?;
    }
    for Above { translator, takes, remedy } in &report.above {
        writeln!(out, "above     {translator} {takes}\n          off: {remedy}")?;
    }
    Ok(writeln!(
        out,
        "mounts    need -o attribute-timeout=0,entry-timeout=0,direct-io-mode=enable: without it the kernel keeps pages and attributes"
    )?)
}
