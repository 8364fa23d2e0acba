//! The file system: files by name, and the connection that each belongs to.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rsqlite_vfs::{
    AccessMode, FileKind, MemChunksFile, OpenAccess, OpenOptions, OpenRequest, OpenedFile, OsCallback, SQLiteIoMethods,
    SQLiteVfs, VfsError, VfsErrorCode, VfsResult, VfsStore, register_vfs,
};
use verbena_client::{Placement, Socket};

use crate::error::{Error, note, noted};
use crate::file::File;
use crate::session::Session;
use crate::store::{Connect, Helper};

/// Bytes that a database's name may have: names of its journal and its blocks are longer.
pub const LONGEST_NAME: usize = 200;
/// What a journal's name has behind its database's.
pub(crate) const JOURNAL: &str = "-journal";

/// How files are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of a block, and of a page of databases that [`Vfs::open`] makes: a power of two from 512 to 65536.
    pub block_bytes: u32,
    /// Homes that hold each segment: 1 to 4.
    pub copies: u8,
    /// Where the segments are.
    pub placement: Placement,
    /// How long a get, a put and the like may take.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options { block_bytes: 8192, copies: 1, placement: Placement::default(), patience: Duration::from_secs(5) }
    }
}

impl Options {
    pub(crate) fn is_block(bytes: u64) -> bool {
        bytes.is_power_of_two() && (512..=65_536).contains(&bytes)
    }
}

/// A VFS that SQLite knows until the process ends. Any thread may open databases with it.
#[derive(Clone, Debug)]
pub struct Vfs {
    name: String,
    block_bytes: u32,
}

impl Vfs {
    /// Registers a VFS of this name with SQLite; its files are at the helper at `socket`. Nothing connects to the
    /// helper before a database is opened.
    ///
    /// # Errors
    /// For bytes of a block that cannot be, and for a name that is another VFS's.
    pub fn register(name: &str, socket: Socket, options: Options) -> Result<Vfs, Error> {
        let patience = options.patience;
        Vfs::register_at(name, Helper { socket, patience }, options)
    }

    /// The same, wherever the files are.
    pub(crate) fn register_at<C: Connect>(name: &str, connect: C, options: Options) -> Result<Vfs, Error> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let block_bytes = options.block_bytes;
        if !Options::is_block(block_bytes.into()) {
            return Err(Error::Block { bytes: block_bytes });
        }
        let files = Files { connect, options, common: Mutex::default(), databases: Mutex::default() };
        let _one = ONE_AT_A_TIME.lock();
        // SAFETY: the callbacks and the layout of open files are the library's own, with the types that `Segments` names. `Files` is `Sync` and its sessions are each behind a
        // mutex, so callbacks may come from any thread; what is registered is never freed. Registrations of this crate are serialised by the lock, and SQLite is built with
        // its own mutexes, as rusqlite, Debian and Python have it.
        let registered = unsafe { register_vfs::<Segments<C>, Segments<C>>(name, files, false) }?;
        registered.into_raw();
        Ok(Vfs { name: name.to_owned(), block_bytes })
    }

    /// What SQLite calls it: the `vfs` of a file's URI.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Statements for each connection that has opened a database: pages as long as blocks, and a journal that persists,
    /// which makes and releases fewer segments.
    pub fn pragmas(&self) -> String {
        format!("PRAGMA page_size = {}; PRAGMA journal_mode = persist;", self.block_bytes)
    }
}

/// What all files of a VFS share.
struct Files<C: Connect> {
    connect: C,
    options: Options,
    /// For files of no open database, and for looking whether there are some.
    common: Mutex<Option<Arc<Mutex<Session<C>>>>>,
    /// By a database's name, of those that are open: a journal is of the one that is going to write, or rolls back.
    databases: Mutex<HashMap<String, Vec<Open<C>>>>,
}

/// A connection, and whether it is going to write.
type Open<C> = (Arc<AtomicBool>, Arc<Mutex<Session<C>>>);

impl<C: Connect> Files<C> {
    fn connect(&self) -> VfsResult<Arc<Mutex<Session<C>>>> {
        Ok(Arc::new(Mutex::new(Session::new(self.connect.clone(), self.options.clone())?)))
    }

    fn common(&self) -> VfsResult<Arc<Mutex<Session<C>>>> {
        let mut common = self.common.lock();
        match &*common {
            Some(session) => Ok(session.clone()),
            None => Ok(common.insert(self.connect()?).clone()),
        }
    }

    /// The session that a file belongs to. A journal is put and deleted by the connection that holds its database's
    /// locks, which become free when what that connection has put has arrived.
    fn session_of(&self, name: &str) -> VfsResult<Arc<Mutex<Session<C>>>> {
        let Some(database) = name.strip_suffix(JOURNAL) else { return self.common() };
        let databases = self.databases.lock();
        let mut open = databases.get(database).into_iter().flatten();
        let writer = open.find(|(writes, _)| writes.load(Ordering::Acquire)).map(|(_, session)| session.clone());
        drop(databases);
        writer.map_or_else(|| self.common(), Ok)
    }

    fn open(&self, name: &str, options: OpenOptions) -> VfsResult<File<C>> {
        let is_database = options.kind() == Some(FileKind::MainDb);
        let is_read_only = options.access() == OpenAccess::ReadOnly;
        let session = if is_database { self.connect()? } else { self.session_of(name)? };
        let mut its = session.lock();
        if options.create() && !its.create(name)? && options.exclusive() {
            return Err(VfsError::new(VfsErrorCode::CantOpen, format!("{name} exists").into()));
        }
        its.open(name)?;
        if is_database {
            its.guard(name)?;
            self.databases.lock().entry(name.to_owned()).or_default().push((its.writes(), session.clone()));
        }
        drop(its);
        Ok(File::Shared { session, name: name.to_owned(), is_database, is_read_only })
    }

    fn close(&self, file: File<C>) -> VfsResult<()> {
        let File::Shared { session, name, is_database, .. } = file else { return Ok(()) };
        let closed = session.lock().close(&name);
        if is_database {
            let mut databases = self.databases.lock();
            if let Some(sessions) = databases.get_mut(&name) {
                sessions.retain(|(_, one)| !Arc::ptr_eq(one, &session));
                if sessions.is_empty() {
                    databases.remove(&name);
                }
            }
        }
        closed
    }
}

struct Segments<C>(PhantomData<C>);

impl<C: Connect> VfsStore for Segments<C> {
    type File = File<C>;
    type AppData = Files<C>;

    fn record_error(_: &Files<C>, error: VfsError) {
        note(error);
    }

    fn last_error(_: &Files<C>) -> Option<VfsError> {
        noted()
    }

    fn open_file(files: &Files<C>, request: OpenRequest<'_>) -> VfsResult<OpenedFile<File<C>>> {
        let OpenRequest { filename, options } = request;
        let is_shared = matches!(
            options.kind(),
            Some(FileKind::MainDb | FileKind::MainJournal | FileKind::SuperJournal | FileKind::Wal)
        );
        let file = match filename {
            Some(name) if is_shared => files.open(name.path(), options)?,
            _ => File::Temporary(MemChunksFile::default()),
        };
        Ok(OpenedFile { file, access: options.access() })
    }

    fn close_file(files: &Files<C>, name: Option<&str>, file: File<C>, options: OpenOptions) -> VfsResult<()> {
        let deletes = options.delete_on_close() && matches!(file, File::Shared { .. });
        let closed = files.close(file);
        match name {
            Some(name) if deletes => Self::delete_file(files, name, false),
            _ => closed,
        }
    }

    fn access(files: &Files<C>, name: &str, _: AccessMode) -> VfsResult<bool> {
        let session = files.session_of(name)?;
        session.lock().exists(name)
    }

    fn full_pathname(_: &Files<C>, name: &str) -> VfsResult<String> {
        if name.len() > LONGEST_NAME || name.is_empty() || name.ends_with(JOURNAL) {
            let text =
                format!("{name:?}: a database's name has 1 to {LONGEST_NAME} bytes, and does not end in {JOURNAL}");
            return Err(VfsError::new(VfsErrorCode::CantOpen, text.into()));
        }
        Ok(name.to_owned())
    }

    fn delete_file(files: &Files<C>, name: &str, _: bool) -> VfsResult<()> {
        let session = files.session_of(name)?;
        session.lock().delete(name)
    }
}

impl<C: Connect> SQLiteIoMethods for Segments<C> {
    type Store = Segments<C>;
}

impl<C: Connect> SQLiteVfs<Segments<C>> for Segments<C> {
    type Os = System;

    fn os(_: &Files<C>) -> &System {
        &System
    }
}

struct System;

impl OsCallback for System {
    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn random(&self, bytes: &mut [u8]) -> usize {
        getrandom::fill(bytes).map_or(0, |()| bytes.len())
    }

    fn epoch_timestamp_in_ms(&self) -> VfsResult<i64> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map(|since| since.as_millis());
        let since = since.ok().and_then(|ms| i64::try_from(ms).ok());
        since.ok_or_else(|| VfsError::new(VfsErrorCode::Error, "the clock is before 1970".into()))
    }
}

/// Callbacks come from any thread.
const _: fn() = || {
    fn is_sync<T: Sync + Send>() {}
    is_sync::<Files<Helper>>();
    is_sync::<File<Helper>>();
};
