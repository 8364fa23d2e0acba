//! What goes as messages to one target in one class: by a connection of adapters that carries nothing else, or else by the target's channel. Which it is, is decided in
//! [`Sends`].
//!
//! *Why a connection of its own.* A message that finds no buffer holds up whatever was posted behind it, and in the end ends the connection. One-sided operations of a
//! target that is stopped are to go on.

use std::sync::Arc;

use parking_lot::Mutex;
use verbena_terms::{BootClock, Clock, Incarnation, Time, ViewNumber};

use super::batches::Place;
use super::clerk::Tended;
use super::connecting::{ASK_AGAIN, Answer, Connecting, Ways};
use super::entries::{Refusals, Request};
use super::envelope::{Envelope, HEAD_BYTES, LONGEST_BODY};
use super::introductions::{Counting, Purpose, Said};
use super::line::Line;
use super::sends::{Left, Sends, Way};
use crate::error::Result;
use crate::message::Port;
use crate::operation::Operation;
use crate::pool::{Buffer, Pool};

/// How a count is read.
const READ: Operation = Operation::ReadWord { at: 0 };

pub(super) struct Sender {
    me: Incarnation,
    ways: Ways,
    pool: Pool,
    side: Mutex<Side>,
}

struct Side {
    sends: Sends<Buffer>,
    line: Option<Line>,
    connecting: Connecting,
    /// Where the target counts what it takes.
    counts: Place,
    /// When it is asked again where that is.
    asks: Time,
    /// Whether the clerk looks after it.
    is_left: bool,
}

impl Sender {
    /// To a target from `me`. A connection is asked for when there is something to send.
    pub(super) fn new(me: Incarnation, ways: Ways, pool: Pool) -> Self {
        let side = Side {
            sends: Sends::new(ways.adapter.refusals == Refusals::Told),
            line: None,
            connecting: Connecting::new(Purpose::Messages),
            counts: Place { remote_key: 0, address: 0, bytes: 0 },
            asks: Time::ZERO,
            is_left: false,
        };
        Sender { me, ways, pool, side: Mutex::new(side) }
    }

    /// As [`Peer::send`](crate::Peer::send).
    pub(super) fn send(self: &Arc<Self>, view: ViewNumber, port: Port, number: u64, body: &[u8]) -> Result<()> {
        let Ways { class, channel, tally, .. } = &self.ways;
        if body.len() > LONGEST_BODY {
            tally.too_large();
            return channel.send(*class, view, port, number, body);
        }
        let mut side = self.side.lock();
        let now = BootClock.now();
        let way = side.sends.way(now)?;
        // Where the pool has nothing to lend, what has no order to keep goes by the channel.
        let letter = if way == Way::Adapter { self.pool.take(HEAD_BYTES + body.len()).ok() } else { None };
        let sent = match letter {
            Some(mut letter) => {
                Envelope { sender: self.me, view, port, number }.write(body, letter.bytes_mut());
                side.sends.put(letter);
                Ok(())
            }
            None => {
                tally.unconnected(1);
                channel.send(*class, view, port, number, body)
            }
        };
        self.go_on(side, now);
        sent
    }

    /// The target has said where it counts what it takes of the connection with this number.
    pub(super) fn counted(self: &Arc<Self>, number: u64, counting: Option<Counting>) {
        let mut side = self.side.lock();
        let now = BootClock.now();
        if side.sends.is_turning() && number == side.connecting.request() {
            match counting {
                Some(Counting { remote_key, window, address }) => {
                    side.counts = Place { remote_key, address, bytes: 8 };
                    side.sends.counted(window.into());
                }
                None => self.end(&mut side, now),
            }
        }
        self.go_on(side, now);
    }

    /// Nothing goes any more.
    pub(super) fn close(&self) {
        let mut side = self.side.lock();
        let left = side.sends.close();
        self.bury(&mut side, left.retired);
    }

    /// Posts what may go, asks what is to be asked, and has the clerk look after the rest.
    fn go_on(self: &Arc<Self>, mut side: parking_lot::MutexGuard<'_, Side>, now: Time) {
        self.post(&mut side, now);
        let due = self.ask(&mut side, now);
        let was_left = std::mem::replace(&mut side.is_left, due.is_some());
        drop(side);
        self.ways.clerk.rota().tell(|| self.clone(), due.is_some(), was_left, due.unwrap_or(Time::FAR));
    }

    fn post(&self, side: &mut Side, now: Time) {
        let Side { sends, line, counts, .. } = side;
        let Some(line) = line else { return };
        let count = sends.begin(now);
        let sent = if count > 0 { line.send(sends.newest(count)) } else { Ok(()) };
        self.ways.tally.sent(count);
        let read = sent.and_then(|()| match sends.read(now) {
            Some(number) => {
                line.post(*counts, std::iter::once(Request { number, operation: &READ, is_signaled: true }))
            }
            None => Ok(()),
        });
        if let Err(error) = read {
            tracing::warn!(peer = %self.ways.target, %error, "a connection for messages has ended");
            self.end(side, now);
        }
    }

    /// Asks for a connection, or where the target counts what it takes. When to look again.
    fn ask(&self, side: &mut Side, now: Time) -> Option<Time> {
        let Side { sends, connecting, .. } = side;
        let asked = if sends.is_asking() {
            connecting.ask(&self.ways, now)
        } else if sends.is_turning() && now >= side.asks {
            side.asks = now + ASK_AGAIN;
            let said = Said::Count(self.ways.answers.clone());
            self.ways.say(Purpose::Messages, connecting.request(), &said)
        } else {
            Ok(())
        };
        if let Err(error) = asked {
            tracing::debug!(peer = %self.ways.target, %error, "no connection for messages");
            self.end(side, now);
        }
        let again = match (side.sends.is_asking(), side.sends.is_turning()) {
            (true, _) => side.connecting.again(),
            (_, true) => side.asks,
            _ => Time::FAR,
        };
        side.sends.due().map(|due| due.min(again))
    }

    /// Takes what has completed. Whether anything had.
    fn take(&self, side: &mut Side, now: Time) -> bool {
        let Side { sends, line: Some(line), .. } = side else { return false };
        let (last, failed) = line.poll();
        let is_sound = last.is_none_or(|last| sends.completed(now, last, |number| line.word(number, &READ)));
        if !is_sound || failed.is_some() {
            tracing::debug!(peer = %self.ways.target, ?failed, is_sound, "a connection for messages has ended");
            self.end(side, now);
        }
        last.is_some() || failed.is_some()
    }

    /// There is no connection any more: what waited goes by the channel.
    fn end(&self, side: &mut Side, now: Time) {
        let Left { waited, retired } = side.sends.lost(now);
        self.bury(side, retired);
        let Ways { target, class, channel, tally, .. } = &self.ways;
        tally.unconnected(waited.len());
        for letter in waited {
            let sent = Envelope::parse(self.me, letter.bytes())
                .and_then(|(Envelope { view, port, number, .. }, body)| channel.send(*class, view, port, number, body));
            if let Err(error) = sent {
                tracing::debug!(peer = %target, %error, "a message is lost");
            }
        }
    }

    fn bury(&self, side: &mut Side, retired: Vec<Buffer>) {
        side.connecting.give_up(&self.ways.burial);
        self.ways.tally.left_open(retired.len());
        if let Some(line) = side.line.take() {
            self.ways.tally.lost();
            self.ways.burial.bury(line, retired);
        }
    }
}

impl Tended for Sender {
    fn serve(self: Arc<Self>) -> Option<Time> {
        let mut side = self.side.lock();
        let now = BootClock.now();
        self.take(&mut side, now);
        if side.sends.is_over(now) {
            tracing::debug!(peer = %self.ways.target, "a connection for messages is given up");
            self.end(&mut side, now);
        }
        self.post(&mut side, now);
        if self.ways.clerk.is_told() {
            // The channel reports what completes from now on; take what did before.
            if side.line.as_ref().is_some_and(|line| line.arm().is_err()) {
                self.end(&mut side, now);
            }
            if self.take(&mut side, now) {
                self.post(&mut side, now);
            }
        }
        let next = self.ask(&mut side, now);
        side.is_left = next.is_some();
        next
    }

    fn answered(self: Arc<Self>, number: u64, answer: std::result::Result<Answer, String>) {
        let line = self.side.lock().connecting.answered(number);
        let Some(mut line) = line else { return };
        let connected = self.ways.connect(&mut line, answer);
        let mut side = self.side.lock();
        let now = BootClock.now();
        if side.connecting.ends(number) {
            match connected {
                Ok(()) if side.sends.connected(now) => {
                    (side.line, side.asks) = (Some(line), now);
                    self.ways.tally.made();
                }
                Ok(()) => {}
                Err(error) => {
                    tracing::info!(peer = %self.ways.target, %error, "messages go by tcp");
                    side.sends.refused(now);
                }
            }
        }
        self.go_on(side, now);
    }
}
