//! Sessions of many files on the server (rule T1): the streams that bring the token, and the machines on them.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, TryRecvError, channel};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use verbena_transfer::{
    Arriving, CHUNK_BYTES, Channel, ChannelKind, DescriptorListener, Endpoint, FileError, Later, Links, Progress,
    QuicListener, Root, SessionSettings, Sources, Store, Token, TunerSettings, VirtualPath, Walk, receive, send,
    take_hello,
};

use crate::address::canonical;
use crate::data::{MOST_PROOFS, PROOF};
use crate::error::TransferError;
use crate::limits::Limits;
use crate::machine::Outcome;
use crate::session::{Running, blocking};
use crate::transfer::OneTransfer;
use crate::watched::{Watched, stands_still};

/// How often a session that waits for its first stream looks for it.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What listens for the streams of a session.
pub(crate) enum Listener {
    Descriptor(DescriptorListener),
    Tcp(TcpListener),
    Quic(QuicListener),
}

/// A session that a client has asked for.
pub(crate) struct Asked {
    /// One for each channel: at least one.
    pub listeners: Vec<(Listener, Endpoint)>,
    /// Streams of a channel at first, and at most.
    pub first: u16,
    pub most: u16,
}

impl Asked {
    pub(crate) fn endpoints(&self) -> Vec<Endpoint> {
        self.listeners.iter().map(|(_, endpoint)| *endpoint).collect()
    }
}

/// Listens over those channels that work of the first group of which one does (rule T1).
pub(crate) fn ask(
    groups: &[Vec<ChannelKind>],
    host: IpAddr,
    ports: Option<&RangeInclusive<u16>>,
    listen: impl Fn() -> Option<TcpListener>,
) -> Option<Vec<(Listener, Endpoint)>> {
    let mut token = [0; 16];
    getrandom::fill(&mut token).ok()?;
    let listen_over = |channel: &ChannelKind| {
        let (listener, address, fingerprint) = match channel {
            ChannelKind::Descriptor => {
                let listener = DescriptorListener::bind(&token).ok()?;
                (Listener::Descriptor(listener), SocketAddr::new(host, 0), None)
            }
            ChannelKind::Tcp => {
                let listener = listen()?;
                let address = listener.local_addr().ok()?;
                (Listener::Tcp(listener), address, None)
            }
            ChannelKind::Quic => {
                let mut ports = ports.cloned().unwrap_or(0..=0);
                let bound = ports.find_map(|port| QuicListener::bind(SocketAddr::new(host, port)).ok())?;
                let (address, fingerprint) = (bound.address().ok()?, bound.fingerprint());
                (Listener::Quic(bound), address, Some(fingerprint))
            }
        };
        Some((listener, Endpoint { channel: *channel, address, token, fingerprint }))
    };
    let mut works = groups.iter().map(|group| group.iter().filter_map(listen_over).collect::<Vec<_>>());
    works.find(|listeners| !listeners.is_empty())
}

/// Runs one session: 150 once the streams may come, and its end.
pub(crate) async fn run(
    mut one: OneTransfer,
    root: Arc<Root>,
    path: VirtualPath,
    is_upload: bool,
) -> Result<(), TransferError> {
    let Some(asked) = one.session.take() else { return Err(TransferError::NoConnection) };
    let channels: Vec<ChannelKind> = asked.endpoints().iter().map(|endpoint| endpoint.channel).collect();
    let Asked { listeners, mut first, mut most } = asked;
    if channels.iter().any(|kind| kind.is_local()) {
        (first, most) = (1, 1);
    }
    // Each channel has numbers of its own.
    let numbers = most * channels.len() as u16;
    let walk = match is_upload {
        true => None,
        false => {
            let (root, path) = (root.clone(), path.clone());
            Some(blocking(move || Walk::new(root, path)).await.ok_or(TransferError::Broken)??)
        }
    };
    let _ = one.outcomes.send(Outcome::Opened { size: None, name: None });
    // Listening ends with the session.
    let (mut accepting, mut listening, mut handing_over) = (JoinSet::new(), Vec::new(), None);
    let (handed_on, arriving) = channel();
    for (listener, endpoint) in listeners {
        let (allowed, running, handed_on) = (one.allowed.clone(), one.running.clone(), handed_on.clone());
        match listener {
            Listener::Descriptor(listener) => {
                let started = listener.start(endpoint.token, numbers, handed_on);
                handing_over = Some(started.map_err(|_| TransferError::NoConnection)?);
            }
            Listener::Quic(listener) => {
                let started = listener.start(endpoint.token, numbers, allowed, handed_on);
                listening.push(started.map_err(|_| TransferError::NoConnection)?);
            }
            Listener::Tcp(listener) => {
                let keepalive = socket2::TcpKeepalive::new().with_time(one.shared.options.stall_timeout);
                accepting.spawn(async move {
                    accept(&listener, &allowed, endpoint.token, numbers, &keepalive, &running, &handed_on).await
                });
            }
        }
    }
    drop(handed_on);
    let arriving = match one.limits.clone() {
        Some(limits) => paced(arriving, limits),
        None => arriving,
    };
    let moved = Arc::new(AtomicU64::new(0));
    let links = tokio::select! {
        links = begun(arriving, first, &moved) => links,
        () = tokio::time::sleep(one.shared.options.connect_timeout) => return Err(TransferError::NoConnection),
        () = one.running.wake.notified() => return Err(TransferError::Broken),
    };
    let tuner = TunerSettings { first, most, channels };
    let links = Links { tuner: tuner.has_a_choice().then_some(tuner), ..links };
    let (running, limits) = (one.running.clone(), one.limits.clone());
    let result = blocking(move || {
        let settings = SessionSettings::new(1, numbers);
        let mut report = |progress: &Progress| {
            running.moved.store(progress.bytes, Ordering::Relaxed);
            !running.is_aborted()
        };
        let summary = match walk {
            None => {
                let store = Store::new(root, path, CHUNK_BYTES, true);
                let store = match limits.clone().filter(|limits| limits.has_quota()) {
                    Some(limits) => store.within(limits),
                    None => store,
                };
                receive(links, store, settings, &mut report)
            }
            Some(walk) => send(links, Sources::new(root, path), walk, settings, &mut report),
        };
        running.forget();
        if let Some(limits) = limits {
            limits.forget();
        }
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
    drop((listening, handing_over));
    result.ok_or(TransferError::Broken)?.map_err(|_| TransferError::Stalled)
}

/// Streams of a user whose rate is limited, as they arrive. Ends with the listening.
fn paced(arriving: Arriving, limits: Arc<Limits>) -> Arriving {
    let (handed_on, paced) = channel();
    std::thread::spawn(move || {
        for (number, channel) in arriving {
            let watched =
                Watched { channel, moved: Arc::default(), limits: [Some(limits.clone()), Some(limits.clone())] };
            if handed_on.send((number, Box::new(watched) as Box<dyn Channel>)).is_err() {
                return;
            }
        }
    });
    paced
}

/// Waits for the streams of the beginning.
async fn begun(arriving: Arriving, first: u16, moved: &Arc<AtomicU64>) -> Links {
    let mut links = Links::default();
    loop {
        match arriving.try_recv() {
            // A number counts once.
            Ok((number, _)) if links.first.iter().any(|(other, _)| *other == number) => {}
            Ok((number, channel)) => {
                links.first.push((number, Box::new(Watched { channel, moved: moved.clone(), limits: [None, None] })));
            }
            Err(TryRecvError::Empty) => tokio::time::sleep(LOOK_EVERY).await,
            // The time that the caller gives ends this.
            Err(TryRecvError::Disconnected) => std::future::pending().await,
        }
        if (0..first).all(|number| links.first.iter().any(|(other, _)| *other == number)) {
            return Links { later: Later::Arrive(arriving), ..links };
        }
    }
}

/// Takes connections, and hands on those that bring the token. What comes without it is closed, and listening goes on.
async fn accept(
    listener: &TcpListener,
    allowed: &[IpAddr],
    token: Token,
    numbers: u16,
    keepalive: &socket2::TcpKeepalive,
    running: &Running,
    arriving: &Sender<(u16, Box<dyn Channel>)>,
) {
    let mut proofs = JoinSet::new();
    loop {
        tokio::select! {
            taken = listener.accept(), if proofs.len() < MOST_PROOFS => match taken {
                Ok((stream, peer)) if allowed.contains(&canonical(peer.ip())) => {
                    proofs.spawn(blocking(move || {
                        let mut stream = stream.into_std().ok()?;
                        stream.set_nonblocking(false).ok()?;
                        let (number, all) = take_hello(&mut stream, &token, PROOF).ok()?;
                        (all == numbers).then_some((number, stream))
                    }));
                }
                Ok((_, peer)) => tracing::info!(%peer, "a stranger at a port of a session was closed"),
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(proof) = proofs.join_next() => {
                if let Ok(Some(Some((number, stream)))) = proof {
                    let _ = socket2::SockRef::from(&stream).set_tcp_keepalive(keepalive);
                    if let Ok(second) = stream.try_clone() {
                        running.keep(second);
                    }
                    if arriving.send((number, Box::new(stream))).is_err() {
                        return;
                    }
                }
            }
        }
    }
}
