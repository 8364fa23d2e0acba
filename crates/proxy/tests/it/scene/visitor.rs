//! A client of a site, byte by byte over TLS, and frame by frame over HTTP/2.

use std::io::{Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::{PATIENCE, Site};

/// How a connection of HTTP/2 begins (RFC 9113 section 3.4), with empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// A connection with TLS.
pub struct Visitor(StreamOwned<ClientConnection, TcpStream>);

/// What comes over HTTP/2.
#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Visitor {
    /// Connects, and speaks `version` (ALPN).
    pub fn of(address: SocketAddr, site: &Site, version: &str) -> Visitor {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(site.authority()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![version.as_bytes().to_vec()];
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let name = ServerName::try_from("shop").unwrap();
        Visitor(StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream))
    }

    /// Connects, and begins HTTP/2.
    pub fn over_http2(address: SocketAddr, site: &Site) -> Visitor {
        let mut visitor = Visitor::of(address, site, "h2");
        visitor.write_all(PREFACE).unwrap();
        visitor
    }

    /// Sends a frame; an error is the connection's end.
    pub fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<()> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.0.write_all(&[&head, payload].concat())
    }

    /// Sends the head of a request.
    pub fn asks(&mut self, stream: u32, flags: u8, fields: &[(&str, &str)]) {
        self.frame(HEADERS, flags | END_HEADERS, stream, &block(fields)).unwrap();
    }

    /// The next frame; none where the connection ends.
    pub fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).ok()?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        self.0.read_exact(&mut payload).ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// The next frame of this kind.
    pub fn next_of(&mut self, kind: u8) -> Option<Frame> {
        std::iter::from_fn(|| self.next()).find(|frame| frame.kind == kind)
    }
}

impl Read for Visitor {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Visitor {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.0.flush()
    }
}

/// Fields as HPACK has them without tables or Huffman's code (RFC 7541 section 6.2.2).
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            match text.len() {
                short @ 0..127 => block.push(short as u8),
                long => {
                    block.push(127);
                    let mut rest = long - 127;
                    while rest >= 128 {
                        block.push((rest % 128) as u8 | 128);
                        rest /= 128;
                    }
                    block.push(rest as u8);
                }
            }
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}
