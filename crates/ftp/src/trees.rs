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
    Arriving, CHUNK_BYTES, Channel, ChannelKind, DescriptorListener, DescriptorListening, Endpoint, Later, Links,
    Progress, QuicListener, QuicListening, Root, SessionSettings, Sources, Store, Summary, Token, TunerSettings,
    UdpListener, UdpListening, VirtualPath, Walk, receive, send, take_hello,
};

use crate::address::canonical;
use crate::connecting;
use crate::data::{MOST_PROOFS, PROOF};
use crate::error::TransferError;
use crate::limits::Limits;
use crate::machine::Outcome;
use crate::session::{Running, blocking};
use crate::transfer::OneTransfer;
use crate::watched::{Watched, stands_still};

/// How often a session that waits for its first stream looks for it.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Notes, and failures, of a session that the reply about it has.
const MOST_LINES: usize = 500;
/// Bytes of a report that begin no further line: a client takes 64 KiB of a reply.
const MOST_REPORT: usize = 48 << 10;

/// What listens for the streams of a session.
pub(crate) enum Listener {
    Descriptor(DescriptorListener),
    Tcp(TcpListener),
    Quic(QuicListener),
    Udp(UdpListener),
}

/// Where the streams of a session come from: one place for each channel, at least one.
pub(crate) enum Streams {
    /// The other side makes them: the client, or another server at an address (rule T17).
    Listen { listeners: Vec<(Listener, Endpoint)>, from: Option<IpAddr> },
    /// This server makes them, to another one.
    Connect(Vec<Endpoint>),
}

/// A session that a client has asked for.
pub(crate) struct Asked {
    /// Where its streams come from.
    pub place: Streams,
    /// Streams of a channel at first, and at most.
    pub first: u16,
    pub most: u16,
}

impl Asked {
    pub(crate) fn endpoints(&self) -> Vec<Endpoint> {
        match &self.place {
            Streams::Listen { listeners, .. } => listeners.iter().map(|(_, endpoint)| *endpoint).collect(),
            Streams::Connect(endpoints) => endpoints.clone(),
        }
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
        let (listener, address, fingerprint, secret) = match channel {
            ChannelKind::Descriptor => {
                let listener = DescriptorListener::bind(&token).ok()?;
                (Listener::Descriptor(listener), SocketAddr::new(host, 0), None, None)
            }
            ChannelKind::Tcp => {
                let listener = listen()?;
                let address = listener.local_addr().ok()?;
                (Listener::Tcp(listener), address, None, None)
            }
            ChannelKind::Quic => {
                let mut ports = ports.cloned().unwrap_or(0..=0);
                let bound = ports.find_map(|port| QuicListener::bind(SocketAddr::new(host, port)).ok())?;
                let (address, fingerprint) = (bound.address().ok()?, bound.fingerprint());
                (Listener::Quic(bound), address, Some(fingerprint), None)
            }
            ChannelKind::Udp => {
                let mut ports = ports.cloned().unwrap_or(0..=0);
                let bound = ports.find_map(|port| UdpListener::bind(SocketAddr::new(host, port)).ok())?;
                let (address, secret) = (bound.address().ok()?, bound.secret());
                (Listener::Udp(bound), address, None, Some(secret))
            }
        };
        Some((listener, Endpoint { channel: *channel, address, token, fingerprint, secret }))
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
    let Asked { place, mut first, mut most } = asked;
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
    let moved = Arc::new(AtomicU64::new(0));
    let is_third = !matches!(place, Streams::Listen { from: None, .. });
    let mut listening = None;
    let links = async {
        match place {
            Streams::Listen { listeners, from } => {
                let (started, arriving) = listen(&one, listeners, from, numbers)?;
                // Listening ends with the session.
                listening = Some(started);
                let arriving = watched(arriving, moved.clone(), one.limits.clone(), one.running.clone());
                Ok(begun(arriving, first).await)
            }
            Streams::Connect(endpoints) => connected(&one, endpoints, (first, most), numbers, &moved).await,
        }
    };
    let links = tokio::select! {
        links = links => links?,
        () = tokio::time::sleep(one.shared.options.connect_timeout) => return Err(TransferError::NoConnection),
        () = one.running.wake.notified() => return Err(TransferError::Broken),
    };
    let tuner = TunerSettings { first, most, channels };
    let links = Links { tuner: tuner.has_a_choice().then_some(tuner), ..links };
    let (running, limits, outcomes) = (one.running.clone(), one.limits.clone(), one.outcomes.clone());
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
            Some(mut walk) => {
                let sent = send(links, Sources::new(root, path), &mut walk, settings, &mut report);
                sent.map(|summary| summary.with_unread(walk.unread))
            }
        };
        running.forget();
        if let Some(limits) = limits {
            limits.forget();
        }
        if let (true, Ok(summary)) = (is_third, &summary) {
            let _ = outcomes.send(Outcome::Report(report_lines(summary)));
        }
        match summary {
            Ok(summary) if summary.failures.is_empty() => Ok(()),
            // Each that was offered has been told over the session by name.
            Ok(_) => Err(TransferError::Incomplete),
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
    drop(listening);
    result.ok_or(TransferError::Broken)?.map_err(|_| TransferError::Stalled)
}

/// What listens for the streams of a session, until it is dropped.
#[derive(Default)]
struct Listening {
    accepting: JoinSet<()>,
    quic: Vec<QuicListening>,
    udp: Vec<UdpListening>,
    descriptors: Vec<DescriptorListening>,
}

/// Takes streams over each channel. Where they are another server's, from its address alone.
fn listen(
    one: &OneTransfer,
    listeners: Vec<(Listener, Endpoint)>,
    from: Option<IpAddr>,
    numbers: u16,
) -> Result<(Listening, Arriving), TransferError> {
    let mut listening = Listening::default();
    let (handed_on, arriving) = channel();
    let allowed = from.map_or_else(|| one.allowed.clone(), |from| vec![from]);
    for (listener, endpoint) in listeners {
        let (allowed, handed_on) = (allowed.clone(), handed_on.clone());
        match listener {
            Listener::Descriptor(listener) => {
                let started = listener.start(endpoint.token, numbers, handed_on);
                listening.descriptors.push(started.map_err(|_| TransferError::NoConnection)?);
            }
            Listener::Quic(listener) => {
                let started = listener.start(endpoint.token, numbers, allowed, handed_on);
                listening.quic.push(started.map_err(|_| TransferError::NoConnection)?);
            }
            Listener::Udp(listener) => {
                let started = listener.start(endpoint.token, numbers, allowed, handed_on);
                listening.udp.push(started.map_err(|_| TransferError::NoConnection)?);
            }
            Listener::Tcp(listener) => {
                let keepalive = socket2::TcpKeepalive::new().with_time(one.shared.options.stall_timeout);
                listening.accepting.spawn(async move {
                    accept(&listener, &allowed, endpoint.token, numbers, &keepalive, &handed_on).await
                });
            }
        }
    }
    Ok((listening, arriving))
}

/// Makes the streams of the beginning, to another server, and further ones as the sender wants them.
async fn connected(
    one: &OneTransfer,
    endpoints: Vec<Endpoint>,
    (first, most): (u16, u16),
    numbers: u16,
    moved: &Arc<AtomicU64>,
) -> Result<Links, TransferError> {
    let (limits, timeout, local) = (one.limits.clone(), one.shared.options.connect_timeout, one.local);
    let running = one.running.clone();
    let moved = moved.clone();
    let make = move |number: u16| -> std::io::Result<Box<dyn Channel>> {
        let endpoint = endpoints.get(usize::from(number / most)).ok_or(std::io::ErrorKind::InvalidInput)?;
        let made = connecting::make(endpoint, local, number, numbers, timeout);
        let channel = made.map_err(|error| {
            // The client learns no more than that: the answer must tell nothing of another host's ports (rule T17).
            tracing::info!(%error, "a stream of a session with another server was not made");
            std::io::Error::other("the other server was not reached")
        })?;
        let (limits, running) = ([limits.clone(), limits.clone()], Some(running.clone()));
        Ok(Box::new(Watched { channel, moved: moved.clone(), limits, running }))
    };
    let made = blocking(move || {
        let made: std::io::Result<Vec<_>> = (0..first).map(|number| Ok((number, make(number)?))).collect();
        made.map(|first| Links { first, later: Later::Make(Box::new(make)), ..Links::default() })
    });
    made.await.ok_or(TransferError::Broken)?.map_err(|_| TransferError::NoConnection)
}

/// Lines of a reply about a session that has no client at its end.
fn report_lines(summary: &Summary) -> Vec<u8> {
    let Summary { files, bytes, failures, streams, channel, notes, .. } = summary;
    let channel = channel.map_or("", ChannelKind::name);
    let mut lines = format!(" Files {files}\r\n Bytes {bytes}\r\n Streams {streams} {channel}\r\n").into_bytes();
    let mut line = |text: &[u8]| {
        if lines.len() > MOST_REPORT {
            return;
        }
        lines.push(b' ');
        lines.extend(text.iter().map(|byte| if matches!(byte, b'\r' | b'\n' | 0) { b'?' } else { *byte }));
        lines.extend_from_slice(b"\r\n");
    };
    for note in notes.iter().take(MOST_LINES) {
        line(format!("Note {note}").as_bytes());
    }
    for (path, why) in failures.iter().take(MOST_LINES) {
        let why = why.to_string().replace('\t', " ");
        line(&[b"Failed ", why.as_bytes(), b"\t", path].concat());
    }
    lines
}

/// Streams as they arrive: counted, paced where the user's rate is limited, and broken off with the transfer. Ends with the listening.
fn watched(arriving: Arriving, moved: Arc<AtomicU64>, limits: Option<Arc<Limits>>, running: Arc<Running>) -> Arriving {
    let (handed_on, watched) = channel();
    std::thread::spawn(move || {
        for (number, channel) in arriving {
            let (limits, running) = ([limits.clone(), limits.clone()], Some(running.clone()));
            let one = Watched { channel, moved: moved.clone(), limits, running };
            if handed_on.send((number, Box::new(one) as Box<dyn Channel>)).is_err() {
                return;
            }
        }
    });
    watched
}

/// Waits for the streams of the beginning.
async fn begun(arriving: Arriving, first: u16) -> Links {
    let mut links = Links::default();
    loop {
        match arriving.try_recv() {
            // A number counts once.
            Ok((number, _)) if links.first.iter().any(|(other, _)| *other == number) => {}
            Ok(stream) => links.first.push(stream),
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
                    if arriving.send((number, Box::new(stream))).is_err() {
                        return;
                    }
                }
            }
        }
    }
}
