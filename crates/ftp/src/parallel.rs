//! Transfers in MODE E: one file over several data connections, each on a thread of its own that may wait.
//!
//! A download takes the next piece that no connection has taken yet. An upload is gathered in a part beside its target,
//! each block at its offset, and published once all connections have said their ends and no byte is missing (rule T5):
//! a gap is nothing that a client could resume by `SIZE`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;
use verbena_transfer::{FileError, Part};

use crate::address::canonical;
use crate::blocks::{BlockReader, Gathered, HEADER, Header, MOST_CONNECTIONS, Pieces};
use crate::data::PROOF;
use crate::error::TransferError;
use crate::machine::Outcome;
use crate::moving::{Connection, Opened, Target, broken, from_file};
use crate::session::blocking;
use crate::transfer::OneTransfer;

/// How often a client is told how far its upload is.
const MARK_EVERY: Duration = Duration::from_secs(5);

/// Data connections that outlive their transfer.
pub(crate) type Kept = Arc<Mutex<Vec<Box<dyn Connection>>>>;

/// How the data connections of a transfer come.
pub(crate) struct Way {
    pub connections: u16,
    pub is_reused: bool,
    pub parts: Pieces,
    pub connect: Option<SocketAddr>,
    pub listener: Option<TcpListener>,
    pub is_private: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Moves everything. The connections stay for the next transfer.
pub(crate) async fn run(one: &Arc<OneTransfer>, opened: Opened, way: Way) -> Result<(), TransferError> {
    let result = match opened {
        Opened::Source { file, from, to } => send(one, file, (from, to), way).await,
        Opened::Target { target: Target::Part(part), announced, .. } => receive(one, part, announced, way).await,
        // The machine sends listings, and what is written in place, by MODE S alone.
        Opened::Target { .. } | Opened::Listing(_) => Err(TransferError::NoConnection),
    };
    let is_aborted = one.running.is_aborted();
    if is_aborted || result.is_err() {
        one.running.shut();
    }
    one.running.forget();
    let connections = result?;
    if is_aborted {
        return Err(TransferError::Broken);
    }
    *locked(&one.kept) = connections;
    Ok(())
}

/// The connections of the transfer before, so that `abort` ends them too.
fn reused(one: &OneTransfer) -> Result<Vec<Box<dyn Connection>>, TransferError> {
    let connections = std::mem::take(&mut *locked(&one.kept));
    for connection in &connections {
        let second = connection.socket().try_clone().map_err(|_| TransferError::Broken)?;
        if !one.running.keep(second) {
            return Err(TransferError::Broken);
        }
    }
    if connections.is_empty() { Err(TransferError::NoConnection) } else { Ok(connections) }
}

/// What is still to be sent.
struct Source {
    file: File,
    rest: Mutex<Vec<(u64, u64)>>,
}

impl Source {
    /// The next bytes for a connection.
    fn next(&self, most: usize) -> Option<(u64, usize)> {
        let mut rest = locked(&self.rest);
        let (from, to) = rest.last().copied()?;
        let length = usize::try_from(to - from).map_or(most, |length| length.min(most));
        rest.pop();
        let behind = from + length as u64;
        if behind < to {
            rest.push((behind, to));
        }
        Some((from, length))
    }
}

async fn send(
    one: &Arc<OneTransfer>,
    file: File,
    (from, to): (u64, u64),
    way: Way,
) -> Result<Vec<Box<dyn Connection>>, TransferError> {
    let mut connections = Vec::new();
    if way.is_reused {
        connections = reused(one)?;
    } else {
        for _ in 0..way.connections {
            connections.push(one.connect(way.connect, None, way.is_private.then_some(false)).await?);
        }
    }
    let size = file.metadata().map_err(from_file)?.len();
    let mut rest = way.parts.missing(from, to.min(size));
    // The first is taken from the end.
    rest.reverse();
    let source = Arc::new(Source { file, rest: Mutex::new(rest) });
    let all = connections.len() as u64;
    let mut senders = JoinSet::new();
    for (number, connection) in connections.into_iter().enumerate() {
        let (one, source) = (one.clone(), source.clone());
        let end = Header::end((number == 0).then_some(all));
        senders.spawn(blocking(move || send_blocks(&one, &source, connection, end)));
    }
    let mut sent = Vec::new();
    while let Some(sender) = senders.join_next().await {
        sent.push(sender.ok().flatten().unwrap_or(Err(TransferError::Broken))?);
    }
    Ok(sent)
}

fn send_blocks(
    one: &OneTransfer,
    source: &Source,
    mut connection: Box<dyn Connection>,
    end: Header,
) -> Result<Box<dyn Connection>, TransferError> {
    let context = one.context(&|| true);
    let _ = connection.socket().set_nodelay(true);
    let mut block = vec![0; HEADER];
    block.extend(context.block());
    while let Some((offset, length)) = source.next(block.len() - HEADER) {
        block[..HEADER].copy_from_slice(&Header::data(offset, length as u64).written());
        let bytes = &mut block[..HEADER + length];
        source.file.read_exact_at(&mut bytes[HEADER..], offset).map_err(|error| match error.kind() {
            // Cut since it was looked at.
            ErrorKind::UnexpectedEof => TransferError::File(FileError::BehindEnd),
            _ => from_file(error),
        })?;
        connection.write_all(bytes).map_err(broken)?;
        context.passed(length);
    }
    connection.write_all(&end.written()).and_then(|()| connection.flush()).map_err(broken)?;
    Ok(connection)
}

/// An upload while it is gathered.
struct Gathering {
    file: File,
    gathered: Mutex<Gathered>,
}

async fn receive(
    one: &Arc<OneTransfer>,
    part: Part,
    announced: Option<u64>,
    way: Way,
) -> Result<Vec<Box<dyn Connection>>, TransferError> {
    let file = part.file.try_clone().map_err(from_file)?;
    let gathering = Arc::new(Gathering { file, gathered: Mutex::default() });
    let mut readers =
        Readers { one: one.clone(), gathering: gathering.clone(), running: JoinSet::new(), sockets: HashMap::new() };
    if way.is_reused {
        for connection in reused(one)? {
            readers.start(connection)?;
        }
    }
    let connections = gather(&mut readers, way).await?;
    let size = locked(&gathering.gathered).size().ok_or(TransferError::Gap)?;
    if announced.is_some_and(|announced| size < announced) {
        return Err(TransferError::Short);
    }
    let asked = one.clone();
    let published = blocking(move || match asked.is_client_there() {
        true => Ok(part.publish()?),
        false => Err(TransferError::Broken),
    });
    published.await.ok_or(TransferError::Broken)??;
    mark(one);
    let _ = one.outcomes.send(Outcome::Stored(size));
    Ok(connections)
}

/// Says how far the upload is.
fn mark(one: &OneTransfer) {
    let tenths = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() / 100);
    let moved = one.running.moved.load(Ordering::Relaxed);
    let _ = one.outcomes.send(Outcome::Marker { moved, tenths: u64::try_from(tenths).unwrap_or(u64::MAX) });
}

/// How a connection that was read has ended.
enum Left {
    /// It has said its end, and stays.
    Open(Box<dyn Connection>),
    /// It has said its end, and closes.
    Closed,
    /// Nothing came by it: a port scan, or one that the client made and did not need.
    Silent,
}

type Read = Option<Result<Left, TransferError>>;

/// The threads that read.
struct Readers {
    one: Arc<OneTransfer>,
    gathering: Arc<Gathering>,
    running: JoinSet<Read>,
    /// Second descriptors, to end those that stay silent.
    sockets: HashMap<tokio::task::Id, std::net::TcpStream>,
}

impl Readers {
    fn start(&mut self, connection: Box<dyn Connection>) -> Result<(), TransferError> {
        let second = connection.socket().try_clone().map_err(|_| TransferError::Broken)?;
        let (one, gathering) = (self.one.clone(), self.gathering.clone());
        let task = self.running.spawn(blocking(move || read_blocks(&one, &gathering, connection)));
        self.sockets.insert(task.id(), second);
        Ok(())
    }

    fn are_all(&self, ended: usize) -> bool {
        locked(&self.gathering.gathered).are_all(ended as u64)
    }
}

/// Takes connections and what they bring, until all have said their ends. Those that stay open are given back.
async fn gather(readers: &mut Readers, way: Way) -> Result<Vec<Box<dyn Connection>>, TransferError> {
    let one = readers.one.clone();
    let timeout = one.shared.options.connect_timeout;
    let (mut open, mut ended, mut idle_since) = (Vec::new(), 0, Instant::now());
    let mut proofs: JoinSet<Option<Box<dyn Connection>>> = JoinSet::new();
    let mut marks = tokio::time::interval_at(Instant::now() + MARK_EVERY, MARK_EVERY);
    while !readers.are_all(ended) {
        let has_room = readers.running.len() + proofs.len() + ended < usize::from(MOST_CONNECTIONS);
        tokio::select! {
            taken = accept(way.listener.as_ref()), if has_room => match taken {
                Ok((stream, peer)) if one.allowed.contains(&canonical(peer.ip())) => {
                    let (one, is_private) = (one.clone(), way.is_private);
                    proofs.spawn(async move {
                        let proven = one.furnish(stream, is_private.then_some(true));
                        tokio::time::timeout(PROOF, proven).await.ok()?.ok()
                    });
                }
                Ok((_, peer)) => tracing::info!(%peer, "a stranger at a passive port was closed"),
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(proof) = proofs.join_next(), if !proofs.is_empty() => if let Ok(Some(connection)) = proof {
                readers.start(connection)?;
            },
            Some(read) = readers.running.join_next_with_id(), if !readers.running.is_empty() => {
                let (id, read) = read.map_err(|_| TransferError::Broken)?;
                readers.sockets.remove(&id);
                idle_since = Instant::now();
                match read.unwrap_or(Err(TransferError::Broken))? {
                    Left::Open(connection) => open.push(connection),
                    Left::Closed => {}
                    Left::Silent => continue,
                }
                ended += 1;
            }
            _ = marks.tick() => mark(&one),
            () = one.running.wake.notified() => return Err(TransferError::Broken),
            () = tokio::time::sleep_until(idle_since + timeout), if readers.running.is_empty() => {
                return Err(TransferError::NoConnection);
            }
        }
    }
    // What is left has not said its end, and is not one of those that were announced.
    for socket in readers.sockets.values() {
        let _ = socket.shutdown(std::net::Shutdown::Both);
    }
    while readers.running.join_next().await.is_some() {}
    Ok(open)
}

async fn accept(listener: Option<&TcpListener>) -> std::io::Result<(tokio::net::TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

fn read_blocks(
    one: &OneTransfer,
    gathering: &Gathering,
    mut connection: Box<dyn Connection>,
) -> Result<Left, TransferError> {
    let context = one.context(&|| true);
    let (mut reader, mut block) = (BlockReader::default(), context.block());
    let mut seen = context.moved.load(Ordering::Relaxed);
    loop {
        let most = reader.wants().min(block.len());
        let read = match connection.read(&mut block[..most]) {
            Ok(0) if !reader.has_begun() => return Ok(Left::Silent),
            Ok(0) => return Err(TransferError::Broken),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => match broken(error) {
                // One connection may rest while the others move.
                TransferError::Stalled if context.moved.load(Ordering::Relaxed) != seen => {
                    seen = context.moved.load(Ordering::Relaxed);
                    continue;
                }
                _ if !reader.has_begun() => return Ok(Left::Silent),
                error => return Err(error),
            },
        };
        let step = reader.take(&block[..read])?;
        if let Some(offset) = step.data {
            context.take_room(read)?;
            gathering.file.write_all_at(&block[..read], offset).map_err(from_file)?;
            locked(&gathering.gathered).written(offset, read)?;
            context.passed(read);
            seen = context.moved.load(Ordering::Relaxed);
        }
        locked(&gathering.gathered).said(step)?;
        match step.end {
            Some(true) => return Ok(Left::Closed),
            Some(false) => return Ok(Left::Open(connection)),
            None => {}
        }
    }
}
