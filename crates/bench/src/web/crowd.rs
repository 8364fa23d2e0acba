//! Many clients that ask for one page at the same moment.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::connection::{BUFFER, open_all, wait};

/// When a client had the first byte of its answer, and the last, since all have asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Served {
    pub(crate) first: Duration,
    pub(crate) last: Duration,
}

/// One request on each of `clients` connections, which are open before.
///
/// # Errors
/// If an answer is not well, or not there within `patience`.
pub(crate) fn ask_at_once(
    address: SocketAddr,
    path: &str,
    clients: usize,
    patience: Duration,
) -> Result<Vec<Served>, String> {
    let (epoll, mut connections) = open_all(address, clients)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let began = Instant::now();
    connections.iter_mut().try_for_each(|connection| connection.send(request.as_bytes()))?;
    let (mut firsts, mut lasts) = (vec![None; clients], vec![None; clients]);
    let (mut events, mut scratch, mut left) = (Vec::with_capacity(256), vec![0; BUFFER], clients);
    while left > 0 {
        if began.elapsed() > patience {
            return Err(format!("{left} of {clients} clients had no answer of {path} within {patience:?}"));
        }
        wait(&epoll, &mut events, patience)?;
        for event in &events {
            let at = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
            let (Some(connection), None) = (connections.get_mut(at), lasts.get(at).copied().flatten()) else {
                return Err("the server says more than it was asked".to_owned());
            };
            firsts[at].get_or_insert_with(|| began.elapsed());
            if connection.receive(&mut scratch)?.is_some() {
                lasts[at] = Some(began.elapsed());
                left -= 1;
            }
        }
    }
    let served = firsts.into_iter().zip(lasts).map(|(first, last)| Some(Served { first: first?, last: last? }));
    served.collect::<Option<_>>().ok_or_else(|| "a client was not served".to_owned())
}
