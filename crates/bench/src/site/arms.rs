//! An application as Debian packages it, once for each arm. `scripts/site/arms.sh` starts it, of what starts the site of `make demo-site` too.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::content::{Running, free_addresses};
use crate::error::BenchError;
use crate::web::PROGRAM;

/// Pages of a site.
pub(super) const PAGES: usize = 20;
/// How long a site may take until all of its arms answer. Each is installed anew.
const PATIENCE: Duration = Duration::from_secs(240);
const LOOK: Duration = Duration::from_millis(50);
/// The script's exit says this, with the reason behind it, where a program or the site is not installed.
const SKIPPED: &str = "skipped: ";

/// The scripts, and the extension that they build: they are in the program, and need no repository around it.
const FILES: [(&str, &str); 11] = [
    ("scripts/children.sh", include_str!("../../../../scripts/children.sh")),
    ("scripts/site/arms.sh", include_str!("../../../../scripts/site/arms.sh")),
    ("scripts/site/stack.sh", include_str!("../../../../scripts/site/stack.sh")),
    ("scripts/site/mediawiki.sh", include_str!("../../../../scripts/site/mediawiki.sh")),
    ("scripts/site/wordpress.sh", include_str!("../../../../scripts/site/wordpress.sh")),
    ("adapters/php/Makefile", include_str!("../../../../adapters/php/Makefile")),
    ("adapters/php/module.h", include_str!("../../../../adapters/php/module.h")),
    ("adapters/php/verbena.c", include_str!("../../../../adapters/php/verbena.c")),
    ("adapters/php/answers.c", include_str!("../../../../adapters/php/answers.c")),
    ("adapters/php/outside.c", include_str!("../../../../adapters/php/outside.c")),
    ("adapters/php/statements.c", include_str!("../../../../adapters/php/statements.c")),
];

/// What is cached, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arm {
    None,
    Own,
    All,
    Relay,
    Tags,
    Proofs,
}

impl Arm {
    pub(super) const ALL: [Arm; 6] = [Arm::None, Arm::Own, Arm::All, Arm::Relay, Arm::Tags, Arm::Proofs];

    pub(super) fn name(self) -> &'static str {
        match self {
            Arm::None => "no cache",
            Arm::Own => "own page cache",
            Arm::All => "invalidate all",
            Arm::Relay => "relay",
            Arm::Tags => "relay, tags",
            Arm::Proofs => "relay, proofs",
        }
    }

    /// Its name in the script.
    fn word(self) -> &'static str {
        match self {
            Arm::None => "none",
            Arm::Own => "own",
            Arm::All => "all",
            Arm::Relay => "relay",
            Arm::Tags => "tags",
            Arm::Proofs => "proofs",
        }
    }

    /// What it is, for the report.
    pub(super) fn explained(self) -> &'static str {
        match self {
            Arm::None => "the proxy passes each request on",
            Arm::Own => "the proxy passes each request on, the application has whole pages in files",
            Arm::All => "each POST takes all pages out of the proxy",
            Arm::Relay => "database.complete is promised; statements have no tags",
            Arm::Tags => {
                "database.complete is promised; the extension for PHP tags statements, and testifies for no page"
            }
            Arm::Proofs => "nothing is promised; the extension for PHP tags statements and testifies",
        }
    }

    /// Whether no answer of it may be stale.
    pub(super) fn is_ours(self) -> bool {
        !matches!(self, Arm::None | Arm::Own)
    }
}

/// An application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Site {
    MediaWiki,
    WordPress,
}

impl Site {
    pub(super) const ALL: [Site; 2] = [Site::MediaWiki, Site::WordPress];

    /// Its name, also in the script.
    pub(super) fn name(self) -> &'static str {
        match self {
            Site::MediaWiki => "mediawiki",
            Site::WordPress => "wordpress",
        }
    }

    pub(super) fn host(self) -> &'static str {
        match self {
            Site::MediaWiki => "wiki.example",
            Site::WordPress => "blog.example",
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A site with all of its arms, which are running.
pub(super) struct Stack {
    running: Running,
    /// Each with the address of its proxy, or why it cannot be.
    pub(super) arms: Vec<(Arm, Result<SocketAddr, String>)>,
    /// The numbers of WordPress's posts.
    pub(super) posts: Vec<u64>,
}

impl Stack {
    /// Installs and starts a site in `place`, or says what is missing.
    pub(super) fn start(site: Site, verbena: &Path, place: &Path) -> Result<Result<Self, String>, BenchError> {
        let tree = place.join("tree");
        write(&tree)?;
        let folder = place.join(site.name());
        std::fs::create_dir(&folder).map_err(|error| BenchError::io(&folder, error))?;
        let [first] = free_addresses()?;
        let text = |path: &Path| path.display().to_string();
        let (script, verbena, directory) = (text(&tree.join("scripts/site/arms.sh")), text(verbena), text(&folder));
        let (pages, port) = (PAGES.to_string(), first.port().to_string());
        let words = [PROGRAM, "bash", &script, site.name(), &verbena, &directory, &pages, &port];
        let mut running = Running::begin(site.name(), &words, place)?.ended_in_order();
        let until = Instant::now() + PATIENCE;
        let arms = loop {
            match std::fs::read_to_string(folder.join("arms")) {
                Ok(arms) => break arms,
                Err(_) if Instant::now() > until => {
                    return Err(running.failed(&format!("was not there within {PATIENCE:?}")));
                }
                Err(_) => std::thread::sleep(LOOK),
            }
            if let Err(error) = running.look() {
                let BenchError::Process { said, .. } = &error else { return Err(error) };
                let reason = said.lines().find_map(|line| line.strip_prefix(SKIPPED)).map(str::to_owned);
                return reason.map(Err).ok_or(error);
            }
        };
        let posts = match site {
            Site::MediaWiki => String::new(),
            Site::WordPress => read(&folder.join("posts"))?,
        };
        let posts: Vec<u64> = posts.lines().filter_map(|line| line.parse().ok()).collect();
        let arms = Arm::ALL.into_iter().filter_map(|arm| Some((arm, found(&arms, arm)?))).collect::<Vec<_>>();
        if arms.len() < Arm::ALL.len() || (site == Site::WordPress && posts.len() != PAGES) {
            return Err(running.failed(&format!("has arms {arms:?} and {} posts", posts.len())));
        }
        Ok(Ok(Stack { running, arms, posts }))
    }

    /// An error if any of it has ended: the script ends then.
    pub(super) fn look(&mut self) -> Result<(), BenchError> {
        self.running.look()
    }
}

/// What the script says of an arm: `NAME PORT`, or `NAME - REASON`.
fn found(arms: &str, arm: Arm) -> Option<Result<SocketAddr, String>> {
    let said = arms.lines().find_map(|line| line.strip_prefix(arm.word())?.strip_prefix(' '))?;
    match said.strip_prefix("- ") {
        Some(reason) => Some(Err(reason.to_owned())),
        None => Some(Ok(SocketAddr::from(([127, 0, 0, 1], said.parse().ok()?)))),
    }
}

fn write(tree: &Path) -> Result<(), BenchError> {
    for (name, content) in FILES {
        let file: PathBuf = tree.join(name);
        let folder = file.parent().unwrap_or(tree);
        std::fs::create_dir_all(folder).map_err(|error| BenchError::io(folder, error))?;
        std::fs::write(&file, content).map_err(|error| BenchError::io(&file, error))?;
    }
    Ok(())
}

fn read(file: &Path) -> Result<String, BenchError> {
    std::fs::read_to_string(file).map_err(|error| BenchError::io(file, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_script_says_of_an_arm_is_read() {
        let said = "none 8080\nown - it has none\nall x\n";
        assert_eq!(found(said, Arm::None), Some(Ok(SocketAddr::from(([127, 0, 0, 1], 8_080)))));
        assert_eq!(found(said, Arm::Own), Some(Err("it has none".to_owned())));
        assert_eq!((found(said, Arm::All), found(said, Arm::Relay)), (None, None));
    }

    #[test]
    fn the_program_has_all_that_the_extension_is_built_of() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../adapters/php");
        let is_source = |name: &str| name.ends_with(".c") || name.ends_with(".h");
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut of_folder: Vec<String> = entries.filter(|name| is_source(name)).collect();
        let of_program = FILES.iter().filter_map(|(name, _)| name.strip_prefix("adapters/php/"));
        let mut of_program: Vec<&str> = of_program.filter(|name| is_source(name)).collect();
        of_folder.sort_unstable();
        of_program.sort_unstable();
        assert_eq!(of_folder, of_program);
    }
}
