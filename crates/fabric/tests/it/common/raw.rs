//! A caller that speaks the wire format by hand, rightly or wrongly, in the clear. It shares no code with what it tests.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use verbena_fabric::{Fabric, RegionKey};
use verbena_terms::Incarnation;

pub struct Raw(pub TcpStream);

impl Raw {
    pub fn connect(to: &dyn Fabric) -> Raw {
        let stream = TcpStream::connect(to.address().rest()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Raw(stream)
    }

    /// Connects and says hello; the verdict and who gave it.
    pub fn greet(to: &dyn Fabric, from: Incarnation, next: u64) -> (Raw, u8, Incarnation) {
        Raw::greet_to(to, from, to.identity(), next)
    }

    /// As if somebody else lived there.
    pub fn greet_to(to: &dyn Fabric, from: Incarnation, meant: Incarnation, next: u64) -> (Raw, u8, Incarnation) {
        let mut raw = Raw::connect(to);
        raw.0.write_all(b"VTCP\x01\0\0\0\0\0\0\0\0\0\0\0").unwrap();
        raw.0.read_exact(&mut [0; 16]).unwrap();
        let mut hello = b"VTHI\x01\0\0\0".to_vec();
        for word in [from.to_word(), meant.to_word(), next, 0] {
            hello.extend_from_slice(&word.to_le_bytes());
        }
        raw.0.write_all(&hello).unwrap();
        let mut welcome = [0; 24];
        raw.0.read_exact(&mut welcome).unwrap();
        let incarnation = Incarnation::from_word(u64::from_le_bytes(welcome[8..16].try_into().unwrap()));
        (raw, welcome[16], incarnation)
    }

    /// The items of the next frame of answers.
    pub fn answer(&mut self) -> Vec<u8> {
        let mut header = [0; 16];
        self.0.read_exact(&mut header).unwrap();
        let mut items = vec![0; u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize];
        self.0.read_exact(&mut items).unwrap();
        items
    }

    /// Whether the other end closes the connection, before anything else comes.
    pub fn is_closed(&mut self) -> bool {
        match self.0.read(&mut [0; 1]) {
            Ok(bytes) => bytes == 0,
            // Closed with something of ours unread.
            Err(error) => matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
        }
    }
}

pub fn frame(items: &[Vec<u8>]) -> Vec<u8> {
    let items_bytes = items.concat();
    let mut frame = b"VTFR\x01\0\0\0".to_vec();
    frame.extend_from_slice(&(items_bytes.len() as u32).to_le_bytes());
    frame.extend_from_slice(&(items.len() as u32).to_le_bytes());
    frame.extend_from_slice(&items_bytes);
    frame
}

pub fn batch(number: u32, key: &RegionKey, first: u64, elements: &[Vec<u8>]) -> Vec<u8> {
    let mut item = vec![1, 0];
    item.extend_from_slice(&(elements.len() as u16).to_le_bytes());
    for word in [number, key.region, key.view.0] {
        item.extend_from_slice(&word.to_le_bytes());
    }
    item.extend_from_slice(&first.to_le_bytes());
    item.extend_from_slice(&key.secret.0);
    item.extend_from_slice(&elements.concat());
    item
}

pub fn settle(number: u32, id: u64) -> Vec<u8> {
    let mut item = vec![2, 0, 0, 0];
    item.extend_from_slice(&number.to_le_bytes());
    item.extend_from_slice(&id.to_le_bytes());
    item
}

/// An element: kind, length, address, and what follows.
pub fn element(kind: u32, length: u32, at: u64, words: &[u64]) -> Vec<u8> {
    let mut element = kind.to_le_bytes().to_vec();
    element.extend_from_slice(&length.to_le_bytes());
    element.extend_from_slice(&at.to_le_bytes());
    words.iter().for_each(|word| element.extend_from_slice(&word.to_le_bytes()));
    element
}

pub fn add(at: u64, addend: u64) -> Vec<u8> {
    element(4, 0, at, &[addend])
}
