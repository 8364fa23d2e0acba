//! What to do about an error that the system reported, where the message alone does not say.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::Error;
use crate::listening;

/// What to do, unless the error says so itself.
pub fn of(error: &Error) -> Option<String> {
    match error {
        Error::Node(verbena_node::Error::Listen { address, source }) => {
            Some(listening::advice(*address, source, "--node-api"))
        }
        Error::Node(verbena_node::Error::File { path, source, .. }) | Error::File { path, source, .. } => {
            of_file(path, source)
        }
        Error::Node(verbena_node::Error::Ipc(verbena_ipc::Error::File { path, source, .. })) => of_file(path, source),
        Error::Client(verbena_client::Error::Ipc(verbena_ipc::Error::File { path, source, .. })) => {
            of_file(path, source)
        }
        _ => None,
    }
}

fn of_file(path: &Path, source: &std::io::Error) -> Option<String> {
    match source.kind() {
        ErrorKind::PermissionDenied => of_another(path),
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory if !path.is_dir() => {
            Some("a file stands where a directory is needed: name another directory".into())
        }
        _ => None,
    }
}

/// Which user may use what was refused: the owner of the file, or of the nearest directory above it that can
/// be seen.
fn of_another(path: &Path) -> Option<String> {
    let me = rustix::process::geteuid().as_raw();
    let (found, owner) = path.ancestors().find_map(|path| Some((path, path.metadata().ok()?.uid())))?;
    (owner != me).then(|| {
        format!(
            "{} belongs to user {owner} and this process to user {me}: run it as that user, or name directories of this one \
             (--node-runtime, --node-state)",
            found.display()
        )
    })
}
