//! A lock as its users have it in etcd: that of its own lock service, under a lease.

use std::time::{Duration, Instant};

use etcd_client::{Client, LockOptions};
use tokio::runtime::{Builder, Runtime};

use super::client::{PATIENCE, Service};

/// Longer than any run: it need not be kept alive.
const LEASE_S: i64 = 3_600;

pub(super) struct Etcd {
    runtime: Runtime,
    client: Client,
    lease: i64,
    key: Vec<u8>,
}

impl Etcd {
    /// Of a server at `address`.
    pub(super) fn connect(address: &str) -> Result<Self, String> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
        let until = Instant::now() + PATIENCE;
        let connect = || {
            runtime.block_on(async {
                let mut client = Client::connect([format!("http://{address}")], None).await?;
                let lease = client.lease_grant(LEASE_S, None).await?.id();
                Ok((client, lease))
            })
        };
        loop {
            match connect() {
                Ok((client, lease)) => return Ok(Etcd { runtime, client, lease, key: vec![] }),
                Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(50)),
                Err(error) => return Err(etcd_client::Error::to_string(&error)),
            }
        }
    }
}

impl Service for Etcd {
    fn acquire(&mut self, name: &str) -> Result<(), String> {
        let options = LockOptions::new().with_lease(self.lease);
        let locked = self.runtime.block_on(self.client.lock(name, Some(options)));
        self.key = locked.map_err(|error| error.to_string())?.key().to_vec();
        Ok(())
    }

    fn release(&mut self, _name: &str) -> Result<(), String> {
        let key = std::mem::take(&mut self.key);
        self.runtime.block_on(self.client.unlock(key)).map(drop).map_err(|error| error.to_string())
    }
}
