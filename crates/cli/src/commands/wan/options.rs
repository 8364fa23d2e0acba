//! The options of a link as flags, made from the definitions that files are read by.

use std::path::Path;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use verbena_wan::router::{DataPath, Mode};
use verbena_wan::{Backend, BackendName, DEFINITIONS, OptionError, RouterOptions, Way, read_file};

/// What runs the link, as arguments.
#[derive(Args, Clone, Copy, Debug)]
pub struct BackendArguments {
    /// What runs the link.
    #[arg(long, value_enum, default_value_t)]
    backend: BackendArgument,
    /// What the router does while nothing is due [default: precise].
    #[arg(long, value_enum)]
    mode: Option<ModeArgument>,
    /// How the router takes packets [default: packet].
    #[arg(long, value_enum)]
    path: Option<PathArgument>,
    /// The seed of all random choices of the router: with the same seed the same packets meet the same fate [default: 1].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// A processor core, from 0, for the router alone: its thread stays there, and what runs in the sites keeps off it.
    #[arg(long, value_name = "N")]
    core: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum BackendArgument {
    /// This program, in user space: on every kernel, with all options.
    #[default]
    Router,
    /// netem of the kernel, where it has that: no mode, no seed, and not all options.
    Kernel,
}

impl BackendArguments {
    /// What they say.
    pub fn backend(self) -> Result<Backend, OptionError> {
        let name = match self.backend {
            BackendArgument::Router => BackendName::Router,
            BackendArgument::Kernel => BackendName::Kernel,
        };
        let options = RouterOptions {
            mode: self.mode.map(Mode::from),
            path: self.path.map(DataPath::from),
            seed: self.seed,
            core: self.core,
        };
        Ok(Backend::new(name, options)?)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ModeArgument {
    /// It keeps a core busy near each release, and all the time where a delay is under 200 us: exact to microseconds.
    Precise,
    /// It sleeps: each release is late by 50 to 130 us, more on a busy machine.
    Sleep,
}

impl From<ModeArgument> for Mode {
    fn from(argument: ModeArgument) -> Mode {
        match argument {
            ModeArgument::Precise => Mode::Precise,
            ModeArgument::Sleep => Mode::Sleep,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PathArgument {
    /// Frames, which it takes and sends: everything that is Ethernet, with all options.
    Packet,
    /// Packets of IP that stay in the kernel until it lets them go on: as much as a kernel forwards, but delay alone.
    Nfqueue,
}

impl From<PathArgument> for DataPath {
    fn from(argument: PathArgument) -> DataPath {
        match argument {
            PathArgument::Packet => DataPath::Packet,
            PathArgument::Nfqueue => DataPath::Nfqueue,
        }
    }
}

/// The options of one link. To be flattened into a command.
#[derive(Clone, Debug, Default)]
pub struct LinkOptions {
    both: Vec<(&'static str, String)>,
    there: Vec<String>,
    back: Vec<String>,
}

const THERE: &str = "there";
const BACK: &str = "back";
const HEADING: &str = "Link";

impl LinkOptions {
    /// What they say of the way there and of the way back. Files are looked for in this directory.
    pub fn ways(&self) -> Result<[Way; 2], OptionError> {
        let read = |path: &str| read_file(Path::new(""), path);
        let mut both = Way::default();
        for (name, value) in &self.both {
            both.set(name, value, &read)?;
        }
        let mut ways = [both.clone(), both];
        for (way, own) in ways.iter_mut().zip([&self.there, &self.back]) {
            way.change(&own.join(" "), &read)?;
        }
        Ok(ways)
    }
}

fn flag(name: &str) -> String {
    name.replace('_', "-")
}

impl Args for LinkOptions {
    fn augment_args(mut command: Command) -> Command {
        for definition in &DEFINITIONS {
            let flag = Arg::new(definition.name).long(flag(definition.name)).value_name(definition.value);
            command = command.arg(flag.help(definition.help).help_heading(HEADING));
        }
        for (name, help) in [
            (THERE, "Options of the way from a to b alone, such as 'delay=5ms loss=1%'; they come after the others"),
            (BACK, "Options of the way from b to a alone"),
        ] {
            let flag = Arg::new(name).long(name).value_name("OPTIONS").action(ArgAction::Append);
            command = command.arg(flag.help(help).help_heading(HEADING));
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        LinkOptions::augment_args(command)
    }
}

impl FromArgMatches for LinkOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut options = LinkOptions::default();
        options.update_from_arg_matches(matches)?;
        Ok(options)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let given = |name| matches.get_one::<String>(name).cloned();
        self.both = DEFINITIONS.iter().filter_map(|option| Some((option.name, given(option.name)?))).collect();
        let all = |name| matches.get_many::<String>(name).into_iter().flatten().cloned().collect();
        (self.there, self.back) = (all(THERE), all(BACK));
        Ok(())
    }
}
