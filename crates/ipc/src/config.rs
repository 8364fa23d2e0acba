//! The section `[ipc]` of the configuration file.

use verbena_terms::{Contradiction, section};

use crate::mode::Mode;
use crate::server::Options;

section! {
    /// How programs on this machine and the helper talk.
    pub struct IpcConfig as "ipc", checked by IpcConfig::check {
        /// The modes that programs may ask for; each chooses for itself, and one that does not ask gets `adaptive`. A mode that is not listed
        /// is refused.
        ///
        /// `mq`: System V message queues both ways; `rmq`: a ring in shared memory for requests, a queue for answers; `rcq`: rings both
        /// ways, which the program polls, so that it has a core for as long as it waits; `adaptive`: rings both ways, polled while that
        /// pays, then a sleep.
        pub modes: Vec<Mode> as "MODE" = Mode::ALL.to_vec(),
        /// A core for the thread that serves programs: it stays there and polls, all the time, so that it never has to be woken (the
        /// papers' onloading). It takes the whole core; keep everything else off that core (`taskset`, cpusets).
        ///
        /// Not set: no core is dedicated. The thread runs where the kernel puts it, polls while that pays and sleeps when nothing is to
        /// do; the first request after a pause wakes it, in every mode.
        pub progress_core: Option<u32> as "NUMBER" = None,
    }
}

impl IpcConfig {
    /// What a server is bound with.
    pub fn options(&self) -> Options {
        let progress_core = self.progress_core.map(|core| core as usize);
        Options { modes: self.modes.clone(), progress_core, ..Options::default() }
    }

    fn check(&self) -> Vec<Contradiction> {
        let none = self.modes.is_empty();
        none.then(|| Contradiction::new("modes", "no program could be served")).into_iter().collect()
    }
}
