//! The header by which a balancer in front names the client of the connection that it passes on: the PROXY protocol, versions 1 and 2
//! (haproxy.org/download/3.0/doc/proxy-protocol.txt).
//!
//! Only bytes before the first byte of HTTP or TLS are looked at, and only from networks that the configuration names: any other client could claim any
//! address. From those networks there must be a header. A header that is not exactly as the protocol has it ends the connection: what follows could be
//! anything.
//!
//! ```text
//! version 1   PROXY TCP4 203.0.113.7 192.0.2.1 40000 443\r\n          at most 107 bytes
//! version 2   signature (12) | version and command (1) | family (1) | length (2) | addresses, then TLVs (length)
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// How version 2 begins (section 2.2).
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// The part of version 2 that always is there.
const FIXED: usize = 16;
/// How version 1 begins (section 2.1).
const WORD: &[u8] = b"PROXY ";
/// The longest line of version 1, with its end.
const LONGEST_LINE: usize = 107;
/// The longest header of version 2 that is read: its addresses take 36 bytes, and what a balancer says besides (TLVs) is not much.
const LONGEST: usize = 4096;

/// What the first bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// A part of a header: all of it belongs to that.
    Part,
    /// A header of `length` bytes, and the client it names; the balancer itself where it names no client.
    Whole {
        /// Bytes of the header.
        length: usize,
        /// The client's address and port.
        from: Option<SocketAddr>,
    },
}

/// No header of the PROXY protocol.
#[derive(Debug, Error)]
pub enum NoHeader {
    /// The first bytes are not a header.
    #[error("what came first is no header of the PROXY protocol")]
    Malformed,
    /// The connection ended before one was here.
    #[error("the connection ended before its header of the PROXY protocol")]
    Ended,
    /// It could not be read.
    #[error(transparent)]
    Read(#[from] std::io::Error),
}

/// Reads the header and not a byte more.
pub(crate) async fn read(stream: &mut TcpStream) -> Result<Option<SocketAddr>, NoHeader> {
    let mut bytes = [0; LONGEST];
    let mut here = 0;
    loop {
        let seen = stream.peek(&mut bytes[here..]).await?;
        if seen == 0 {
            return Err(NoHeader::Ended);
        }
        let (length, from) = match parse(&bytes[..here + seen])? {
            Beginning::Part => (here + seen, None),
            Beginning::Whole { length, from } => (length, Some(from)),
        };
        stream.read_exact(&mut bytes[here..length]).await?;
        here = length;
        match from {
            Some(from) => return Ok(from),
            None if here == LONGEST => return Err(NoHeader::Malformed),
            None => {}
        }
    }
}

/// Looks at the first bytes of a connection.
///
/// # Errors
/// [`NoHeader::Malformed`] as soon as no header begins so.
pub fn parse(bytes: &[u8]) -> Result<Beginning, NoHeader> {
    let begins = |with: &[u8]| bytes.iter().zip(with).all(|(byte, wanted)| byte == wanted);
    if begins(&SIGNATURE) {
        version_2(bytes)
    } else if begins(WORD) {
        version_1(bytes)
    } else {
        Err(NoHeader::Malformed)
    }
}

fn version_1(bytes: &[u8]) -> Result<Beginning, NoHeader> {
    let bounded = &bytes[..bytes.len().min(LONGEST_LINE)];
    let Some(end) = bounded.windows(2).position(|two| two == b"\r\n") else {
        return if bytes.len() < LONGEST_LINE { Ok(Beginning::Part) } else { Err(NoHeader::Malformed) };
    };
    let line = std::str::from_utf8(&bytes[WORD.len()..end]).map_err(|_| NoHeader::Malformed)?;
    let length = end + 2;
    // What else an unknown connection says is not looked at.
    if line == "UNKNOWN" || line.starts_with("UNKNOWN ") {
        return Ok(Beginning::Whole { length, from: None });
    }
    let parts: Vec<&str> = line.split(' ').collect();
    let [family, source, destination, source_port, destination_port] = parts[..] else {
        return Err(NoHeader::Malformed);
    };
    let from = match family {
        "TCP4" => of_family::<Ipv4Addr>(source, destination)?,
        "TCP6" => of_family::<Ipv6Addr>(source, destination)?,
        _ => return Err(NoHeader::Malformed),
    };
    port(destination_port)?;
    Ok(Beginning::Whole { length, from: Some(SocketAddr::new(from, port(source_port)?)) })
}

fn of_family<A: FromStr + Into<IpAddr>>(source: &str, destination: &str) -> Result<IpAddr, NoHeader> {
    let parse = |text: &str| text.parse::<A>().map_err(|_| NoHeader::Malformed);
    parse(destination)?;
    parse(source).map(Into::into)
}

fn port(text: &str) -> Result<u16, NoHeader> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_plain).ok_or(NoHeader::Malformed)
}

fn version_2(bytes: &[u8]) -> Result<Beginning, NoHeader> {
    let Some((fixed, behind)) = bytes.split_first_chunk::<FIXED>() else { return Ok(Beginning::Part) };
    let length = FIXED + usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if length > LONGEST {
        return Err(NoHeader::Malformed);
    }
    // Of its own connections (LOCAL) a balancer says nothing that counts; unix sockets have no address that could.
    let is_proxied = match fixed[12] {
        0x20 => false,
        0x21 => true,
        _ => return Err(NoHeader::Malformed),
    };
    let needed = match fixed[13] {
        0x00 | 0x31 => 0,
        0x11 => 12,
        0x21 => 36,
        // Datagrams come over no connection.
        _ if is_proxied => return Err(NoHeader::Malformed),
        _ => 0,
    };
    if length < FIXED + needed {
        return Err(NoHeader::Malformed);
    }
    if bytes.len() < length {
        return Ok(Beginning::Part);
    }
    let from = match (is_proxied, fixed[13]) {
        (true, 0x11) => behind.first_chunk::<4>().map(|source| (IpAddr::from(*source), 8)),
        (true, 0x21) => behind.first_chunk::<16>().map(|source| (IpAddr::from(*source), 32)),
        _ => None,
    };
    let from = from.and_then(|(source, at)| {
        let port = behind.get(at..)?.first_chunk::<2>()?;
        Some(SocketAddr::new(source, u16::from_be_bytes(*port)))
    });
    Ok(Beginning::Whole { length, from })
}

/// A network: an address, of which the first bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Whether an address is in it. One of IPv4 within IPv6 counts as it is.
    pub fn has(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                (own.to_bits() ^ other.to_bits()) & mask == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                (own.to_bits() ^ other.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    /// `ADDRESS/BITS`, or an address alone.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no network: write 10.0.0.0/8, fd00::/8, or one address");
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= most).ok_or_else(wrong)?,
        };
        Ok(Network { address, bits })
    }
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// Bytes.
    V2,
}

/// The ends of a client's connection: the client's, and the one that it connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub from: SocketAddr,
    pub to: SocketAddr,
}

impl ProxyVersion {
    /// The header of a connection on behalf of this client; without one, of the proxy's own.
    pub(crate) fn header(self, ends: Option<&Ends>) -> Vec<u8> {
        let Some(Ends { from, to }) = ends else {
            return match self {
                ProxyVersion::V1 => b"PROXY UNKNOWN\r\n".to_vec(),
                // LOCAL, of no family.
                ProxyVersion::V2 => [&SIGNATURE[..], &[0x20, 0, 0, 0]].concat(),
            };
        };
        // One family for both: IPv4 as it is, else IPv6.
        let (source, destination) = match (from.ip().to_canonical(), to.ip().to_canonical()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => (IpAddr::V4(source), IpAddr::V4(destination)),
            (source, destination) => (IpAddr::V6(within_ipv6(source)), IpAddr::V6(within_ipv6(destination))),
        };
        match self {
            ProxyVersion::V1 => {
                let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
                format!("PROXY {family} {source} {destination} {} {}\r\n", from.port(), to.port()).into_bytes()
            }
            ProxyVersion::V2 => {
                let (family, length) = if source.is_ipv4() { (0x11, 12) } else { (0x21, 36) };
                let mut header = [&SIGNATURE[..], &[0x21, family, 0, length]].concat();
                for address in [source, destination] {
                    match address {
                        IpAddr::V4(address) => header.extend(address.octets()),
                        IpAddr::V6(address) => header.extend(address.octets()),
                    }
                }
                for port in [from.port(), to.port()] {
                    header.extend(port.to_be_bytes());
                }
                header
            }
        }
    }
}

fn within_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(bytes: &[u8]) -> Option<(usize, Option<String>)> {
        match parse(bytes) {
            Ok(Beginning::Whole { length, from }) => Some((length, from.map(|from| from.to_string()))),
            _ => None,
        }
    }

    #[test]
    fn a_header_that_is_written_is_read() {
        let ends = |from: &str, to: &str| Ends { from: from.parse().unwrap(), to: to.parse().unwrap() };
        for version in [ProxyVersion::V1, ProxyVersion::V2] {
            for (from, to, read) in [
                ("203.0.113.7:40000", "192.0.2.1:443", "203.0.113.7:40000"),
                ("[::ffff:203.0.113.7]:1", "192.0.2.1:443", "203.0.113.7:1"),
                ("[2001:db8::7]:40000", "192.0.2.1:443", "[2001:db8::7]:40000"),
                ("203.0.113.7:2", "[2001:db8::1]:443", "[::ffff:203.0.113.7]:2"),
            ] {
                let header = version.header(Some(&ends(from, to)));
                assert_eq!(whole(&header), Some((header.len(), Some(read.to_owned()))), "{version:?} {from} {to}");
            }
            let header = version.header(None);
            assert_eq!(whole(&header), Some((header.len(), None)), "{version:?}");
        }
        let line = ProxyVersion::V1.header(Some(&ends("203.0.113.7:40000", "192.0.2.1:443")));
        assert_eq!(line, b"PROXY TCP4 203.0.113.7 192.0.2.1 40000 443\r\n");
    }

    /// Version 2 with this command, family and rest.
    fn second(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, rest].concat()
    }

    #[test]
    fn a_header_says_whose_connection_it_is() {
        let first = b"PROXY TCP4 203.0.113.7 192.0.2.1 40000 443\r\nGET /";
        assert_eq!(whole(first), Some((first.len() - 5, Some("203.0.113.7:40000".into()))));
        let sixth = b"PROXY TCP6 2001:db8::7 ::1 1 2\r\n";
        assert_eq!(whole(sixth), Some((sixth.len(), Some("[2001:db8::7]:1".into()))));
        assert_eq!(whole(b"PROXY UNKNOWN\r\n"), Some((15, None)));
        assert_eq!(whole(b"PROXY UNKNOWN ff ff 1 x\r\n"), Some((25, None)));
        let ports = [0x9c, 0x40, 1, 187];
        let v4 = [&[203, 0, 113, 7, 192, 0, 2, 1][..], &ports].concat();
        let source: Ipv6Addr = "2001:db8::7".parse().unwrap();
        let v6 = [&source.octets()[..], &Ipv6Addr::LOCALHOST.octets(), &ports].concat();
        let with_tlv = [&v4[..], &[4, 0, 1, 0]].concat();
        for (command, family, rest, from) in [
            (0x21, 0x11, &v4, Some("203.0.113.7:40000")),
            (0x21, 0x11, &with_tlv, Some("203.0.113.7:40000")),
            (0x21, 0x21, &v6, Some("[2001:db8::7]:40000")),
            (0x21, 0x00, &vec![], None),
            (0x20, 0x11, &v4, None),
            (0x20, 0x12, &vec![], None),
        ] {
            let header = second(command, family, rest);
            let found = whole(&[&header[..], b"GET /"].concat());
            assert_eq!(found, Some((header.len(), from.map(String::from))), "{command:x} {family:x}");
        }
    }

    #[test]
    fn what_is_none_is_refused_at_once() {
        for wrong in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"PROXY  TCP4 1.1.1.1 2.2.2.2 1 2\r\n",
            b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2 3\r\n",
            b"PROXY TCP4 1.1.1.1 2.2.2.2 1\r\n",
            b"PROXY TCP4 1.1.1.1 2.2.2.2 1 65536\r\n",
            b"PROXY TCP4 1.1.1.1 2.2.2.2 +1 2\r\n",
            b"PROXY TCP4 1.1.1.1 2.2.2.2 01 2\r\n",
            b"PROXY TCP4 01.1.1.1 2.2.2.2 1 2\r\n",
            b"PROXY TCP4 ::1 ::1 1 2\r\n",
            b"PROXY TCP6 1.1.1.1 2.2.2.2 1 2\r\n",
            b"PROXY UDP4 1.1.1.1 2.2.2.2 1 2\r\n",
            b"PROXY UNKNOWNS\r\n",
            b"PROXY\tTCP4",
            b"proxy ",
            b"\r\n\r\n\0\r\nQUIT\r",
            &[b'P'; 200],
            &[&b"PROXY UNKNOWN "[..], &[b'x'; 94]].concat(),
            &second(0x22, 0x11, &[0; 12]),
            &second(0x11, 0x11, &[0; 12]),
            &second(0x21, 0x11, &[0; 11]),
            &second(0x21, 0x21, &[0; 35]),
            &second(0x21, 0x12, &[0; 12]),
            &second(0x21, 0x00, &[0; LONGEST]),
        ] {
            assert!(matches!(parse(wrong), Err(NoHeader::Malformed)), "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn a_network_has_its_addresses() {
        for (network, address, is_in) in [
            ("10.0.0.0/8", "10.255.1.1", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.0.0.0/8", "::ffff:10.1.1.1", true),
            ("0.0.0.0/0", "203.0.113.7", true),
            ("0.0.0.0/0", "::1", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.6", false),
            ("fd00::/8", "fdff::1", true),
            ("fd00::/8", "fe80::1", false),
            ("::/0", "::1", true),
        ] {
            let network: Network = network.parse().unwrap();
            assert_eq!(network.has(address.parse().unwrap()), is_in, "{address} in {network:?}");
        }
        for wrong in ["", "10.0.0.0/33", "fd00::/129", "10.0.0/8", "all", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/8/8"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong:?}");
        }
    }

    proptest! {
        /// However it is cut, what comes first is a part, and the whole is the same.
        #[test]
        fn a_header_is_found_where_it_ends(
            source: [u8; 4], port: u16, is_second: bool, tlv in proptest::collection::vec(any::<u8>(), 0..40),
            behind in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let from = SocketAddr::from((source, port));
            let header = match is_second {
                true => second(0x21, 0x11, &[&source[..], &[127, 0, 0, 1], &port.to_be_bytes(), &[0, 80], &tlv].concat()),
                false => format!("PROXY TCP4 {} 127.0.0.1 {port} 80\r\n", from.ip()).into_bytes(),
            };
            let bytes = [&header[..], &behind].concat();
            for cut in 0..=bytes.len() {
                let expected = match cut < header.len() {
                    true => Beginning::Part,
                    false => Beginning::Whole { length: header.len(), from: Some(from) },
                };
                prop_assert_eq!(parse(&bytes[..cut]).unwrap(), expected);
            }
        }

        /// Whatever comes, a header is no longer than what came, and a part can still become one.
        #[test]
        fn nothing_upsets_it(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), begin in 0..3_usize) {
            let beginning: &[u8] = [&[][..], WORD, &SIGNATURE][begin];
            bytes.splice(..0, beginning.iter().copied());
            match parse(&bytes) {
                Ok(Beginning::Whole { length, .. }) => prop_assert!(length <= bytes.len()),
                Ok(Beginning::Part) => prop_assert!(bytes.len() < LONGEST),
                Err(_) => {}
            }
        }
    }
}
