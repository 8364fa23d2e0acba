//! A relay of connections to a member, which can hold back what its clients send and deliver it later on the same connection. That of the testkit
//! ends a connection on which something was held, as a network does; here the asker must get the answer to its late question.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Carries connections for as long as it lives.
pub struct Relay {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    holds: AtomicBool,
    held: AtomicU64,
    ended: AtomicBool,
}

/// How often a thread looks whether it may go on.
const LOOK: Duration = Duration::from_millis(5);

impl Relay {
    pub fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        let carried = shared.clone();
        listener.set_nonblocking(true).unwrap();
        std::thread::spawn(move || {
            while !carried.ended.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((client, _)) => carry(client, target, &carried),
                    Err(_) => std::thread::sleep(LOOK),
                }
            }
        });
        Relay { port, shared }
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// From now on nothing that clients send arrives.
    pub fn hold(&self) {
        self.shared.holds.store(true, Ordering::SeqCst);
    }

    /// Lets what was held, and all that follows, arrive.
    pub fn release(&self) {
        self.shared.holds.store(false, Ordering::SeqCst);
    }

    /// Bytes that were held.
    pub fn held(&self) -> u64 {
        self.shared.held.load(Ordering::SeqCst)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        self.release();
    }
}

fn carry(client: TcpStream, target: u16, shared: &Arc<Shared>) {
    let Ok(server) = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], target))) else { return };
    client.set_nonblocking(false).unwrap();
    let ways = [(client.try_clone().unwrap(), server.try_clone().unwrap(), true), (server, client, false)];
    for (from, to, from_client) in ways {
        let shared = shared.clone();
        from.set_read_timeout(Some(LOOK)).unwrap();
        std::thread::spawn(move || one_way(from, to, from_client, &shared));
    }
}

fn one_way(mut from: TcpStream, mut to: TcpStream, from_client: bool, shared: &Shared) {
    let mut buffer = vec![0; 64 << 10];
    while !shared.ended.load(Ordering::Relaxed) {
        let bytes = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => bytes,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(_) => break,
        };
        if from_client && shared.holds.load(Ordering::SeqCst) {
            shared.held.fetch_add(bytes as u64, Ordering::SeqCst);
            while shared.holds.load(Ordering::SeqCst) {
                std::thread::sleep(LOOK);
            }
        }
        if to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
