//! The handle of a node's monitor, and the thread that runs it.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use verbena_cluster::{LeaseWord, View};
use verbena_fabric::Fabric;
use verbena_service::executor::{Executor, Service};
use verbena_service::hosted::Hosted;
use verbena_terms::{LoadCounts, ViewNumber};

use crate::host::{self, Measured, Running, measure};
use crate::{Loads, Metrics, MonitorConfig, Reading};

/// What a node has done, and how many programs are connected to it: read each time that its load is published.
pub type Source = Box<dyn Fn() -> (LoadCounts, u32) + Send>;

/// A node's monitor. Dropped, its thread ends.
pub struct Monitor(Arc<Executor<Runner>>);

/// What other threads submit.
enum Command {
    View(Arc<View>),
    /// Other loads are wanted.
    Wanted,
    /// How the machine is, and what the node has done.
    Measured(Measured),
}

/// Runs the driver.
struct Runner {
    driver: Running,
}

impl Service for Runner {
    type Command = Command;
    type Driver = Running;

    fn driver(&mut self) -> &mut Running {
        &mut self.driver
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::View(view) => self.driver.enter_view(&view),
            Command::Wanted => self.driver.command(|watch, host, now, out| host.wants(watch, now, out)),
            Command::Measured(measured) => {
                self.driver.command(|watch, host, now, out| host.measured(measured, watch, now, out));
            }
        }
    }

    fn deliver_answers(&mut self) {}

    fn idle(&mut self) {
        self.driver.idle();
    }
}

impl Monitor {
    /// Starts the thread. What is found is in `loads`.
    ///
    /// # Errors
    /// If the kernel does not report the machine's load, the thread may not run on its core, or the system refuses a thread.
    pub fn start(config: &MonitorConfig, loads: Loads, metrics: Metrics, source: Source) -> std::io::Result<Monitor> {
        Reading::of(&config.proc).map_err(std::io::Error::other)?;
        let (ask, asked) = sync_channel(1);
        let (driver, core) = (host::driver(config, loads.clone(), metrics, ask), config.core);
        let prepare = move || core.map_or(Ok(()), stay_on);
        let executor = Arc::new(Executor::start_with("verbena-monitor", Runner { driver }, prepare)?);
        let thread = Arc::downgrade(&executor);
        let (submits, proc) = (thread.clone(), config.proc.clone());
        // Apart from what membership waits for: the kernel's numbers may take long, and a panic over them costs them alone.
        std::thread::Builder::new().name("verbena-measures".into()).spawn(move || {
            if prepare().is_err() {
                return;
            }
            while asked.recv().is_ok() {
                let measured = measure(&proc, &source);
                let Some(executor) = submits.upgrade() else { return };
                executor.submit_to_thread(Command::Measured(measured));
            }
        })?;
        loads.on_wanted(move || {
            if let Some(executor) = thread.upgrade() {
                executor.submit_to_thread(Command::Wanted);
            }
        });
        Ok(Monitor(executor))
    }
}

impl Hosted for Monitor {
    const NAME: &'static str = "monitor";

    /// The incarnation has a board of its own.
    fn life_begins(&self, fabric: Arc<dyn Fabric>, lease: &Arc<LeaseWord>) -> verbena_fabric::Result<()> {
        self.0.with(|runner| runner.driver.start_incarnation(fabric, lease))
    }

    fn life_ends(&self) {
        self.0.with(|runner| runner.driver.end_incarnation());
    }

    /// Nothing rests on the lease.
    fn lease_lost(&self) {}

    /// The monitor does nothing that a view must end. So a machine that is too loaded to run its thread delays no view.
    fn view_learnt(&self, view: Arc<View>, prepared: impl FnOnce(ViewNumber) + Send + 'static) {
        prepared(view.number());
        self.0.submit_to_thread(Command::View(view));
    }

    fn close(&self, _: Duration, closed: impl FnOnce(bool) + Send + 'static) {
        closed(true);
    }
}

fn stay_on(core: u32) -> std::io::Result<()> {
    verbena_terms::stay_on(core as usize)
        .map_err(|error| std::io::Error::other(format!("core {core} of monitor.core cannot be used: {error}")))
}
