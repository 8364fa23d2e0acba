//! One who asks a proxy again and again whether it serves in full.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hyper::StatusCode;

use crate::checker::{Checker, PageId};
use crate::connection::{Answer, Connection, Door};
use crate::errand::{Errand, committed};

/// Carts that a probe looks at. Their pages are spread over the homes.
const CARTS: usize = 4;
/// Between two tries.
const AGAIN: Duration = Duration::from_millis(10);
/// Customers that a probe can be. The shoppers' own are beyond [`FIRST`] and all of these, from the first commit on.
const EACH: i64 = 1 << 20;
const FIRST: i64 = 1 << 30;

/// Once all of it: reads were answered, an update was accepted, and each page was a hit. Each step was tried until it succeeded.
#[derive(Clone, Debug)]
pub struct Round {
    /// Before the first request.
    pub began: Instant,
    /// When an update had been accepted.
    pub accepted: Instant,
    /// When all pages had been hits.
    pub done: Instant,
    /// Why the last try of the update that failed did.
    pub refused: Option<String>,
}

/// What a probe has seen.
#[derive(Debug, Default)]
pub struct Seen {
    /// In order.
    pub rounds: Vec<Round>,
    /// Since when a round is under way.
    pub under_way: Option<Instant>,
    /// Answers that must not be: they are checked like those of the shoppers.
    pub wrong: Vec<String>,
}

/// It changes nothing but carts of its own, which are on no other page, so nobody else needs to know.
pub struct Probe {
    connection: Connection,
    checker: Checker,
    carts: Vec<Cart>,
    next_customer: i64,
    seen: Rc<RefCell<Seen>>,
}

struct Cart {
    customer: i64,
    page: PageId,
}

impl Probe {
    /// One of at most 512, by its number, at a proxy. No request takes longer than its patience.
    pub fn new(number: u16, address: SocketAddr, patience: Duration) -> (Self, Rc<RefCell<Seen>>) {
        let seen = Rc::new(RefCell::new(Seen::default()));
        let connection = Connection::new(Door::from(address), Instant::now(), patience);
        let next_customer = FIRST + i64::from(number) * EACH;
        let mut probe =
            Probe { connection, checker: Checker::default(), carts: Vec::new(), next_customer, seen: seen.clone() };
        probe.carts = (0..CARTS).map(|_| probe.cart()).collect();
        (probe, seen)
    }

    /// Rounds, with a pause after each. Never ends.
    pub async fn run(mut self, pause: Duration) {
        for turn in 0.. {
            let began = Instant::now();
            self.seen.borrow_mut().under_way = Some(began);
            let (accepted, refused) = self.change(turn % CARTS).await;
            for cart in 0..CARTS {
                while !self.is_hit(cart).await {
                    tokio::time::sleep(AGAIN).await;
                }
            }
            {
                let mut seen = self.seen.borrow_mut();
                seen.under_way = None;
                seen.rounds.push(Round { began, accepted, done: Instant::now(), refused });
            }
            tokio::time::sleep(pause).await;
        }
    }

    fn cart(&mut self) -> Cart {
        let customer = self.next_customer;
        self.next_customer += 1;
        Cart { customer, page: self.checker.page(&format!("/cart/{customer}")) }
    }

    /// Puts something into a cart.
    async fn change(&mut self, cart: usize) -> (Instant, Option<String>) {
        let mut refused = None;
        loop {
            let errand = Errand::IntoCart { customer: self.carts[cart].customer, product: 1 };
            match self.connection.post(&errand.path(), errand.form()).await {
                Ok(answer) => match committed(&answer.body).filter(|_| answer.status == StatusCode::OK) {
                    Some((commit, id)) => {
                        let touched = errand.touches(id);
                        let fits = self.checker.acknowledged(commit, &touched, answer.sent, answer.received);
                        self.note(fits, &answer);
                        return (Instant::now(), refused);
                    }
                    None => refused = Some(format!("{} {:?}", answer.status, answer.body)),
                },
                Err(failure) => refused = Some(format!("{failure:?}")),
            }
            // Made or not: what is in this one is not known.
            self.carts[cart] = self.cart();
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn is_hit(&mut self, cart: usize) -> bool {
        let Cart { customer, page } = self.carts[cart];
        let Ok(answer) = self.connection.get(&format!("/cart/{customer}")).await else { return false };
        if answer.status.is_server_error() {
            return false;
        }
        let checked = self.checker.answered(page, answer.sent, answer.received, &answer.body);
        self.note(checked.map(|_| ()), &answer);
        answer.hit
    }

    fn note(&self, checked: Result<(), crate::Violation>, answer: &Answer) {
        if let Err(violation) = checked {
            let (hit, address) = (answer.hit, self.connection.address());
            self.seen.borrow_mut().wrong.push(format!("{violation} (a probe's, {address}, hit: {hit})"));
        }
    }
}
