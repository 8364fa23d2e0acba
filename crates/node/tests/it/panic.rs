//! A panic in a service ends the process: seen from outside, by a process that this test starts.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;

use verbena_cluster::Notice;
use verbena_metrics::Registry;
use verbena_node::{Helper, Life, Replies, Service};

const IN: &str = "VERBENA_TEST_PANICS_IN";

struct Panics;

impl Service for Panics {
    fn name(&self) -> &'static str {
        "panics"
    }

    fn begin(&mut self, _: &Life) -> Result<(), String> {
        Ok(())
    }

    fn notice(&mut self, _: &Notice, _: &Replies) {
        panic!("this service is broken");
    }

    fn close(&mut self, _: &Replies) {}

    fn end(&mut self) {}
}

#[test]
fn a_panic_in_a_service_ends_the_process_loudly() {
    if let Some(directory) = std::env::var_os(IN) {
        return host_it(directory.as_ref());
    }
    let directory = tempfile::tempdir().unwrap();
    let test = ["--exact", "panic::a_panic_in_a_service_ends_the_process_loudly", "--nocapture"];
    let output = Command::new(std::env::current_exe().unwrap()).args(test).env(IN, directory.path()).output().unwrap();
    assert_eq!(output.status.signal(), Some(rustix::process::Signal::ABORT.as_raw()), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("this service is broken"), "{said}");
}

fn host_it(directory: &std::path::Path) {
    let settings = crate::common::settings(directory);
    let helper = Helper::start(&settings, vec![Box::new(Panics)], Arc::new(Registry::new()), Box::new(|_| {}));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(crate::common::PATIENCE, helper.unwrap().ended()).await.unwrap() });
}
