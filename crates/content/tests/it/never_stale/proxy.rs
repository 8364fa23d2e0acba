//! Serves requests as the product's proxy does: a look at the words, a fill, a registration; and updates, with a ticket each. Each request
//! is a task of its own; none of them is told when the others act.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;
use verbena_cluster::Lease;
use verbena_content::service::{Content as Service, Finish, Refused};
use verbena_content::{
    Change, FillId, Kind as PageKind, PageId, Reader, ReaderLimits, Registered, Rest, Scope, Settled, Stamp, Start,
    Unstorable, Verdict, Waiter, Words, look,
};
use verbena_terms::{Incarnation, Time, ViewNumber};

use crate::never_stale::database::{Content, Row, scope_of};
use crate::never_stale::outside::{Kind, Outside, Request, Run};
use crate::never_stale::settings::ms;

/// How long a registration may take.
const REGISTRATION: Duration = ms(40);

pub struct Proxy {
    at: usize,
    run: Run,
    outside: Rc<Outside>,
    service: Service,
    /// Whom the reader takes this node for.
    me: Cell<Incarnation>,
    reader: RefCell<Reader<u64>>,
    copies: RefCell<BTreeMap<u64, (Stamp, Content)>>,
    waiting: RefCell<BTreeMap<Waiter, oneshot::Sender<Option<Content>>>>,
}

impl Proxy {
    pub fn new(at: usize, run: Run, outside: Rc<Outside>, service: Service) -> Self {
        let limits = ReaderLimits { registration_deadline: REGISTRATION, unstorable_for: ms(5), ..Default::default() };
        let me = service.identity();
        let reader = Reader::with_rules(me, limits, outside.settings.rules);
        Proxy {
            at,
            run,
            outside,
            service,
            me: Cell::new(me),
            reader: RefCell::new(reader),
            copies: RefCell::default(),
            waiting: RefCell::default(),
        }
    }

    pub async fn serve(self: Rc<Self>, request: Request, kind: Kind) {
        match kind {
            Kind::Read { page } => self.read(request, page).await,
            Kind::Write { rows, announces } => self.write(request, rows, announces).await,
        }
    }

    // Reads.

    async fn read(&self, request: Request, page: u64) {
        let id = self.page_id(page);
        let words = match self.service.read(id) {
            Some(reading) => reading.words().await,
            None => None,
        };
        let now = self.service.now();
        let lease = self.lease();
        if let Some(content) = self.hit(page, words, lease, now) {
            return self.outside.answer(request, &content, "hit");
        }
        let old = self.old(page, words).await;
        if let Some((Rest::Stale, content)) = &old
            && self.outside.strikes(500)
        {
            return self.outside.answer(request, content, "stale");
        }
        let base = old.filter(|(rest, _)| *rest >= Rest::Question).map(|(_, content)| content);
        match self.miss(page, id, request, words, lease, now) {
            Start::Lead(fill) => self.fill(request, page, fill, base).await,
            Start::Wait(_) => {
                let (sender, receiver) = oneshot::channel();
                self.waiting.borrow_mut().insert(request.id, sender);
                match receiver.await {
                    Ok(Some(content)) => self.outside.answer(request, &content, "collapsed"),
                    _ => self.forward(request, page).await,
                }
            }
            Start::Alone(_) => self.forward(request, page).await,
        }
    }

    /// Small numbers: pages share words of the small tables here, and in some runs even their ids.
    fn page_id(&self, page: u64) -> PageId {
        PageId(if self.outside.settings.pages_share_ids { page % 4 } else { page })
    }

    fn lease(&self) -> Lease {
        let lease = self.service.lease();
        if self.outside.settings.lease_looked_at { lease } else { Lease { until: Time::FAR, ..lease } }
    }

    fn hit(&self, page: u64, words: Option<(ViewNumber, Words)>, lease: Lease, now: Time) -> Option<Content> {
        let (posted, words) = words?;
        let copies = self.copies.borrow();
        let (stamp, content) = copies.get(&page)?;
        (look(stamp, &words, posted, &lease, now) == Verdict::Fresh).then(|| content.clone())
    }

    /// What is left of a copy that has moved.
    async fn old(&self, page: u64, words: Option<(ViewNumber, Words)>) -> Option<(Rest, Content)> {
        let (posted, words) = words?;
        let (stamp, content) = self.copies.borrow().get(&page).cloned()?;
        let (now, lease) = (self.service.now(), self.lease());
        if stamp.kind() != PageKind::Standard || look(&stamp, &words, posted, &lease, now) != Verdict::Moved {
            return None;
        }
        let (posted, last) = self.service.read_last_changes(self.page_id(page))?.words().await?;
        let now = self.service.now();
        Some((stamp.rest(&last, posted, &self.lease(), now), content))
    }

    fn miss(
        &self,
        page: u64,
        id: PageId,
        request: Request,
        words: Option<(ViewNumber, Words)>,
        lease: Lease,
        now: Time,
    ) -> Start {
        let mut reader = self.reader.borrow_mut();
        if self.me.replace(self.service.identity()) != self.service.identity() {
            reader.rejoined(self.service.identity());
        }
        reader.start(&page, (id, self.outside.settings.kind(page)), request.id, words, &lease, now)
    }

    async fn forward(&self, request: Request, page: u64) {
        if let Some(content) = self.outside.query(self.at, self.run, page, None).await {
            self.outside.answer(request, &content, "origin");
        }
    }

    async fn fill(&self, request: Request, page: u64, fill: FillId, base: Option<Content>) {
        let Some(content) = self.outside.query(self.at, self.run, page, base).await else {
            let settled = self.reader.borrow_mut().failed(fill);
            return settled.into_iter().for_each(|settled| self.settle(settled, None));
        };
        self.outside.answer(request, &content, "origin");
        let now = self.service.now();
        if self.outside.strikes(20) {
            let settled = self.reader.borrow_mut().unstorable(fill, Unstorable::Page("no-store"), now);
            return settled.into_iter().for_each(|settled| self.settle(settled, None));
        }
        let is_standard = self.outside.settings.kind(page) == PageKind::Standard;
        let declares = is_standard || !self.outside.happens(self.outside.settings.pages_of_everything);
        let scope = match declares {
            true => scope_of(&self.outside.names, content.rows.keys().copied()),
            false => Scope::Everything,
        };
        let Some(register) = self.reader.borrow_mut().answered(fill, scope, now) else { return };
        let registered = self.in_time(self.service.register(register), REGISTRATION).await;
        let settled = self.conclude(fill, registered.flatten().as_ref());
        settled.into_iter().for_each(|settled| self.settle(settled, Some(&content)));
    }

    /// What `future` gives, or nothing if it takes longer.
    async fn in_time<T>(&self, future: impl Future<Output = T>, most: Duration) -> Option<T> {
        let (mut future, mut late) = (pin!(future), pin!(self.outside.sleep(self.at, self.run, most)));
        std::future::poll_fn(|context| match (future.as_mut().poll(context), late.as_mut().poll(context)) {
            (Poll::Ready(value), _) => Poll::Ready(Some(value)),
            (Poll::Pending, Poll::Ready(())) => Poll::Ready(None),
            (Poll::Pending, Poll::Pending) => Poll::Pending,
        })
        .await
    }

    fn conclude(&self, fill: FillId, registered: Option<&Registered>) -> Option<Settled<u64>> {
        let now = self.service.now();
        let lease = self.lease();
        let mut reader = self.reader.borrow_mut();
        let settled = registered.and_then(|registered| reader.registered(registered, &lease, now));
        settled.or_else(|| reader.failed(fill))
    }

    fn settle(&self, settled: Settled<u64>, content: Option<&Content>) {
        if let (Ok(stamp), Some(content)) = (settled.stored, content) {
            self.copies.borrow_mut().insert(settled.key, (stamp, content.clone()));
        }
        let mut waiting = self.waiting.borrow_mut();
        let mut tell = |waiter, content: Option<Content>| {
            if let Some(sender) = waiting.remove(&waiter) {
                // Its task ends with the process only.
                let _ = sender.send(content);
            }
        };
        settled.serve.into_iter().for_each(|waiter| tell(waiter, content.cloned()));
        settled.forward.into_iter().for_each(|waiter| tell(waiter, None));
    }

    // Writes.

    async fn write(&self, request: Request, rows: Vec<Row>, announces: bool) {
        let scope = match announces {
            true => scope_of(&self.outside.names, rows.iter().copied()),
            // Where there are standard pages, it is to be seen there as well: it is a purge of all.
            false if self.outside.settings.standard_pages => Scope::All,
            false => Scope::Everything,
        };
        if self.outside.settings.standard_pages && self.outside.strikes(200) {
            let purged = self.service.purge(Change::Soft, scope).await;
            return self.outside.ends(request, if purged.is_ok() { "purged" } else { "not purged" });
        }
        // Of what its pages' tags do not tell, copies are wrong, and no answer of the application says so.
        let is_silent = self.outside.settings.standard_pages && self.outside.strikes(300);
        let change = if is_silent { Change::Hard } else { Change::Write };
        let ticket = match self.service.begin_as(change, scope).await {
            Ok(ticket) => ticket,
            Err(Refused::NotBegun) => return self.outside.ends(request, "aborted"),
            Err(_) => return self.outside.ends(request, "refused"),
        };
        // Between the check and the first byte.
        self.outside.sleep(self.at, self.run, self.outside.settings.gap).await;
        if self.outside.strikes(10) {
            ticket.not_sent();
            return self.outside.ends(request, "not sent");
        }
        if self.outside.strikes(100) {
            // The application looks at it and writes nothing.
            self.outside.sleep(self.at, self.run, self.outside.settings.gap).await;
            let finish = ticket.refused().await;
            return self.outside.ends(request, if finish == Finish::Answer { "turned down" } else { "closed" });
        }
        let Some(state) = self.outside.transact((self.at, self.run), request.id, (rows, is_silent)).await else {
            // The ticket is dropped: nobody knows what became of it.
            return self.outside.ends(request, "unknown");
        };
        match ticket.answered().await {
            Finish::Answer => self.outside.acknowledge(request, state),
            Finish::Close => self.outside.ends(request, "closed"),
        }
    }
}
