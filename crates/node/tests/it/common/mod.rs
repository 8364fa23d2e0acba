//! Helpers in the test's process, each with directories of its own.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use verbena_cluster::{Configured, Roles};
use verbena_metrics::Registry;
use verbena_node::{Event, Helper, Service, Settings};
use verbena_terms::{BootClock, Clock, Time};

/// The longest wait for anything that must happen.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// When patience ends that begins now.
pub fn within() -> Time {
    BootClock.now() + PATIENCE
}

/// Those of a helper that nobody configured, in this directory.
pub fn settings(directory: &Path) -> Settings {
    let mut settings = Settings::default();
    settings.node.runtime = Some(directory.join("run"));
    settings.node.state = Some(directory.join("state"));
    settings
}

/// Members on this machine, with every role.
pub fn members(names: &[&str]) -> Vec<Configured> {
    let member = |name: &&str| Configured { name: (*name).into(), address: format!("shm://{name}"), roles: Roles::ALL };
    names.iter().map(member).collect()
}

/// A helper, and what it tells its observer.
pub fn start(
    settings: &Settings,
    services: Vec<Box<dyn Service>>,
    registry: Arc<Registry>,
) -> (Helper, Receiver<Event>) {
    let (tell, told) = channel();
    let observer = Box::new(move |event: &Event| drop(tell.send(event.clone())));
    (Helper::start(settings, services, registry, observer).unwrap(), told)
}

/// The next event that is as wanted; those before it are passed over.
pub fn wait_for(told: &Receiver<Event>, is_it: impl Fn(&Event) -> bool) -> Event {
    let until = within();
    loop {
        let event = told.recv_timeout(until.since(BootClock.now())).expect("it happens in time");
        if is_it(&event) {
            return event;
        }
    }
}
