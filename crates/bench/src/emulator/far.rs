//! The process at the far site, and how it is told what to do.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use verbena_fabric::Provider;

use super::line::{Line, REGION, Route};
use super::node::{Card, FAR, Met, NEAR, Node, PATIENCE, Seat, text};
use super::paths::Site;
use crate::child::{Answer, Target, hear, say};
use crate::error::BenchError;

/// What it is asked for by.
pub(crate) const ROLE: &str = "far-site";

/// What it is told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Open a node. Answered with its [`Card`].
    Open(Seat),
    /// The node of this number opens the region of another one.
    Meet { node: usize, other: Card },
    /// Listen. Answered with where.
    Listen { site: SocketAddr },
    /// Take so many connections. Answered with the number of the first.
    Accept { count: usize },
    /// Do this until [`Order::End`].
    Begin(Work),
    /// Leave off.
    End,
}

/// What it does meanwhile.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Work {
    /// Answer each message with another one of as many bytes.
    Answer { route: Route, bytes: usize },
}

/// Serves until its starter is done.
pub(crate) fn serve() -> Result<(), String> {
    let mut here = Here::default();
    while let Some(order) = hear::<Order>()? {
        match order {
            Order::Open(seat) => {
                let node = Node::open(&seat).map_err(text);
                let card = node.as_ref().map(Node::card).map_err(Clone::clone);
                // That a fabric does not work here is an answer like any other.
                here.nodes.extend(node.ok().map(|node| (node, vec![])));
                say(&Answer::Done(card))?;
            }
            Order::Meet { node, other } => {
                let (node, met) = here.nodes.get_mut(node).ok_or("no node has this number")?;
                let opened = node.meet(&other).map_err(text);
                let answer = opened.as_ref().map(|_| ()).map_err(Clone::clone);
                met.extend(opened.ok());
                say(&Answer::Done(answer))?;
            }
            Order::Listen { site } => {
                let listener = TcpListener::bind(site).map_err(|error| format!("{site}: {error}"))?;
                say(&Answer::Done(listener.local_addr().map_err(|error| error.to_string())?))?;
                here.listener = Some(listener);
            }
            Order::Accept { count } => {
                let first = here.connections.len();
                here.accept(count).map_err(|error| error.to_string())?;
                say(&Answer::Done(first))?;
            }
            Order::Begin(work) => here.work(work)?,
            Order::End => return Err("an end came where no work was".to_owned()),
        }
    }
    Ok(())
}

/// What it has.
#[derive(Default)]
struct Here {
    nodes: Vec<(Node, Vec<Met>)>,
    listener: Option<TcpListener>,
    connections: Vec<TcpStream>,
}

impl Here {
    fn accept(&mut self, count: usize) -> io::Result<()> {
        let listener = self.listener.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        for _ in 0..count {
            let (stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            self.connections.push(stream);
        }
        Ok(())
    }

    /// From `Begin` to `End`.
    fn work(&self, work: Work) -> Result<(), String> {
        let Work::Answer { route, bytes } = work;
        let mut line = self.line(route, bytes)?;
        let stop = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            let working = scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if line.look()? { line.send()? } else { std::thread::yield_now() }
                }
                line.finish()
            });
            let ended = say(&Answer::Done(())).and_then(|()| hear::<Order>());
            stop.store(true, Ordering::Relaxed);
            working.join().map_err(|_| "the working thread panicked".to_owned())??;
            match ended? {
                Some(Order::End) => say(&Answer::Done(())),
                Some(other) => Err(format!("{other:?} came where an end was expected")),
                None => Ok(()),
            }
        })
    }

    fn line(&self, route: Route, bytes: usize) -> Result<Line<'_>, String> {
        match route {
            Route::Node(number) => {
                let (node, met) = self.nodes.get(number).ok_or("no node has this number")?;
                Line::of_writes(node, met.first().ok_or("it has met nobody")?, bytes)
            }
            Route::Connection(number) => {
                Ok(Line::of_socket(self.connections.get(number).ok_or("no connection has this number")?, bytes))
            }
        }
    }
}

/// The process, as its starter sees it.
pub(super) struct Far {
    target: Target,
    nodes: usize,
}

/// A node at either site, each with the other's region.
pub(super) struct Pair {
    pub(super) near: Node,
    pub(super) met: Met,
    /// Of the far one.
    pub(super) number: usize,
}

/// Connections from the near site to the far one, where the first has this number.
pub(super) struct Connections {
    pub(super) near: Vec<TcpStream>,
    pub(super) first: usize,
}

impl Far {
    /// Starts it, with `before` before its arguments.
    pub(super) fn start(site: Site<'_>, before: &[&str]) -> Result<Self, BenchError> {
        let target = site.network.enter(|| Target::start(&[before, &[ROLE]].concat()))??;
        Ok(Far { target, nodes: 0 })
    }

    /// Opens a node of `provider` at either site. Why not, if it does not work there.
    pub(super) fn pair(
        &mut self,
        provider: Provider,
        sites: [Site<'_>; 2],
    ) -> Result<Result<Pair, String>, BenchError> {
        let number = self.nodes;
        let seat = |side: usize, rank| Seat::new(provider, sites[side], rank + number as u32, REGION);
        let (near, far) = (seat(0, NEAR), seat(1, FAR));
        let opened: Result<Card, String> = self.target.ask(&Order::Open(far), "open a fabric")?;
        let far = match opened {
            Ok(card) => card,
            Err(reason) => return Ok(Err(format!("at the far site: {reason}"))),
        };
        self.nodes += 1;
        let here = sites[0].network.enter(|| {
            let near = Node::open(&near)?;
            let met = near.meet(&far)?;
            Ok((near, met))
        })?;
        let (near, met) = match here {
            Ok(here) => here,
            Err(error) => return Ok(Err(text(error))),
        };
        let order = Order::Meet { node: number, other: near.card() };
        let back: Result<(), String> = self.target.ask(&order, "meet its caller")?;
        Ok(back.map(|()| Pair { near, met, number }))
    }

    /// Connects so many sockets, which do not block.
    pub(super) fn connect(&mut self, count: usize, sites: [Site<'_>; 2]) -> Result<Connections, BenchError> {
        let site = SocketAddr::new(sites[1].address, 0);
        let at: SocketAddr = self.target.ask(&Order::Listen { site }, "listen")?;
        let open = || {
            let stream = TcpStream::connect_timeout(&at, PATIENCE)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            Ok(stream)
        };
        let near: io::Result<Vec<TcpStream>> = sites[0].network.enter(|| (0..count).map(|_| open()).collect())?;
        let near = near.map_err(|error| failed("connecting", error.to_string()))?;
        let first = self.target.ask(&Order::Accept { count }, "accept connections")?;
        Ok(Connections { near, first })
    }

    /// Has it do this while `act` runs.
    pub(super) fn during<T>(
        &mut self,
        work: Work,
        act: impl FnOnce() -> Result<T, BenchError>,
    ) -> Result<T, BenchError> {
        let () = self.target.ask(&Order::Begin(work), "begin a turn")?;
        let done = act()?;
        let () = self.target.ask(&Order::End, "end a turn")?;
        Ok(done)
    }
}

/// What goes wrong at the near site.
pub(super) fn failed(doing: &str, what: String) -> BenchError {
    BenchError::Wrong { fabric: "the emulator".to_owned(), doing: doing.to_owned(), what }
}
