//! The request table of the page protocol: what callers and membership want of it. The host has the callers that wait, because an update whose caller has gone has
//! to be ended behind what was said of it before.

use std::sync::Arc;

use tokio::sync::oneshot;
use verbena_cluster::View;
use verbena_service::executor::{Admission, Service};
use verbena_terms::Incarnation;

use super::host::Running;
use super::{Finish, Membership, Refused};
use crate::change::Change;
use crate::names::Scope;
use crate::updater::{Outcome, UpdateId};
use crate::wire::{Register, Registered};

/// What callers submit.
pub(super) enum Command {
    View { view: Arc<View>, membership: Box<dyn Membership> },
    Gone(Incarnation),
    Close(Box<dyn Membership>),
    Begin { scope: Scope, change: Change, reply: oneshot::Sender<Result<UpdateId, Refused>> },
    Finished { id: UpdateId, outcome: Outcome, reply: Option<oneshot::Sender<Finish>> },
    Register { register: Register, reply: oneshot::Sender<Registered> },
}

/// The driver, and how many requests wait for it.
pub(super) struct RequestTable {
    pub(super) driver: Running,
    admission: Arc<Admission>,
}

impl RequestTable {
    pub(super) fn new(driver: Running, admission: Arc<Admission>) -> Self {
        RequestTable { driver, admission }
    }
}

impl Service for RequestTable {
    type Command = Command;
    type Driver = Running;

    fn driver(&mut self) -> &mut Running {
        &mut self.driver
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::View { view, membership } => {
                self.driver.host_mut().set_membership(membership);
                self.driver.enter_view(&view);
            }
            Command::Gone(member) => self.driver.command(|protocol, _, now, out| protocol.gone(member, now, out)),
            Command::Close(membership) => self.driver.command(|protocol, host, _, _| {
                protocol.close();
                host.close_with(membership);
            }),
            Command::Begin { scope, change, reply } => {
                self.admission.started();
                self.driver.command(|protocol, host, now, out| match protocol.begin(scope, change, now, out) {
                    // Before the actions are carried out: it may have begun already.
                    Ok(id) => host.await_begin(id, reply),
                    // The caller may have gone.
                    Err(full) => drop(reply.send(Err(full.into()))),
                });
            }
            Command::Finished { id, outcome, reply } => self.driver.command(|protocol, host, now, out| {
                if let Some(reply) = reply {
                    host.await_finish(id, reply);
                }
                protocol.finished(id, outcome, now, out);
            }),
            Command::Register { register, reply } => {
                self.admission.started();
                self.driver.command(|protocol, host, now, out| {
                    // Before the actions are carried out: this node may be the home.
                    host.await_registration(register.to, register.request, reply);
                    protocol.register(register, now, out);
                });
            }
        }
    }

    /// The host has answered them: a command and what follows from it are one.
    fn deliver_answers(&mut self) {}

    fn idle(&mut self) {
        self.driver.idle();
    }
}
