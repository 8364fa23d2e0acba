//! Where a helper stands: which member it is, the state directory that it owns, and the socket at which programs reach it.

use std::path::PathBuf;

use verbena_client::Socket;
use verbena_cluster::Membership;
use verbena_ipc::{Options, Server};

use crate::config::Settings;
use crate::error::Result;
use crate::local::store::{Store, make_directory};

/// A place that this process has taken. No other process can have it while this value exists.
pub(crate) struct Place {
    pub(crate) membership: Membership,
    pub(crate) store: Store,
    pub(crate) server: Server,
    /// Where the socket and the cards of this machine's nodes are.
    pub(crate) runtime: PathBuf,
    /// The key of names, where the nodes of this machine keep one and none is configured.
    pub(crate) names: Option<PathBuf>,
}

impl Place {
    /// The place that the configuration gives to this node.
    ///
    /// # Errors
    /// Names what stands in the way: another helper, a directory, a member that does not fit.
    pub(crate) fn configured(settings: &Settings) -> Result<Place> {
        let membership = Membership::new(&settings.cluster)?;
        let socket = settings.socket()?;
        if settings.node.runtime.is_some() {
            make_directory(socket.directory())?;
        }
        Place::take(membership, settings.state_directory()?, &socket, None, settings.ipc.options())
    }

    /// Takes the state directory and then the socket.
    pub(crate) fn take(
        membership: Membership,
        state: PathBuf,
        socket: &Socket,
        names: Option<PathBuf>,
        options: Options,
    ) -> Result<Place> {
        let store = Store::open(&state)?;
        let server = Server::bind(socket.directory(), &socket.file_name(), options)?;
        Ok(Place { membership, store, server, runtime: socket.directory().to_owned(), names })
    }

    /// What the node is called.
    pub(crate) fn name(&self) -> &str {
        &self.membership.own().name
    }
}
