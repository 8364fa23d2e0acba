//! The readers and the writers.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use rand_core::SeedableRng;
use rand_pcg::Pcg64;
use thiserror::Error;
use tokio::task::LocalSet;
use tokio::time::MissedTickBehavior;

use crate::checker::{Checker, PageId, Violation};
use crate::connection::{Answer, Connection, Door, Failure};
use crate::errand::{Errand, committed};
use crate::page;
use crate::span::MEMORY;
use crate::street::Street;
use crate::tally::{Line, Tally, Totals};

/// Violations that are told in words; the rest is counted.
const TOLD: u64 = 20;
/// How long a reader whose proxy failed waits before it asks again.
const PAUSE: Duration = Duration::from_millis(20);
/// Where the second part of a page begins at most, bytes.
const MOST_OF_FIRST_PART: u64 = 12 << 10;
/// Customers that a writer can be, one after the other, and that all can be in one run.
const CUSTOMERS_EACH: i64 = 1 << 20;
const CUSTOMERS_ALL: i64 = 1 << 32;

/// What shoppers do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where readers go, in turn.
    pub read: Vec<Door>,
    /// Where writers go, in turn.
    pub write: Vec<Door>,
    /// Of so many pages readers ask for one in two parts; 0: for none.
    pub parts_every: u64,
    /// Readers; each has a connection, and asks again as soon as it is answered.
    pub readers: usize,
    /// Writers; together they send an update every [`every`](Self::every).
    pub writers: usize,
    /// Time between two updates.
    pub every: Duration,
    /// How long a request may take: below half a minute, for history is kept for a minute.
    pub patience: Duration,
    /// What random choices begin with.
    pub seed: u64,
}

/// Why shoppers cannot begin.
#[derive(Debug, Error)]
pub enum Trouble {
    /// A setting makes no sense.
    #[error("{0}")]
    Setting(&'static str),
    /// The shop was not seen.
    #[error("no proxy showed the shop's pages within {} s; the last one: {last}", .after.as_secs())]
    NoShop {
        /// How long it was tried.
        after: Duration,
        /// What came instead.
        last: String,
    },
}

/// Sends shoppers until `stop` is done, tells each second and each violation, and gives what was counted. To be run in a runtime of
/// one thread.
pub async fn run(
    options: Options,
    stop: impl Future<Output = ()>,
    mut tell: impl FnMut(&Line) + 'static,
    cry: impl FnMut(&str) + 'static,
) -> Result<Totals, Trouble> {
    if options.read.is_empty() || options.write.is_empty() || options.readers == 0 {
        return Err(Trouble::Setting("shoppers need a proxy to go to"));
    }
    if options.patience > MEMORY / 2 || options.every.is_zero() {
        return Err(Trouble::Setting(
            "a request may take half a minute at most, and updates need some time between them",
        ));
    }
    let clock = Instant::now();
    let mut checker = Checker::default();
    let (commit, street) = survey(&options, clock, &mut checker).await?;
    // Nobody has filled the carts of these before: commits only grow.
    let first_customer = commit * CUSTOMERS_ALL;
    let began = Instant::now();
    let world = Rc::new(RefCell::new(World { checker, street, tally: Tally::new(), cry: Box::new(cry) }));
    let crowd = LocalSet::new();
    for (number, door) in (0..options.readers).zip(options.read.iter().cycle()) {
        let connection = Connection::new(door.clone(), clock, options.patience);
        // Not all at the same moment.
        let delay = Duration::from_millis(number as u64 % 50);
        crowd.spawn_local(read(world.clone(), connection, delay, options.parts_every));
    }
    let step = options.every * u32::try_from(options.writers).unwrap_or(u32::MAX);
    for (number, door) in (0..options.writers).zip(options.write.iter().cycle()) {
        let connection = Connection::new(door.clone(), clock, options.patience);
        let customer = first_customer + number as i64 * CUSTOMERS_EACH;
        let first = options.every * u32::try_from(number).unwrap_or(u32::MAX);
        let cart = world.borrow_mut().checker.page(&format!("/cart/{customer}"));
        let writer = Writer { world: world.clone(), connection, customer, cart, filled: Vec::new() };
        crowd.spawn_local(writer.run(first, step));
    }
    let seconds = world.clone();
    crowd.spawn_local(async move {
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        tick.tick().await;
        loop {
            tick.tick().await;
            let line = seconds.borrow_mut().tally.line(began.elapsed());
            tell(&line);
        }
    });
    crowd.run_until(stop).await;
    drop(crowd);
    let world = Rc::into_inner(world).expect("invariant: the crowd is gone, and only it shared the world");
    Ok(world.into_inner().tally.end(began.elapsed()))
}

/// What all share. Never borrowed over an await.
struct World {
    checker: Checker,
    street: Street,
    tally: Tally,
    cry: Box<dyn FnMut(&str)>,
}

impl World {
    fn violated(&mut self, violation: &Violation, answer: &Answer, address: SocketAddr) {
        self.tally.violation(violation);
        if self.tally.totals.violations() <= TOLD {
            let from = if answer.hit { "a hit" } else { "no hit" };
            (self.cry)(&format!(
                "{violation} ({from} at {address}, sent at {}, received at {})",
                answer.sent, answer.received
            ));
        }
    }

    fn read(&mut self, page: PageId, answer: &Answer, address: SocketAddr) {
        let checked = match answer.status {
            StatusCode::OK => self.checker.answered(page, answer.sent, answer.received, &answer.body),
            status => {
                let page = self.checker.path(page).to_string();
                Err(Violation::Malformed { page, what: format!("its status is {status}, and it exists") })
            }
        };
        self.tally.answer(answer, checked.as_ref().is_ok_and(|checked| checked.soon));
        if let Err(violation) = checked {
            self.violated(&violation, answer, address);
        }
    }
}

/// Learns what there is in the shop.
async fn survey(options: &Options, clock: Instant, checker: &mut Checker) -> Result<(i64, Street), Trouble> {
    let began = Instant::now();
    let within = Duration::from_secs(30);
    let mut last = String::new();
    let mut proxies = options.read.iter().cycle();
    while began.elapsed() < within {
        let door = proxies.next().expect("invariant: there is a proxy, and they come in a circle");
        let (address, mut connection) = (door.address, Connection::new(door.clone(), clock, options.patience));
        match look_around(&mut connection).await {
            Ok(seen) => return Ok((seen.commit, street(options, checker, seen))),
            Err(problem) => last = format!("{address}: {problem}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(Trouble::NoShop { after: within, last })
}

/// What a shop has.
#[derive(Default)]
struct Seen {
    commit: i64,
    categories: BTreeSet<i64>,
    products: BTreeSet<i64>,
}

async fn look_around(connection: &mut Connection) -> Result<Seen, String> {
    let (commit, categories) = numbers(connection, "/", "category:").await?;
    let mut products = BTreeSet::new();
    for category in &categories {
        products.extend(numbers(connection, &format!("/category/{category}"), "product:").await?.1);
    }
    if products.is_empty() {
        return Err("it has no products".into());
    }
    Ok(Seen { commit, categories, products })
}

/// A page's commit, and the numbers of its rows of one kind.
async fn numbers(connection: &mut Connection, path: &str, kind: &str) -> Result<(i64, BTreeSet<i64>), String> {
    let answer = connection.get(path).await.map_err(|failure| format!("{path}: {failure:?}"))?;
    if answer.status != StatusCode::OK {
        return Err(format!("{path}: {}", answer.status));
    }
    let shown = page::read(&answer.body).map_err(|reason| format!("{path}: {reason}"))?;
    let numbers = shown.rows.iter().filter_map(|(name, _)| name.strip_prefix(kind)?.parse().ok()).collect();
    Ok((shown.commit, numbers))
}

/// The front page is visited most, then categories, the writers' carts, and products in an order of their own.
fn street(options: &Options, checker: &mut Checker, seen: Seen) -> Street {
    let categories: Vec<i64> = seen.categories.into_iter().collect();
    let mut products: Vec<i64> = seen.products.into_iter().collect();
    // Favourites are spread over the categories: neighbours in number are far from each other in rank.
    products.sort_by_key(|&id| (id.unsigned_abs().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32, id));
    let carts = (0..options.writers as i64).map(|number| seen.commit * CUSTOMERS_ALL + number * CUSTOMERS_EACH);
    let paths = (["/".to_owned()].into_iter())
        .chain(categories.iter().map(|id| format!("/category/{id}")))
        .chain(carts.map(|id| format!("/cart/{id}")))
        .chain(products.iter().map(|id| format!("/product/{id}")));
    let pages = paths.map(|path| checker.page(&path)).collect();
    Street::new(pages, products, categories, Pcg64::seed_from_u64(options.seed))
}

async fn read(world: Rc<RefCell<World>>, mut connection: Connection, delay: Duration, parts_every: u64) {
    tokio::time::sleep(delay).await;
    loop {
        let (page, path, at) = {
            let world = &mut *world.borrow_mut();
            let page = world.street.page();
            let is_in_parts = parts_every > 0 && world.street.below(parts_every) == 0;
            let at = is_in_parts.then(|| world.street.below(MOST_OF_FIRST_PART));
            (page, world.checker.path(page), at)
        };
        let answered = match at {
            Some(at) => connection.get_in_parts(&path, at as usize).await,
            None => connection.get(&path).await,
        };
        let failed = {
            let world = &mut *world.borrow_mut();
            match answered {
                Ok(answer) if answer.status.is_server_error() => {
                    world.tally.totals.errors.status += 1;
                    true
                }
                Ok(answer) => {
                    world.read(page, &answer, connection.address());
                    false
                }
                Err(failure) => {
                    world.tally.failure(failure);
                    true
                }
            }
        };
        if failed {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// One who changes things; the only one who touches the cart of the customer that it is.
struct Writer {
    world: Rc<RefCell<World>>,
    connection: Connection,
    customer: i64,
    cart: PageId,
    /// Products in the cart.
    filled: Vec<i64>,
}

impl Writer {
    async fn run(mut self, first: Duration, step: Duration) {
        tokio::time::sleep(first).await;
        let mut tick = tokio::time::interval(step);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let errand = self.choose();
            let answered = self.connection.post(&errand.path(), errand.form()).await;
            self.learn(&errand, answered);
        }
    }

    fn choose(&mut self) -> Errand {
        let street = &mut self.world.borrow_mut().street;
        let customer = self.customer;
        let (product, cents) = (street.product(), 100 + street.below(20_000) as i64);
        match street.below(100) {
            0..45 => Errand::Price { product, cents },
            45..70 => Errand::Delivery { product, pieces: 1 + street.below(5) as i64 },
            70..73 => match street.category_for_a_novelty() {
                Some(category) => Errand::NewProduct { category, cents },
                None => Errand::Price { product, cents },
            },
            73..90 if self.filled.len() < 3 => Errand::IntoCart { customer, product },
            _ if self.filled.is_empty() => Errand::IntoCart { customer, product },
            _ => Errand::Order { customer, products: self.filled.clone() },
        }
    }

    fn learn(&mut self, errand: &Errand, answered: Result<Answer, Failure>) {
        let address = self.connection.address();
        let shared = self.world.clone();
        let world = &mut *shared.borrow_mut();
        let answer = match answered {
            Ok(answer) => answer,
            Err(failure) => {
                world.tally.failure(failure);
                match failure {
                    Failure::Connect => world.tally.totals.updates.not_sent += 1,
                    Failure::Cut | Failure::TimedOut => self.unknown(world, errand),
                }
                return;
            }
        };
        if answer.status.is_server_error() {
            world.tally.totals.errors.status += 1;
            return self.unknown(world, errand);
        }
        if answer.status == StatusCode::CONFLICT {
            // Too little in stock, mostly: the cart is as it was.
            world.tally.totals.updates.refused += 1;
            return;
        }
        let read = committed(&answer.body).filter(|_| answer.status == StatusCode::OK);
        let Some((commit, id)) = read else {
            let what = format!("{} {:?}", answer.status, answer.body);
            return world.violated(&Violation::Malformed { page: errand.path(), what }, &answer, address);
        };
        world.tally.acknowledged(&answer);
        let fits = world.checker.acknowledged(commit, &errand.touches(id), answer.sent, answer.received);
        if let Err(violation) = fits {
            world.violated(&violation, &answer, address);
        }
        match errand {
            Errand::NewProduct { .. } => {
                let page = world.checker.page(&format!("/product/{id}"));
                world.street.novelty(id, page);
            }
            Errand::IntoCart { product, .. } => self.filled.push(*product),
            Errand::Order { .. } => self.filled.clear(),
            Errand::Price { .. } | Errand::Delivery { .. } => {}
        }
    }

    /// Made or not. What is in the cart is then not known either, so the writer is another customer from now on.
    fn unknown(&mut self, world: &mut World, errand: &Errand) {
        world.tally.totals.updates.unknown += 1;
        if matches!(errand, Errand::IntoCart { .. } | Errand::Order { .. }) {
            self.customer += 1;
            self.filled.clear();
            let cart = world.checker.page(&format!("/cart/{}", self.customer));
            world.street.replace(self.cart, cart);
            self.cart = cart;
        }
    }
}
