//! The section `[monitor]` of the configuration file.

use std::path::PathBuf;
use std::time::Duration;

use verbena_terms::{Contradiction, Lapse, section};

section! {
    /// How loaded this node's machine is, published for the others.
    pub struct MonitorConfig as "monitor", checked by MonitorConfig::check {
        /// How often the machine's load is measured and published, 10ms to 10s. Nodes that use it read it as often.
        pub every: Lapse as "TIME" = Lapse::millis(100),
        /// The directory of the kernel's figures about the machine.
        ///
        /// To be set where the node runs in a container that has the machine's under another name.
        pub proc: PathBuf as "DIR" = PathBuf::from("/proc"),
        /// A core for the thread that publishes and reads: it stays there.
        ///
        /// Not set: it runs where the kernel puts it.
        pub core: Option<u32> as "NUMBER" = None,
    }
}

impl MonitorConfig {
    fn check(&self) -> Vec<Contradiction> {
        let possible = Duration::from_millis(10)..=Duration::from_secs(10);
        let every = (!possible.contains(&self.every.0)).then(|| {
            let problem = format!("{} is not between 10ms and 10s", self.every);
            Contradiction::new("every", problem)
        });
        every.into_iter().collect()
    }
}
