//! What stands in the place of the client where that was left out: it cannot be started, so nothing else of it is ever called.

use std::convert::Infallible;
use std::time::Duration;

use verbena_cluster::{Answer, KeeperRecord, Question};
use verbena_terms::{Rank, ViewNumber};

use crate::config::{Deadlines, EtcdConfig};
use crate::error::{Error, Result};

/// A connection to etcd, which this build leaves out.
pub struct Etcd(Infallible);

#[allow(missing_docs, reason = "as of the client")]
impl Etcd {
    pub fn start(_: &EtcdConfig, _: Deadlines) -> Result<Self> {
        Err(Error::LeftOut)
    }

    pub fn ask(&self, _: Question, _: impl FnOnce(Result<Answer>) + Send + 'static) {
        match self.0 {}
    }

    pub fn ask_now(&self, _: Question, _: Duration) -> Result<Answer> {
        match self.0 {}
    }

    pub fn name(&self, _: Rank, _: impl FnOnce(Result<Option<String>>) + Send + 'static) {
        match self.0 {}
    }

    pub fn views(&self, _: ViewNumber, _: usize, _: Duration) -> Result<Vec<KeeperRecord>> {
        match self.0 {}
    }
}
