//! Sessions of many files on the server (rule T1): the streams that bring the token, and the machines on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use verbena_transfer::{
    CHUNK_BYTES, Channel, FileError, Progress, Root, SessionSettings, Sources, Store, Token, VirtualPath, Walk,
    receive, send, take_hello,
};

use crate::address::canonical;
use crate::data::{MOST_PROOFS, PROOF};
use crate::error::TransferError;
use crate::machine::Outcome;
use crate::session::{OneTransfer, blocking};
use crate::watched::{Watched, stands_still};

/// Runs one session: 150 once the streams may come, and its end.
pub(crate) async fn run(
    one: OneTransfer,
    root: Arc<Root>,
    path: VirtualPath,
    is_upload: bool,
    listener: Option<TcpListener>,
) -> Result<(), TransferError> {
    let (Some(listener), Some((token, streams))) = (listener, one.session) else {
        return Err(TransferError::NoConnection);
    };
    let walk = match is_upload {
        true => None,
        false => {
            let (root, path) = (root.clone(), path.clone());
            Some(blocking(move || Walk::new(root, path)).await.ok_or(TransferError::Broken)??)
        }
    };
    let _ = one.outcomes.send(Outcome::Opened { size: None, name: None });
    let moved = Arc::new(AtomicU64::new(0));
    let channels = tokio::select! {
        channels = streams_of(&one, &listener, token, streams, &moved) => channels,
        () = tokio::time::sleep(one.shared.options.connect_timeout) => return Err(TransferError::NoConnection),
        () = one.running.wake.notified() => return Err(TransferError::Broken),
    };
    drop(listener);
    let running = one.running.clone();
    let result = blocking(move || {
        let settings = SessionSettings::new(1, streams);
        let mut report = |progress: &Progress| {
            running.moved.store(progress.bytes, Ordering::Relaxed);
            !running.is_aborted()
        };
        let summary = match walk {
            None => receive(channels, Store::new(root, path, CHUNK_BYTES, true), settings, &mut report),
            Some(walk) => send(channels, Sources::new(root, path), walk, settings, &mut report),
        };
        running.forget();
        match summary {
            Ok(summary) if summary.failures.is_empty() => Ok(()),
            // Each has been told over the session by name.
            Ok(_) => Err(TransferError::File(FileError::Busy)),
            Err(error) => {
                tracing::info!(%error, "a session ended before its end");
                Err(TransferError::Broken)
            }
        }
    });
    tokio::pin!(result);
    let result = tokio::select! {
        result = &mut result => return result.ok_or(TransferError::Broken)?,
        () = stands_still(&moved, one.shared.options.session_stall_timeout) => {
            one.running.abort();
            result.await
        }
    };
    result.ok_or(TransferError::Broken)?.map_err(|_| TransferError::Stalled)
}

/// Takes connections until each stream has come with the token. What comes without it is closed, and listening goes on.
async fn streams_of(
    one: &OneTransfer,
    listener: &TcpListener,
    token: Token,
    streams: u16,
    moved: &Arc<AtomicU64>,
) -> Vec<Box<dyn Channel>> {
    let mut proofs = JoinSet::new();
    let mut found: Vec<Option<std::net::TcpStream>> = (0..streams).map(|_| None).collect();
    while found.iter().any(Option::is_none) {
        tokio::select! {
            taken = listener.accept(), if proofs.len() < MOST_PROOFS => match taken {
                Ok((stream, peer)) if one.allowed.contains(&canonical(peer.ip())) => {
                    proofs.spawn(blocking(move || {
                        let mut stream = stream.into_std().ok()?;
                        stream.set_nonblocking(false).ok()?;
                        let (number, all) = take_hello(&mut stream, &token, PROOF).ok()?;
                        (all == streams).then_some((number, stream))
                    }));
                }
                Ok((_, peer)) => tracing::info!(%peer, "a stranger at a port of a session was closed"),
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(proof) = proofs.join_next() => {
                if let Ok(Some(Some((number, stream)))) = proof {
                    let keepalive = socket2::TcpKeepalive::new().with_time(one.shared.options.stall_timeout);
                    let _ = socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive);
                    // A number counts once.
                    if let Some(place @ None) = found.get_mut(usize::from(number)) {
                        *place = Some(stream);
                    }
                }
            }
        }
    }
    let channels = found.into_iter().flatten();
    channels
        .map(|stream| {
            if let Ok(second) = stream.try_clone() {
                one.running.keep(second);
            }
            Box::new(Watched { stream, moved: moved.clone() }) as Box<dyn Channel>
        })
        .collect()
}
