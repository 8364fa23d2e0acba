//! What this machine can do, found out by doing it.
//!
//! A provider of this build is opened, and a word is changed through it as a peer would. Of a provider that this build lacks only
//! what it would need is looked at. Nothing is guessed from versions or names.

mod machine;
mod providers;
mod running;
mod verbs;

use serde::Serialize;
use verbena_fabric::Capabilities;

use crate::config::Config;

/// All that was found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Providers of this build, the best first, and those that it lacks.
    pub providers: Vec<Provider>,
    /// Limits, clocks, directories, and the nodes that run.
    pub machine: Vec<Check>,
    /// What the configuration gets.
    pub choice: Choice,
    /// RDMA adapters, where this build has `verbs` and there are any.
    #[cfg(feature = "verbs")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapters: Option<verbs::Adapters>,
}

/// One provider.
#[derive(Debug, Serialize)]
pub struct Provider {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub for_what: &'static str,
    /// Whether this build has it.
    pub in_build: bool,
    /// Whether it worked when it was tried.
    pub usable: bool,
    /// What it can do; only of what worked.
    pub capabilities: Option<Capabilities>,
    /// What was looked at.
    pub checks: Vec<Check>,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
pub struct Check {
    /// What.
    pub what: &'static str,
    /// How it is.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do, where something is to be done.
    pub remedy: Option<String>,
}

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Good,
    /// It works; something could be better.
    Fair,
    /// It does not.
    Missing,
}

/// What the configuration gets.
#[derive(Debug, Serialize)]
pub struct Choice {
    /// What it asks for.
    pub asked: verbena_fabric::Choice,
    /// What it gets.
    pub provider: Option<&'static str>,
    /// Why that, or why nothing.
    pub why: String,
    /// Whether that works here.
    pub usable: bool,
}

impl Check {
    fn good(what: &'static str, found: impl Into<String>) -> Self {
        Check { what, verdict: Verdict::Good, found: found.into(), remedy: None }
    }

    fn fair(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Check { what, verdict: Verdict::Fair, found: found.into(), remedy: Some(remedy.into()) }
    }

    fn missing(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Check { what, verdict: Verdict::Missing, found: found.into(), remedy: Some(remedy.into()) }
    }
}

/// Looks at everything.
pub fn examine(config: &Config) -> Report {
    #[cfg(feature = "verbs")]
    let (verbs, adapters) = verbs::look(config);
    #[cfg(not(feature = "verbs"))]
    let verbs = verbs::look();
    let mut providers = providers::all(config);
    providers.push(verbs);
    let choice = choose(config, &providers);
    let mut machine = machine::checks(config);
    machine.extend(running::checks(config));
    Report {
        machine,
        providers,
        choice,
        #[cfg(feature = "verbs")]
        adapters,
    }
}

fn choose(config: &Config, providers: &[Provider]) -> Choice {
    let asked = config.fabric.provider;
    let members: Vec<_> = config.cluster.members.iter().map(|member| member.address.clone()).collect();
    match verbena_fabric::choose(asked, &members) {
        Ok((provider, why)) => {
            let works = |found: &Provider| found.name == provider.name() && found.usable;
            Choice { asked, provider: Some(provider.name()), why, usable: providers.iter().any(works) }
        }
        Err(error) => Choice { asked, provider: None, why: error.to_string(), usable: false },
    }
}
