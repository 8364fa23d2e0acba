//! The channel `tcp`: one connection for each stream, with BBR where the kernel lets us have it.

use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::{set_tcp_congestion, tcp_congestion};

use crate::channel::{Channel, Ends, LinkCounts};
use crate::channel_kind::ChannelKind;

/// It takes a lost packet for what it mostly is on long links: lost, and not the sign of a full queue.
const WANTED: &str = "bbr";

impl Channel for TcpStream {
    fn ends(self: Box<Self>) -> std::io::Result<Ends> {
        self.set_nodelay(true)?;
        let about = ask_for_congestion_control(&self);
        let (read, finish, close) = (self.try_clone()?, self.try_clone()?, self.try_clone()?);
        let counted = OwnedFd::from(self.try_clone()?);
        Ok(Ends {
            read: Box::new(std::io::BufReader::with_capacity(64 << 10, read)),
            write: self,
            finish: Box::new(move || {
                let _ = finish.shutdown(Shutdown::Write);
            }),
            close: Box::new(move || {
                let _ = close.shutdown(Shutdown::Both);
            }),
            counts: Box::new(move || counts(&counted)),
            channel: ChannelKind::Tcp,
            about,
            handover: None,
        })
    }
}

/// Asks for [`WANTED`], and says what was got.
fn ask_for_congestion_control(stream: &TcpStream) -> String {
    let refused = set_tcp_congestion(stream, WANTED).err();
    let found = tcp_congestion(stream).unwrap_or_else(|_| "an unknown congestion control".into());
    match refused {
        Some(error) if found != WANTED => format!("tcp with {found} ({WANTED}: {error})"),
        _ => format!("tcp with {found}"),
    }
}

/// `struct tcp_info` (linux/tcp.h) as bytes: it only grows at its end, and these fields stand since Linux 4.2.
const RTT: usize = 68;
const TOTAL_RETRANS: usize = 100;
const BYTES_ACKED: usize = 120;
const SEGS_OUT: usize = 136;
const INFO_BYTES: usize = 144;

fn counts(socket: &OwnedFd) -> Option<LinkCounts> {
    let mut info = [0u8; INFO_BYTES];
    let mut length = INFO_BYTES as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `info`, which has as many, and says in `length` how many it
    // wrote. The descriptor is open for as long as `socket` is borrowed.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 || (length as usize) < INFO_BYTES {
        return None;
    }
    let word = |at: usize| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    let mut acked = [0; 8];
    acked.copy_from_slice(&info[BYTES_ACKED..BYTES_ACKED + 8]);
    Some(LinkCounts {
        bytes: u64::from_ne_bytes(acked),
        packets: word(SEGS_OUT).into(),
        again: word(TOTAL_RETRANS).into(),
        round_trip: Duration::from_micros(word(RTT).into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn the_kernel_counts_what_the_other_side_has() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        let mut ends = (Box::new(near) as Box<dyn Channel>).ends().unwrap();
        assert!(ends.about.starts_with("tcp with "), "{}", ends.about);
        let before = (ends.counts)().unwrap();
        ends.write.write_all(&[1; 100_000]).unwrap();
        let mut bytes = vec![0; 100_000];
        far.read_exact(&mut bytes).unwrap();
        let begun = std::time::Instant::now();
        // The acknowledgement of the last packet may be late.
        while (ends.counts)().unwrap().bytes < before.bytes + 100_000 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", (ends.counts)());
        }
        let after = (ends.counts)().unwrap();
        assert!(after.packets > before.packets && after.round_trip > Duration::ZERO, "{after:?}");
        assert!(after.round_trip < Duration::from_secs(60) && after.again <= after.packets, "{after:?}");
    }
}
