//! A file system for SQLite that reads a file over TCP, a page a request.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rsqlite_vfs::{
    AccessMode, DeviceCharacteristics, FileKind, LockLevel, OpenAccess, OpenOptions, OpenRequest, OpenedFile,
    OsCallback, SQLiteIoMethods, SQLiteVfs, SyncOptions, VfsError, VfsErrorCode, VfsFile, VfsResult, VfsStore,
    register_vfs,
};
use rusqlite::{Connection, OpenFlags};

use super::server::ask;
use crate::error::BenchError;

const NAME: &str = "file-over-tcp";

/// Opens the database that the server has.
pub(super) fn open(server: SocketAddr) -> Result<Connection, BenchError> {
    let failed = |reason: String| BenchError::Target { doing: "be read over TCP".to_owned(), reason };
    // SAFETY: the callbacks and the layout of open files are the library's own, with the types that `Remote` names.
    // What all files share is an address, and each file is used by one connection of SQLite, which serialises its
    // calls. No other code registers this name, and a second registration of it is refused.
    let registered = unsafe { register_vfs::<Remote, Remote>(NAME, (), false) };
    match registered {
        Ok(registration) => drop(registration.into_raw()),
        Err(rsqlite_vfs::RegisterVfsError::NameConflict(_)) => {}
        Err(error) => return Err(failed(error.to_string())),
    }
    Connection::open_with_flags_and_vfs(server.to_string(), OpenFlags::SQLITE_OPEN_READ_ONLY, NAME)
        .map_err(|error| failed(error.to_string()))
}

struct Remote;

/// One connection, which is the file; its name is the server's address.
struct Open {
    server: TcpStream,
    size: u64,
}

fn failed(code: VfsErrorCode, why: impl ToString) -> VfsError {
    VfsError::new(code, why.to_string().into())
}

fn only_read() -> VfsError {
    failed(VfsErrorCode::ReadOnly, "it is only read")
}

impl VfsFile for Open {
    fn device_characteristics(&self) -> DeviceCharacteristics {
        // It never changes, so SQLite neither locks it nor looks for a journal: what is left are pages.
        DeviceCharacteristics::IMMUTABLE
    }

    fn read(&mut self, buffer: &mut [u8], offset: u64) -> VfsResult<usize> {
        let left = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = buffer.len().min(left);
        if count > 0 {
            let length = u32::try_from(count).map_err(|error| failed(VfsErrorCode::IoRead, error))?;
            let bytes = ask(&mut self.server, offset, length).map_err(|error| failed(VfsErrorCode::IoRead, error))?;
            buffer[..count].copy_from_slice(&bytes);
        }
        Ok(count)
    }

    fn write(&mut self, _: &[u8], _: u64) -> VfsResult<()> {
        Err(only_read())
    }

    fn truncate(&mut self, _: u64) -> VfsResult<()> {
        Err(only_read())
    }

    fn sync(&mut self, _: SyncOptions) -> VfsResult<()> {
        Err(only_read())
    }

    fn size(&self) -> VfsResult<u64> {
        Ok(self.size)
    }

    fn lock(&mut self, level: LockLevel) -> VfsResult<()> {
        if level > LockLevel::Shared { Err(only_read()) } else { Ok(()) }
    }

    fn unlock(&mut self, _: LockLevel) -> VfsResult<()> {
        Ok(())
    }

    fn check_reserved_lock(&self) -> VfsResult<bool> {
        Ok(false)
    }
}

impl VfsStore for Remote {
    type File = Open;
    type AppData = ();

    fn open_file(_: &(), request: OpenRequest<'_>) -> VfsResult<OpenedFile<Open>> {
        let cannot = |why: String| VfsError::new(VfsErrorCode::CantOpen, why.into());
        let name = request.filename.map(|name| name.path().to_owned()).unwrap_or_default();
        if request.options.kind() != Some(FileKind::MainDb) {
            return Err(only_read());
        }
        let mut server = TcpStream::connect(&name).map_err(|error| cannot(format!("{name}: {error}")))?;
        server.set_nodelay(true).map_err(|error| cannot(error.to_string()))?;
        let size = ask(&mut server, 0, 0).map_err(|error| cannot(error.to_string()))?;
        let size = u64::from_le_bytes(size.try_into().expect("invariant: a size has 8 bytes"));
        Ok(OpenedFile { file: Open { server, size }, access: OpenAccess::ReadOnly })
    }

    fn close_file(_: &(), _: Option<&str>, _: Open, _: OpenOptions) -> VfsResult<()> {
        Ok(())
    }

    fn access(_: &(), _: &str, _: AccessMode) -> VfsResult<bool> {
        Ok(false)
    }

    fn full_pathname(_: &(), name: &str) -> VfsResult<String> {
        Ok(name.to_owned())
    }

    fn delete_file(_: &(), _: &str, _: bool) -> VfsResult<()> {
        Err(only_read())
    }
}

impl SQLiteIoMethods for Remote {
    type Store = Remote;
}

impl SQLiteVfs<Remote> for Remote {
    type Os = System;

    fn os(_: &()) -> &System {
        &System
    }
}

struct System;

impl OsCallback for System {
    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn random(&self, _: &mut [u8]) -> usize {
        0
    }

    fn epoch_timestamp_in_ms(&self) -> VfsResult<i64> {
        Err(failed(VfsErrorCode::Error, "nobody asks for the time"))
    }
}
