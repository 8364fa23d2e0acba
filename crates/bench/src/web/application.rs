//! What the applications with a database have in common: connections to it, answers, and announced writes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use rusqlite::Connection;
use verbena_client::{Outcome, Place, Scope, Updates};
use verbena_terms::{DEPENDENCY_FIELD, dependency_field};

/// How long a write waits for those before it.
const PATIENCE: Duration = Duration::from_secs(10);

/// How each of them is started.
#[derive(Parser)]
pub(super) struct Part {
    /// Where to listen.
    #[arg(long)]
    pub(super) listen: SocketAddr,
    /// The database.
    #[arg(long)]
    pub(super) file: PathBuf,
    /// The helper that is told of writes. Without one nobody is.
    #[arg(long)]
    pub(super) helper: Option<Place>,
    #[arg(long, default_value_t = 2)]
    pub(super) threads: usize,
}

/// A database's file, with as many connections as there were ever needed at once.
pub(super) struct Connections {
    file: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Connections {
    pub(super) fn to(file: &Path) -> Self {
        Connections { file: file.to_owned(), idle: Mutex::default() }
    }

    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => {
                let connection = Connection::open(&self.file)?;
                connection.busy_timeout(PATIENCE)?;
                // Readers go on while one writes; a commit is there for all processes of this machine, and need not survive its fall.
                connection.pragma_update(None, "journal_mode", "WAL")?;
                connection.pragma_update(None, "synchronous", "OFF")?;
                connection
            }
        };
        let result = work(&mut connection)?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        Ok(result)
    }
}

/// An answer that no cache has a use for.
pub(super) fn told(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}

/// A page that is made of what has these names.
pub(super) fn made_of(body: String, names: impl Iterator<Item = String>) -> Result<Response<Full<Bytes>>, String> {
    let mut response = told(StatusCode::OK, body);
    let names = declared(names).ok_or("what the page is made of cannot be said in a field")?;
    response.headers_mut().insert(DEPENDENCY_FIELD, names);
    Ok(response)
}

/// The field that names these dependencies; `None` without dependencies, or if they do not fit there.
pub(super) fn declared(names: impl Iterator<Item = String>) -> Option<HeaderValue> {
    let names: Vec<String> = names.collect();
    dependency_field(names.iter().map(String::as_str)).and_then(|field| HeaderValue::try_from(field).ok())
}

/// Writes what has this name, in a bracket at the helper if there is one; answers with its version after that.
pub(super) async fn bracketed(
    helper: Option<&Updates>,
    name: String,
    write: impl FnOnce() -> rusqlite::Result<i64>,
) -> Result<Response<Full<Bytes>>, String> {
    let begun = match helper {
        Some(helper) => Some(helper.begin(&Scope::of([name])).await.map_err(|error| error.to_string())?),
        None => None,
    };
    let written = write();
    if let Some(update) = begun {
        let outcome = if written.is_ok() { Outcome::Done } else { Outcome::Unknown };
        update.end(outcome).await.map_err(|error| error.to_string())?;
    }
    written.map(|version| told(StatusCode::OK, format!("{version}\n"))).map_err(|error| error.to_string())
}
