//! Looks after links while something is under way there: takes completions, keeps deadlines, connects again. And takes what comes to its class's receive queue.
//!
//! One for each class, so that a word never waits behind a file. It sleeps until its channel tells of a completion, or looks without a pause where
//! [`Completions::Polled`] says so.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;
use std::sync::Arc;

use rdma_mummy_sys::{ibv_ack_cq_events, ibv_get_cq_event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sideway::ibverbs::completion::CompletionChannel;
use verbena_terms::Time;

use super::adapter::Adapter;
use super::config::Completions;
use super::connecting::Answer;
use super::receiver::Receiver;
use crate::error::Result;
use crate::rota::Rota;

/// What a clerk looks after while something is under way there.
pub(super) trait Tended: Send + Sync {
    /// What has come and what is due. When to look again, at the latest; `None` when nothing is waited for.
    fn serve(self: Arc<Self>) -> Option<Time>;

    /// The target has answered a request for a connection. May take as long as the network looks for it.
    fn answered(self: Arc<Self>, number: u64, answer: std::result::Result<Answer, String>);
}

pub(super) struct Clerk {
    channel: Arc<CompletionChannel>,
    rota: Rota<dyn Tended>,
    completions: Completions,
    receiver: Option<Arc<Receiver>>,
}

impl Clerk {
    /// Starts it; `receive` makes the receive queue that it looks after, which tells of completions by the channel.
    pub(super) fn start(
        name: &str,
        adapter: &Adapter,
        completions: Completions,
        receive: impl FnOnce(&Arc<CompletionChannel>) -> Result<Option<Arc<Receiver>>>,
    ) -> Result<Arc<Self>> {
        let channel = adapter.channel()?;
        let receiver = receive(&channel)?;
        let clerk = Arc::new(Clerk { channel, rota: Rota::new()?, completions, receiver });
        let its = clerk.clone();
        clerk.rota.start(name, move || its.work())?;
        Ok(clerk)
    }

    /// Its links.
    pub(super) fn rota(&self) -> &Rota<dyn Tended> {
        &self.rota
    }

    /// Its receive queue.
    pub(super) fn receiver(&self) -> Option<&Arc<Receiver>> {
        self.receiver.as_ref()
    }

    /// The channel for completion events.
    pub(super) fn channel(&self) -> &Arc<CompletionChannel> {
        &self.channel
    }

    /// Whether the clerk waits for completion events; otherwise it polls without a pause.
    pub(super) fn is_told(&self) -> bool {
        self.completions == Completions::Told
    }

    fn work(&self) {
        let mut links: Vec<Arc<dyn Tended>> = Vec::new();
        while !self.rota.is_over() {
            links.append(&mut self.rota.take_left());
            let mut until = Time::FAR;
            links.retain(|link| {
                let Some(next) = link.clone().serve() else { return false };
                until = until.min(next);
                true
            });
            let sleeps = self.is_told() || links.is_empty();
            if let Some(receiver) = &self.receiver {
                receiver.serve(sleeps);
            }
            if sleeps {
                self.rota.sleep(until, |longest| self.sleep(longest));
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Sleeps until an event comes, or another thread wakes it.
    fn sleep(&self, longest: &Timespec) {
        // SAFETY: the descriptor is open as long as the channel.
        let channel = unsafe { BorrowedFd::borrow_raw(self.channel.as_raw_fd()) };
        let alarm = self.rota.alarm();
        let mut ready = [alarm, channel].map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN));
        // Interrupted, it looks around and sleeps again.
        let _ = poll(&mut ready, Some(longest));
        let [is_woken, is_told] = ready.map(|one| !one.revents().is_empty());
        if is_woken {
            self.rota.quiet();
        }
        if is_told {
            self.take_events();
        }
    }

    /// Takes the events. Their queues do not matter: every link is looked at.
    fn take_events(&self) {
        let (mut queue, mut context) = (null_mut(), null_mut());
        // SAFETY: the channel is open and does not block; a queue that is given stays until its events are acknowledged, which is at once.
        unsafe {
            while ibv_get_cq_event(self.channel.comp_channel().as_ptr(), &mut queue, &mut context) == 0 {
                ibv_ack_cq_events(queue, 1);
            }
        }
    }
}
