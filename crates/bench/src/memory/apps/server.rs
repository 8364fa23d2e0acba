//! What there is without shared memory: a process that serves a file's pages, and a directory.
//!
//! A file is asked for a page at a time on one connection, as over a network file system that keeps nothing; the server has it in its page cache. The directory is asked as the paper's
//! application asks its own: with a connection for each access.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::child::{Answer, hear, say};

/// What a target is called that serves both.
pub(crate) const ROLE: &str = "file-and-directory";

/// The first order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    /// The database whose pages are served.
    pub(super) file: PathBuf,
    /// Records of the directories.
    pub(super) directories: Vec<u64>,
}

/// Where they are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Places {
    pub(super) file: SocketAddr,
    /// In the order in which they were asked for.
    pub(super) directories: Vec<SocketAddr>,
}

/// What a directory of `of` records says of a record.
pub(super) fn entry(record: u64, of: u64) -> u64 {
    record.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ of
}

/// A page is asked for by its offset and length; length 0 asks for the size of the file.
pub(super) fn ask(file: &mut TcpStream, offset: u64, length: u32) -> io::Result<Vec<u8>> {
    let mut request = [0; 12];
    request[..8].copy_from_slice(&offset.to_le_bytes());
    request[8..].copy_from_slice(&length.to_le_bytes());
    file.write_all(&request)?;
    let mut answer = vec![0; if length == 0 { 8 } else { length as usize }];
    file.read_exact(&mut answer)?;
    Ok(answer)
}

/// One access to a directory.
pub(super) fn look_up(directory: SocketAddr, record: u64) -> io::Result<u64> {
    let mut connection = TcpStream::connect(directory)?;
    connection.set_nodelay(true)?;
    connection.write_all(&record.to_le_bytes())?;
    let mut answer = [0; 8];
    connection.read_exact(&mut answer)?;
    Ok(u64::from_le_bytes(answer))
}

/// Serves both until there are no more orders.
pub(crate) fn serve() -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let Some(Order { file, directories }) = hear()? else { return Ok(()) };
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|it| Ok((it.local_addr()?, it)));
    let file = File::open(&file).map_err(text)?;
    let (address, listener) = listen().map_err(text)?;
    std::thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            let Ok(file) = file.try_clone() else { return };
            // It ends when its caller does.
            std::thread::spawn(move || serve_file(connection, &file));
        }
    });
    let mut places = Places { file: address, directories: vec![] };
    for records in directories {
        let (address, listener) = listen().map_err(text)?;
        places.directories.push(address);
        let entries: Vec<u64> = (0..records).map(|record| entry(record, records)).collect();
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                // A client that broke off gets nothing.
                let _ = serve_record(connection, &entries);
            }
        });
    }
    say(&Answer::Done(places))?;
    while hear::<()>()?.is_some() {}
    Ok(())
}

fn serve_file(mut connection: TcpStream, file: &File) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut page = vec![];
    loop {
        let mut request = [0; 12];
        connection.read_exact(&mut request)?;
        let (offset, length) = request.split_at(8);
        let offset = u64::from_le_bytes(offset.try_into().expect("invariant: 8 of 12 bytes"));
        let length = u32::from_le_bytes(length.try_into().expect("invariant: the other 4"));
        if length == 0 {
            connection.write_all(&file.metadata()?.len().to_le_bytes())?;
            continue;
        }
        page.resize(length as usize, 0);
        file.read_exact_at(&mut page, offset)?;
        connection.write_all(&page)?;
    }
}

fn serve_record(mut connection: TcpStream, entries: &[u64]) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut record = [0; 8];
    connection.read_exact(&mut record)?;
    let entry = usize::try_from(u64::from_le_bytes(record)).ok().and_then(|record| entries.get(record));
    entry.map_or(Ok(()), |entry| connection.write_all(&entry.to_le_bytes()))
}
