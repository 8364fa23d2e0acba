//! A relay on loopback between two nodes, which can lose, hold and cut what it carries.
//!
//! It carries bytes and knows nothing of frames, so that it works on secured connections too. What was lost or held on a
//! connection breaks that connection when the relay is sound again, as a network does that was away for too long; what was held for the
//! target is delivered then, on the old connection, while the caller is already making a new one.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

/// What happens to bytes in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Pass,
    Lose,
    Hold,
}

/// One relay to one target. Both directions pass at first.
pub struct Relay {
    pub address: SocketAddr,
    up: watch::Sender<Mode>,
    down: watch::Sender<Mode>,
}

impl Relay {
    /// From the caller to the target.
    pub fn up(&self, mode: Mode) {
        self.up.send_replace(mode);
    }

    /// From the target to the caller.
    pub fn down(&self, mode: Mode) {
        self.down.send_replace(mode);
    }
}

/// The thread that all relays of a test run on. Ends when dropped.
pub struct Relays {
    handle: tokio::runtime::Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Default for Relays {
    fn default() -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tell.send(runtime.handle().clone()).unwrap();
            let _ = runtime.block_on(stopped);
        });
        Relays { handle: told.recv().unwrap(), stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Relays {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().unwrap().join();
    }
}

impl Relays {
    pub fn to(&self, target: SocketAddr) -> Relay {
        self.at(SocketAddr::from(([127, 0, 0, 1], 0)), target)
    }

    /// One that is reached at this address, port 0 for a free one.
    pub fn at(&self, here: SocketAddr, target: SocketAddr) -> Relay {
        let (up, up_mode) = watch::channel(Mode::Pass);
        let (down, down_mode) = watch::channel(Mode::Pass);
        let (tell, told) = mpsc::channel();
        self.handle.spawn(async move {
            let listener = TcpListener::bind(here).await.unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            let mut turn = 0;
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry_both(client, target, up_mode.clone(), down_mode.clone(), turn));
                turn += 1;
            }
        });
        Relay { address: told.recv().unwrap(), up, down }
    }
}

async fn carry_both(
    client: TcpStream,
    target: SocketAddr,
    up: watch::Receiver<Mode>,
    down: watch::Receiver<Mode>,
    turn: u64,
) {
    let Ok(server) = TcpStream::connect(target).await else { return };
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (mut held_up, mut held_down) = (Vec::new(), Vec::new());
    tokio::select! {
        () = carry(&mut from_client, &mut to_server, up, &mut held_up) => {}
        () = carry(&mut from_server, &mut to_client, down, &mut held_down) => {}
    }
    drop((from_client, to_client));
    if held_up.is_empty() {
        return;
    }
    // Now before what the caller sends on its new connection, now behind it.
    tokio::time::sleep(Duration::from_millis(50 * (turn % 2))).await;
    if to_server.write_all(&held_up).await.is_ok() && to_server.shutdown().await.is_ok() {
        let mut nowhere = tokio::io::sink();
        let _ = tokio::time::timeout(Duration::from_secs(2), tokio::io::copy(&mut from_server, &mut nowhere)).await;
    }
}

/// Carries until an end closes, or until what was not carried makes the connection worthless.
async fn carry(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, mut mode: watch::Receiver<Mode>, held: &mut Vec<u8>) {
    let mut chunk = vec![0; 64 << 10];
    let (mut spoilt, mut ended) = (false, false);
    loop {
        tokio::select! {
            read = from.read(&mut chunk), if !ended => {
                let bytes = read.unwrap_or(0);
                ended = bytes == 0;
                let now = *mode.borrow_and_update();
                match now {
                    _ if ended => {}
                    Mode::Pass => ended = to.write_all(&chunk[..bytes]).await.is_err(),
                    Mode::Lose => spoilt = true,
                    Mode::Hold => {
                        spoilt = true;
                        held.extend_from_slice(&chunk[..bytes]);
                    }
                }
                // A network that is away does not tell one end that the other has closed.
                if ended && now == Mode::Pass {
                    return;
                }
            }
            changed = mode.changed() => {
                let sound = *mode.borrow_and_update() == Mode::Pass;
                if changed.is_err() || sound && (spoilt || ended) {
                    return;
                }
            }
        }
    }
}
