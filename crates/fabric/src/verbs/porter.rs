//! Takes what is said at a node's ports for introductions.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering as Atomic};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use verbena_terms::{Incarnation, ViewNumber};

use super::adapter::{Adapter, unusable};
use super::batches::Place;
use super::clerk::Tended;
use super::connecting::Answer;
use super::enquiries::Enquiries;
use super::entries::Refusals;
use super::guests::{Guests, Wish};
use super::introductions::{Counting, Meeting, Purpose, Said};
use super::link::Link;
use super::manager::Listener;
use super::receiver::WINDOW;
use super::regions::Registered;
use super::sender::Sender;
use super::tally::Tally;
use crate::error::{Error, Result};
use crate::message::{Class, Inbox, Message};
use crate::provider::{Address, Fabric};
use crate::tcp::TcpFabric;

/// How long a thread that answers introductions waits for one before it looks whether the fabric is closed.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// Connections that are being made at a time; a caller that gets no answer asks again.
const MOST_ASIDE: usize = 64;

/// What to do where two nodes make connections in different ways.
const SAME_EVERYWHERE: &str = "All nodes have adapters of one kind, and the same fabric.verbs_rdma_cm";

/// The ways to one peer, by class.
pub(super) struct Ties {
    pub(super) links: [Arc<Link>; 2],
    /// Messages by the adapter; none where they all go by the channel.
    pub(super) senders: Option<[Arc<Sender>; 2]>,
}

/// What a fabric shares with the threads that answer introductions.
#[derive(Default)]
pub(super) struct Desk {
    pub(super) ties: Mutex<HashMap<Incarnation, Arc<Ties>>>,
    pub(super) enquiries: Arc<Enquiries>,
    pub(super) tally: Arc<Tally>,
    /// Threads that make connections.
    aside: AtomicUsize,
    pub(super) is_closed: AtomicBool,
}

impl Desk {
    /// The link or sender that waits for a connection to this peer.
    fn asker(&self, peer: Incarnation, class: Class, purpose: Purpose) -> Option<Arc<dyn Tended>> {
        let ties = self.ties.lock().get(&peer).cloned()?;
        match purpose {
            Purpose::Operations => Some(ties.links[class as usize].clone()),
            Purpose::Messages => Some(self.sender(peer, class)?),
        }
    }

    fn sender(&self, peer: Incarnation, class: Class) -> Option<Arc<Sender>> {
        let ties = self.ties.lock().get(&peer).cloned()?;
        ties.senders.as_ref().map(|senders| senders[class as usize].clone())
    }
}

/// Connects those who ask for it and tells them where regions are, and takes the answers to what this node asked.
#[derive(Clone)]
pub(super) struct Porter {
    pub(super) adapter: Arc<Adapter>,
    /// Where the manager takes calls.
    pub(super) listener: Option<Arc<Listener>>,
    pub(super) guests: Arc<Guests>,
    pub(super) regions: Arc<Registered>,
    pub(super) tcp: std::sync::Weak<TcpFabric>,
    pub(super) desk: Arc<Desk>,
}

impl Porter {
    /// Takes what is said at a port, until the fabric is closed.
    pub(super) fn work(self, inbox: &Inbox) {
        while !self.desk.is_closed.load(Atomic::SeqCst) {
            let Some(message) = inbox.take(LOOK_AROUND) else { continue };
            let from = message.from;
            if let Err(error) = self.heed(message) {
                tracing::warn!(%from, %error, "an introduction came to nothing");
            }
        }
        self.guests.close();
    }

    /// Connects those who call.
    pub(super) fn take_calls(self, listener: &Listener) {
        while !self.desk.is_closed.load(Atomic::SeqCst) {
            let taken = match listener.next(LOOK_AROUND) {
                Ok(None) => continue,
                Ok(Some(call)) => {
                    let porter = self.clone();
                    self.aside(move || porter.guests.called(call).inspect_err(|_| porter.desk.tally.refused()))
                }
                Err(error) => {
                    // It is not to be asked again without a pause.
                    thread::sleep(LOOK_AROUND);
                    Err(error)
                }
            };
            if let Err(error) = taken {
                tracing::warn!(%error, "a call came to nothing");
            }
        }
    }

    fn heed(&self, message: Message) -> Result<()> {
        let Message { from, class, number, .. } = message;
        let purpose = Purpose::of(message.port);
        let asker = || self.desk.asker(from, class, purpose);
        let wish = Wish { caller: from, class, purpose, request: number };
        match Said::parse(from, &message.body)? {
            Said::Connect(end, address) => {
                let porter = self.clone();
                self.aside(move || {
                    let made = match porter.adapter.refusals {
                        Refusals::Told => porter.guests.connect(wish, &end),
                        Refusals::Untold => {
                            Err(unusable("connections of iWARP are made by rdma_cm".into(), SAME_EVERYWHERE))
                        }
                    };
                    porter.answer_with(&message, &address, made.map(|end| end.map(Said::Connected)))
                })
            }
            Said::Call(address) => {
                let porter = self.clone();
                self.aside(move || {
                    let expected = match &porter.listener {
                        Some(listener) => porter.guests.expect(wish).map(|ticket| {
                            let (at, serves) = (listener.address, porter.adapter.serves);
                            ticket.map(|ticket| Said::Expected(Meeting { at, ticket, serves }))
                        }),
                        None => Err(unusable("connections are made by message here".into(), SAME_EVERYWHERE)),
                    };
                    porter.answer_with(&message, &address, expected)
                })
            }
            Said::Place(id, address) => self.answer(&message, &address, &Said::Placed(self.regions.place(&id))),
            Said::Connected(end) => self.connect(asker(), number, Answer::Connected(end)),
            Said::Expected(meeting) => self.connect(asker(), number, Answer::Expected(meeting)),
            Said::NotConnected(reason) => {
                asker().into_iter().for_each(|asker| asker.answered(number, Err(reason.clone())));
                Ok(())
            }
            Said::Placed(place) => {
                self.desk.enquiries.told(number, place);
                Ok(())
            }
            Said::Count(address) => {
                let counting = |place: Place| Counting {
                    remote_key: place.remote_key,
                    window: WINDOW as u32,
                    address: place.address,
                };
                let counted = self.guests.counts(&wish).map(|counts| Said::Counted(counts.map(counting)));
                self.answer_with(&message, &address, Ok(counted))
            }
            Said::Counted(counting) => {
                self.desk.sender(from, class).into_iter().for_each(|sender| sender.counted(number, counting));
                Ok(())
            }
        }
    }

    /// A peer has answered a request for a connection.
    fn connect(&self, asker: Option<Arc<dyn Tended>>, number: u64, answer: Answer) -> Result<()> {
        let Some(asker) = asker else { return Ok(()) };
        self.aside(move || {
            asker.answered(number, Ok(answer));
            Ok(())
        })
    }

    /// Does what may take as long as the network looks for a peer, in a thread of its own: no other request is to wait
    /// for it.
    fn aside(&self, act: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        let permit = Permit::of(&self.desk)?;
        let started = thread::Builder::new().name("verbs-connect".into()).spawn(move || {
            let _permit = permit;
            if let Err(error) = act() {
                tracing::warn!(%error, "an introduction came to nothing");
            }
        });
        started.map(drop).map_err(|error| Error::system("start a thread", error))
    }

    /// Says what was made for a caller, or why nothing was; nothing where another answer is on its way.
    fn answer_with(&self, request: &Message, address: &Address, made: Result<Option<Said>>) -> Result<()> {
        let said = match made {
            Ok(None) => return Ok(()),
            Ok(Some(said)) => said,
            Err(error) => {
                self.desk.tally.refused();
                tracing::warn!(from = %request.from, %error, "a caller could not be connected");
                Said::NotConnected(error.to_string())
            }
        };
        self.answer(request, address, &said)
    }

    fn answer(&self, request: &Message, address: &Address, said: &Said) -> Result<()> {
        let Some(tcp) = self.tcp.upgrade() else { return Ok(()) };
        // The node that is found there has to prove that it is the asker.
        let caller = tcp.connect(request.from, address)?;
        caller.send(request.class, ViewNumber(0), request.port, request.number, &said.to_bytes())
    }
}

/// One of the threads that make connections, for as long as it is there.
struct Permit(Arc<Desk>);

impl Permit {
    fn of(desk: &Arc<Desk>) -> Result<Self> {
        let permit = Permit(desk.clone());
        if desk.aside.fetch_add(1, Atomic::SeqCst) >= MOST_ASIDE {
            return Err(Error::Full { what: "the connections that are being made", most: MOST_ASIDE });
        }
        Ok(permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.aside.fetch_sub(1, Atomic::SeqCst);
    }
}
