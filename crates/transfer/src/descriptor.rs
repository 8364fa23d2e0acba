//! The channel `descriptor`: on one machine, the files' descriptors are handed over, and the receiver copies (rule T3).
//!
//! The listening side has an abstract socket whose name is made from the token, so that the answer to `TPRT` leads to no other socket of the
//! machine, and a list of sockets tells no token. Both sides look at whose process the kernel says that the other one is: a
//! session needs one user on both, because a descriptor that was opened for reading can be opened again for writing, and because a file may be
//! of a file system that its owner holds up. The descriptor of a file travels with its offer, or before it, in the order of the offers.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Read, Result, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::channel::{Channel, Ends, Token, is_hello, read_frame, write_frame};
use crate::channel_kind::ChannelKind;
use crate::frame::Frame;
use crate::streams::Arrived;

/// Descriptors of one message.
const MOST_ATTACHED: usize = 32;
const SPACE: usize = rustix::cmsg_space!(ScmRights(MOST_ATTACHED));
/// Descriptors that have come and whose offer has not: more than a sender has files open.
const MOST_WAITING: usize = 128;
/// Processes of this user that may prove themselves at a time, and how long each has (rule T14).
const MOST_PROOFS: usize = 64;
const PROOF: Duration = Duration::from_secs(10);
/// The user that the kernel names where it cannot name the right one (`/proc/sys/kernel/overflowuid`).
const UNKNOWN_USER: u32 = 65534;

/// Where a session listens that has this token.
fn place(token: &Token) -> Result<SocketAddr> {
    let mut hasher = blake3::Hasher::new_derive_key("verbena-transfer descriptor socket");
    hasher.update(token);
    SocketAddr::from_abstract_name(format!("verbena-transfer.{}", &hasher.finalize().to_hex()[..32]))
}

/// That the other side runs as the user of this one.
fn check_user(socket: impl AsFd) -> Result<()> {
    let theirs = socket_peercred(socket)?.uid.as_raw();
    let ours = rustix::process::geteuid().as_raw();
    if theirs != ours || theirs == UNKNOWN_USER {
        let text = format!("the other side is a process of user {theirs}, and this one of {ours}");
        return Err(Error::new(ErrorKind::PermissionDenied, text));
    }
    Ok(())
}

/// Takes the stream of one session.
#[derive(Debug)]
pub struct DescriptorListener {
    listener: UnixListener,
}

impl DescriptorListener {
    /// Listens where the holder of the token connects.
    pub fn bind(token: &Token) -> Result<DescriptorListener> {
        Ok(DescriptorListener { listener: UnixListener::bind_addr(&place(token)?)? })
    }

    /// Takes streams that bring the token, from processes of this user, until what is returned is dropped, and hands them on. Others are
    /// closed, and listening goes on.
    pub fn start(self, token: Token, streams: u16, arriving: Sender<Arrived>) -> Result<DescriptorListening> {
        let waked = self.listener.try_clone()?;
        let proofs = Arc::new(AtomicUsize::new(0));
        std::thread::Builder::new().name("descriptors".into()).spawn(move || {
            // Ends with an error once the socket is shut down.
            while let Ok((stream, _)) = self.listener.accept() {
                if let Err(error) = check_user(&stream) {
                    tracing::info!(%error, "a stranger at the socket of a session was closed");
                } else if proofs.fetch_add(1, Ordering::AcqRel) < MOST_PROOFS {
                    let (arriving, proofs) = (arriving.clone(), proofs.clone());
                    std::thread::spawn(move || {
                        let proven = prove(&stream, &token, streams);
                        proofs.fetch_sub(1, Ordering::AcqRel);
                        if let Some(number) = proven {
                            // A session that has ended takes none.
                            let _ = arriving.send((number, Box::new(DescriptorStream { socket: stream })));
                        }
                    });
                } else {
                    proofs.fetch_sub(1, Ordering::AcqRel);
                }
            }
        })?;
        Ok(DescriptorListening(waked))
    }
}

/// Takes streams until it is dropped. Those that came go on.
#[derive(Debug)]
pub struct DescriptorListening(UnixListener);

impl Drop for DescriptorListening {
    fn drop(&mut self) {
        // Wakes the thread that accepts.
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
    }
}

fn prove(stream: &UnixStream, token: &Token, streams: u16) -> Option<u16> {
    stream.set_read_timeout(Some(PROOF)).ok()?;
    let (frame, _) = read_frame(&mut &*stream).ok()?;
    let (number, all) = is_hello(&frame, token)?;
    stream.set_read_timeout(None).ok()?;
    (all == streams).then_some(number)
}

/// A stream that has said hello, or heard it.
#[derive(Debug)]
pub struct DescriptorStream {
    socket: UnixStream,
}

impl DescriptorStream {
    /// Two that are connected, in one process: nothing is to be proven.
    pub fn pair() -> Result<(DescriptorStream, DescriptorStream)> {
        let (one, other) = UnixStream::pair()?;
        Ok((DescriptorStream { socket: one }, DescriptorStream { socket: other }))
    }

    /// Connects to the listener of a session, and says hello.
    pub fn connect(token: &Token, hello: &Frame) -> Result<DescriptorStream> {
        let mut socket = UnixStream::connect_addr(&place(token)?)?;
        check_user(&socket)?;
        write_frame(&mut socket, hello, b"")?;
        Ok(DescriptorStream { socket })
    }
}

/// The descriptors that go along with the bytes of a stream.
#[derive(Clone, Debug, Default)]
pub struct Handover {
    outgoing: Arc<Mutex<VecDeque<OwnedFd>>>,
    incoming: Arc<Mutex<VecDeque<OwnedFd>>>,
}

impl Handover {
    /// Gives a descriptor. It goes with the next bytes that are written.
    pub fn give(&self, descriptor: OwnedFd) {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner).push_back(descriptor);
    }

    /// The first descriptor that has come and was not taken yet.
    pub fn take(&self) -> Option<OwnedFd> {
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

struct Reader(UnixStream, Handover);

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut space = [MaybeUninit::uninit(); SPACE];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(buffer)];
        let received = recvmsg(&self.0, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        let mut incoming = self.1.incoming.lock().unwrap_or_else(PoisonError::into_inner);
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                incoming.extend(descriptors);
            }
        }
        // The kernel drops descriptors that this process may not have any more (cmsg(3)).
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(Error::other("this process may have no more files open, or too many came at once"));
        }
        if incoming.len() > MOST_WAITING {
            return Err(Error::other("descriptors came without their files"));
        }
        Ok(received.bytes)
    }
}

struct Writer(UnixStream, Handover);

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut outgoing = self.1.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        let count = outgoing.len().min(MOST_ATTACHED);
        let attached: Vec<OwnedFd> = outgoing.drain(..count).collect();
        drop(outgoing);
        let borrowed: Vec<BorrowedFd<'_>> = attached.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); SPACE];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !borrowed.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&borrowed)) {
            return Err(Error::other("too many descriptors for one message"));
        }
        loop {
            match sendmsg(&self.0, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Channel for DescriptorStream {
    fn ends(self: Box<Self>) -> Result<Ends> {
        let handover = Handover::default();
        let (read, finish, close) = (self.socket.try_clone()?, self.socket.try_clone()?, self.socket.try_clone()?);
        Ok(Ends {
            read: Box::new(std::io::BufReader::new(Reader(read, handover.clone()))),
            write: Box::new(Writer(self.socket, handover.clone())),
            finish: Box::new(move || {
                let _ = finish.shutdown(Shutdown::Write);
            }),
            close: Box::new(move || {
                let _ = close.shutdown(Shutdown::Both);
            }),
            counts: Box::new(|| None),
            channel: ChannelKind::Descriptor,
            about: "descriptor: the receiver copies from the files themselves".into(),
            handover: Some(handover),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::hello;
    use std::sync::mpsc::channel;

    const TOKEN: Token = [7; 16];
    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn descriptors_come_in_their_order_and_not_behind_their_bytes() {
        let (near, far) = UnixStream::pair().unwrap();
        let ends = |socket| (Box::new(DescriptorStream { socket }) as Box<dyn Channel>).ends().unwrap();
        let (mut near, mut far) = (ends(near), ends(far));
        let (give, take) = (near.handover.unwrap(), far.handover.unwrap());
        let mut files: Vec<std::fs::File> = (0..3).map(|_| tempfile::tempfile().unwrap()).collect();
        for (at, file) in files.iter_mut().enumerate() {
            file.write_all(&[at as u8]).unwrap();
            give.give(file.try_clone().unwrap().into());
            near.write.write_all(&[at as u8; 100]).unwrap();
        }
        for at in 0..3 {
            let mut bytes = [0; 100];
            far.read.read_exact(&mut bytes).unwrap();
            assert_eq!(bytes, [at; 100]);
            let mut read = [9];
            let came = std::fs::File::from(take.take().unwrap());
            std::os::unix::fs::FileExt::read_exact_at(&came, &mut read, 0).unwrap();
            assert_eq!(read, [at], "another file");
        }
        assert!(take.take().is_none());
        // Descriptors without end take no memory.
        let null = || std::fs::File::open("/dev/null").unwrap().into();
        let flood = std::thread::spawn(move || {
            for _ in 0..1000 {
                give.give(null());
                if near.write.write_all(b"a").is_err() {
                    return;
                }
            }
        });
        let error = std::iter::repeat_with(|| far.read.read(&mut [0])).find_map(Result::err).unwrap();
        assert!(error.to_string().contains("without their files"), "{error}");
        (far.close)();
        flood.join().unwrap();
    }

    #[test]
    fn another_user_and_another_token_are_refused_on_both_sides() {
        let listener = DescriptorListener::bind(&TOKEN).unwrap();
        assert!(DescriptorListener::bind(&TOKEN).is_err(), "a name is of one session");
        let (handed_on, arriving) = channel();
        let listening = listener.start(TOKEN, 1, handed_on).unwrap();
        let mut thief = UnixStream::connect_addr(&place(&TOKEN).unwrap()).unwrap();
        write_frame(&mut thief, &hello([8; 16], 0, 1, 1 << 20), b"").unwrap();
        assert_eq!(thief.read(&mut [0; 9]).unwrap_or(0), 0, "a thief was answered");
        assert!(DescriptorStream::connect(&[8; 16], &hello([8; 16], 0, 1, 1 << 20)).is_err());
        if rustix::process::geteuid().is_root() {
            // Of this thread alone, and of those that it starts.
            let stranger = std::thread::spawn(|| {
                let user = rustix::process::Uid::from_raw(1000);
                rustix::thread::set_thread_res_uid(user, user, user).unwrap();
                let refused = DescriptorStream::connect(&TOKEN, &hello(TOKEN, 0, 1, 1 << 20)).err().unwrap();
                // One that does not look is closed by the other side.
                let mut careless = UnixStream::connect_addr(&place(&TOKEN).unwrap()).unwrap();
                let _ = write_frame(&mut careless, &hello(TOKEN, 0, 1, 1 << 20), b"");
                (refused.to_string(), careless.read(&mut [0; 9]).unwrap_or(0))
            });
            let (refused, read) = stranger.join().unwrap();
            assert!(refused.contains("of user 0, and this one of 1000") && read == 0, "{refused}");
        } else {
            println!("skipped in part: this needs root");
        }
        assert!(arriving.try_recv().is_err(), "a stranger came in");
        let ours = DescriptorStream::connect(&TOKEN, &hello(TOKEN, 0, 1, 1 << 20)).unwrap();
        assert_eq!(arriving.recv_timeout(LIMIT).unwrap().0, 0);
        drop((ours, listening));
        // Its thread ends, and holds no sender any more.
        assert_eq!(arriving.recv_timeout(LIMIT).err(), Some(std::sync::mpsc::RecvTimeoutError::Disconnected));
    }
}
