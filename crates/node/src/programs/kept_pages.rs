//! Copies of pages that programs of this machine keep, such as a web server's own cache, and the writes that they bracket.
//!
//! A look is answered on the thread of the rings: the words are read one-sidedly, at once where the fabric is synchronous. What waits for a
//! home goes on beside the HTTP interface.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use verbena_caching::Keys;
use verbena_content::service::{Content, Finish, Ticket};
use verbena_content::{Declared, Dependency, Kind, PageId, Register, Scope, Word, Words};
use verbena_ipc::{ClientId, Request};
use verbena_protocol::api::Outcome;
use verbena_protocol::page::{PageAnswer, PageRequest, PageWords, Touches};
use verbena_protocol::wire::Answer;
use verbena_terms::{MAX_DEPENDENCIES, MAX_DEPENDENCY_NAME_BYTES, ViewNumber};

use crate::programs::pending_reply::{answer, give};

/// How long a home may take to answer a registration.
const REGISTRATION: Duration = Duration::from_millis(500);

/// Registrations of programs have this bit in their number, which those of a proxy in this process have not.
const OF_PROGRAMS: u64 = 1 << 63;

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What the thread of the rings answers programs with.
pub(crate) struct ProgramPages {
    shared: Arc<Shared>,
    keys: Keys,
    later: mpsc::UnboundedSender<Job>,
}

/// What is done where there is a runtime.
pub(crate) struct Later(mpsc::UnboundedReceiver<Job>);

struct Shared {
    content: Content,
    /// The writes that each connected program has begun and not ended.
    open: Mutex<HashMap<ClientId, HashMap<u64, Ticket>>>,
    next: AtomicU64,
    /// After how long a write that its program does not end has an unknown outcome.
    longest: Duration,
}

impl ProgramPages {
    /// And what is to run beside it.
    pub(crate) fn new(content: Content, longest: Duration) -> (ProgramPages, Later) {
        let keys = Keys::new(content.names().page_secret());
        let shared = Shared { content, open: Mutex::default(), next: AtomicU64::new(1), longest };
        let (later, jobs) = mpsc::unbounded_channel();
        (ProgramPages { shared: Arc::new(shared), keys, later }, Later(jobs))
    }

    /// A program is connected.
    pub(crate) fn arrived(&self, client: ClientId) {
        self.shared.open.lock().insert(client, HashMap::new());
    }

    /// It has gone: what became of its writes is unknown (rule P6).
    pub(crate) fn gone(&self, client: ClientId) {
        let open = self.shared.open.lock().remove(&client);
        if let Some(count) = open.map(|open| open.len()).filter(|count| *count > 0) {
            tracing::warn!(
                count,
                "a program went and did not end its updates: what they touch is not cached for a while"
            );
        }
    }

    /// Answers, or sees to it that it is answered.
    pub(crate) fn handle(&self, request: Request<'_>, asked: PageRequest) {
        match asked {
            PageRequest::Look { host, target } => self.look(request, &host, &target),
            PageRequest::Depends { host, target, fields } => {
                let depends = self.depends(&host, &target, &fields);
                give(request, &Answer::Page(PageAnswer::Depends(depends)));
            }
            PageRequest::Register { words, dependencies } => {
                let shared = self.shared.clone();
                self.defer(request, async move { shared.register(words, dependencies).await });
            }
            PageRequest::Begin { touched } => {
                let (shared, client) = (self.shared.clone(), request.client());
                self.defer(request, async move { shared.begin(client, touched).await });
            }
            PageRequest::End { update, outcome } => {
                let ticket = self.shared.take(request.client(), update);
                self.defer(request, end(ticket, outcome));
            }
        }
    }

    /// What an answer's fields name, and by what its page is purged with others of its host or below its paths. None: everything.
    fn depends(&self, host: &str, target: &str, fields: &[(String, Vec<u8>)]) -> Option<Vec<u64>> {
        let names = self.shared.content.names();
        let fields = fields.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
        let declared = match Declared::of_response(names, fields).scope {
            Scope::Everything | Scope::All => return None,
            Scope::On(set) => set,
        };
        let prefixes = self.keys.of_page_prefixes(host, target);
        let addresses = prefixes.iter().map(|key| Dependency::from(names.page(&key.0.to_le_bytes())));
        match Scope::of(declared.iter().copied().chain(addresses)) {
            Scope::On(set) => Some(set.iter().map(|dependency| dependency.0).collect()),
            Scope::Everything | Scope::All => None,
        }
    }

    fn look(&self, request: Request<'_>, host: &str, target: &str) {
        let content = &self.shared.content;
        let looked = match self.keys.of_page(host, target) {
            None => Err("the host and the target are not those of a page"),
            Some(key) => {
                let page = content.names().page(&key.0.to_le_bytes());
                match content.read(page) {
                    None => Err("there is no view, no home, or no way to it"),
                    Some(mut reading) => match reading.words_now() {
                        Poll::Ready(words) => self.shared.looked(page, words),
                        Poll::Pending => {
                            let shared = self.shared.clone();
                            let looked = async move { shared.looked(page, reading.words().await) };
                            return self.defer(request, async { looked.await.unwrap_or_else(unavailable) });
                        }
                    },
                }
            }
        };
        give(request, &Answer::Page(looked.unwrap_or_else(unavailable)));
    }

    fn defer(&self, request: Request<'_>, answered: impl Future<Output = PageAnswer> + Send + 'static) {
        let responder = request.defer();
        let job = Box::pin(async move { answer(responder, &Answer::Page(answered.await)) });
        // The runtime has ended only if the helper ends, and then programs learn it from the rings.
        let _ = self.later.send(job);
    }
}

impl Later {
    /// Runs what comes, each beside the others.
    pub(crate) async fn run(mut self) {
        while let Some(job) = self.0.recv().await {
            tokio::spawn(job);
        }
    }
}

impl Shared {
    /// What was read is judged in hand: first the words, then the clock, then the lease (rule P1).
    fn looked(&self, page: PageId, words: Option<(ViewNumber, Words)>) -> Result<PageAnswer, &'static str> {
        let (view, words) = words.ok_or("the words cannot be read")?;
        let now = self.content.now();
        if self.content.lease().valid_at(now) != Some(view) {
            return Err("this node has no lease in the view of the words");
        }
        let Words { home, word, everything, clock, .. } = words;
        Ok(PageAnswer::Looked(PageWords { page: page.0, view, home, word: word.0, everything: everything.0, clock }))
    }

    async fn register(&self, words: PageWords, dependencies: Option<Vec<u64>>) -> PageAnswer {
        let scope = match dependencies {
            Some(set) => Scope::of(set.into_iter().map(Dependency)),
            None => Scope::Everything,
        };
        let from = self.content.identity();
        let register = Register {
            view: words.view,
            from,
            to: words.home,
            request: OF_PROGRAMS | self.next.fetch_add(1, Ordering::Relaxed),
            page: PageId(words.page),
            kind: Kind::Coherent,
            scope,
            clock: words.clock,
            word: Word(words.word),
            common: Word(words.everything),
        };
        let registered = tokio::time::timeout(REGISTRATION, self.content.register(register)).await;
        let registered =
            registered.ok().flatten().filter(|registered| registered.to == from && registered.from == words.home);
        PageAnswer::Registered(match registered.map(|registered| registered.outcome) {
            Some(Ok(word)) => Ok(word.0),
            Some(Err(refusal)) => Err(refusal.to_string()),
            None => Err("the home did not answer in time".into()),
        })
    }

    async fn begin(self: Arc<Self>, client: ClientId, touched: Touches) -> PageAnswer {
        let scope = match touched {
            Touches::Everything => Scope::Everything,
            Touches::Names(names) => {
                let fits = |name: &Vec<u8>| (1..=MAX_DEPENDENCY_NAME_BYTES).contains(&name.len());
                if names.is_empty() || names.len() > MAX_DEPENDENCIES || !names.iter().all(fits) {
                    return unavailable("an update has 1 to 256 names of 1 to 1024 bytes, or is one of everything");
                }
                Scope::of(names.iter().map(|name| self.content.names().dependency(name)))
            }
        };
        let ticket = match self.content.begin(scope).await {
            Ok(ticket) => ticket,
            Err(refused) => return PageAnswer::Unavailable(refused.to_string()),
        };
        let update = self.next.fetch_add(1, Ordering::Relaxed);
        match self.open.lock().get_mut(&client) {
            Some(open) => _ = open.insert(update, ticket),
            // The program went meanwhile, and was never told that it may forward.
            None => {
                ticket.not_sent();
                return unavailable("the program has gone");
            }
        }
        let (shared, longest) = (Arc::downgrade(&self), self.longest);
        tokio::spawn(async move {
            tokio::time::sleep(longest).await;
            // Dropped, its outcome is unknown.
            if shared.upgrade().and_then(|shared| shared.take(client, update)).is_some() {
                tracing::warn!(update, "an update was begun by a program and never ended");
            }
        });
        PageAnswer::Begun { update }
    }

    fn take(&self, client: ClientId, update: u64) -> Option<Ticket> {
        self.open.lock().get_mut(&client)?.remove(&update)
    }
}

async fn end(ticket: Option<Ticket>, outcome: Outcome) -> PageAnswer {
    let Some(ticket) = ticket else {
        return unavailable("no such update is open: it was ended, or never ended for too long");
    };
    let acknowledge = match outcome {
        Outcome::Done => ticket.answered().await == Finish::Answer,
        Outcome::NotSent => {
            ticket.not_sent();
            true
        }
        Outcome::Unknown => false,
    };
    PageAnswer::Ended { acknowledge }
}

fn unavailable(why: &str) -> PageAnswer {
    PageAnswer::Unavailable(why.into())
}
