//! The process at the far site, and the orders that it gets.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use serde::{Deserialize, Serialize};
use verbena_fabric::Provider;

use super::line::{self, Line, REGION, Route};
use super::node::{Card, FAR, Met, NEAR, Node, PATIENCE, Seat, text};
use super::paths::Site;
use super::work::{Came, Task, Work, compute};
use crate::child::{Answer, Target, hear, say};
use crate::error::BenchError;

/// What it is asked for by.
pub(crate) const ROLE: &str = "far-site";

/// Bytes of a region that is not used.
const SMALLEST: u64 = 4_096;
/// Bytes of datagrams that may wait to be read.
const WAITING: usize = 8 << 20;

/// An order to the process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Open a node. Answered with its [`Card`].
    Open(Seat),
    /// The node of this number opens the region of another one.
    Meet { node: usize, other: Card },
    /// Listen, with `window` bytes for what was not read yet; `None`: as many as the system thinks right. Answered with
    /// where.
    Listen { site: SocketAddr, window: Option<usize> },
    /// Take `count` connections. Answered with the number of the first.
    Accept { count: usize },
    /// Open a socket for datagrams. Answered with where.
    Datagrams { site: SocketAddr },
    /// Do this until [`Order::End`].
    Begin(Work),
    /// Compute `steps` steps, beside the work that has begun. Answered with how long that took.
    Compute { steps: u64 },
    /// Leave off. Answered with what [`Came`].
    End,
}

/// Serves until its starter is done.
pub(crate) fn serve() -> Result<(), String> {
    let mut here = Here::default();
    while let Some(order) = hear::<Order>()? {
        match order {
            Order::Open(seat) => {
                let node = Node::open(&seat).and_then(|node| line::fill(&node).map(|()| node)).map_err(text);
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
            Order::Listen { site, window } => {
                let listener = TcpListener::bind(site).map_err(|error| format!("{site}: {error}"))?;
                if let Some(window) = window {
                    // Those that it takes have it too.
                    sockopt::set_socket_recv_buffer_size_force(&listener, window).map_err(|error| error.to_string())?;
                }
                say(&Answer::Done(listener.local_addr().map_err(|error| error.to_string())?))?;
                here.listener = Some(listener);
            }
            Order::Accept { count } => {
                let first = here.connections.len();
                here.accept(count).map_err(|error| error.to_string())?;
                say(&Answer::Done(first))?;
            }
            Order::Datagrams { site } => {
                let socket = datagrams(site).map_err(|error| format!("{site}: {error}"))?;
                say(&Answer::Done(socket.local_addr().map_err(|error| error.to_string())?))?;
                here.datagrams = Some(socket);
            }
            Order::Begin(work) => here.work(work)?,
            Order::Compute { .. } | Order::End => return Err("no work has begun".to_owned()),
        }
    }
    Ok(())
}

fn datagrams(site: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(site)?;
    socket.set_nonblocking(true)?;
    sockopt::set_socket_recv_buffer_size_force(&socket, WAITING)?;
    Ok(socket)
}

/// What it has.
#[derive(Default)]
struct Here {
    nodes: Vec<(Node, Vec<Met>)>,
    listener: Option<TcpListener>,
    connections: Vec<TcpStream>,
    datagrams: Option<UdpSocket>,
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
        let task = self.task(work)?;
        let stop = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            let working = scope.spawn(move || task.run(stop));
            let ended = say(&Answer::Done(())).and_then(|()| until_end());
            stop.store(true, Ordering::Relaxed);
            let came = working.join().map_err(|_| "the working thread panicked".to_owned())??;
            match ended? {
                Some(Order::End) => say(&Answer::Done(came)),
                Some(other) => Err(format!("{other:?} came where an end was expected")),
                None => Ok(()),
            }
        })
    }

    fn task(&self, work: Work) -> Result<Task<'_>, String> {
        Ok(match work {
            Work::Nothing => Task::Nothing,
            Work::Answer { route, bytes, load } => Task::Answer(self.line(route, bytes)?, load),
            Work::Take { first, count } => {
                Task::take(self.connections.get(first..first + count).ok_or("no connections have these numbers")?)
            }
            Work::TakeDatagrams { number } => {
                Task::take_datagrams(self.datagrams.as_ref().ok_or("no socket is for datagrams")?, number)
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

/// What is asked for beside the work, and then the order that ends it.
fn until_end() -> Result<Option<Order>, String> {
    loop {
        match hear::<Order>()? {
            Some(Order::Compute { steps }) => {
                let began = Instant::now();
                compute(steps);
                say(&Answer::Done(began.elapsed()))?;
            }
            other => return Ok(other),
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
    card: Card,
}

impl Pair {
    /// Another node at the near site that has opened the far one's region.
    pub(super) fn another(&self, provider: Provider, rank: u32, site: Site<'_>) -> Result<(Node, Met), BenchError> {
        let opened = call(&Seat::new(provider, site, rank, SMALLEST).of_many(), &self.card, site)?;
        opened.map_err(|what| failed("opening one more node", what))
    }
}

/// A node at this site that has opened another one's region. Why not, if it has not.
fn call(seat: &Seat, other: &Card, site: Site<'_>) -> Result<Result<(Node, Met), String>, BenchError> {
    Ok(site.network.enter(|| {
        let node = Node::open(seat).map_err(text)?;
        let met = node.meet(other).map_err(text)?;
        Ok((node, met))
    })?)
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
        let (near, met) = match call(&near, &far, sites[0])? {
            Ok(here) => here,
            Err(reason) => return Ok(Err(reason)),
        };
        let order = Order::Meet { node: number, other: near.card() };
        let back: Result<(), String> = self.target.ask(&order, "meet its caller")?;
        Ok(back.map(|()| Pair { near, met, number, card: far }))
    }

    /// Connects `count` sockets, which do not block. `window` is for how many bytes either end has room, if the system
    /// is not to decide.
    pub(super) fn connect(
        &mut self,
        count: usize,
        window: Option<usize>,
        sites: [Site<'_>; 2],
    ) -> Result<Connections, BenchError> {
        let site = SocketAddr::new(sites[1].address, 0);
        let at: SocketAddr = self.target.ask(&Order::Listen { site, window }, "listen")?;
        let open = || {
            let stream = TcpStream::connect_timeout(&at, PATIENCE)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            if let Some(window) = window {
                sockopt::set_socket_send_buffer_size_force(&stream, window)?;
            }
            Ok(stream)
        };
        let near: io::Result<Vec<TcpStream>> = sites[0].network.enter(|| (0..count).map(|_| open()).collect())?;
        let near = near.map_err(|error| failed("connecting", error.to_string()))?;
        let first = self.target.ask(&Order::Accept { count }, "accept connections")?;
        Ok(Connections { near, first })
    }

    /// A socket from which datagrams get to the far site.
    pub(super) fn datagrams(&mut self, sites: [Site<'_>; 2]) -> Result<UdpSocket, BenchError> {
        let site = SocketAddr::new(sites[1].address, 0);
        let at: SocketAddr = self.target.ask(&Order::Datagrams { site }, "open a socket for datagrams")?;
        let own = SocketAddr::new(sites[0].address, 0);
        let socket =
            sites[0].network.enter(|| UdpSocket::bind(own).and_then(|socket| socket.connect(at).map(|()| socket)))?;
        socket.map_err(|error| failed("opening a socket for datagrams", error.to_string()))
    }

    /// Has it do this while `act` runs. What that gave, and what came.
    pub(super) fn during<T>(
        &mut self,
        work: Work,
        act: impl FnOnce(&mut Beside<'_>) -> Result<T, BenchError>,
    ) -> Result<(T, Came), BenchError> {
        let () = self.target.ask(&Order::Begin(work), "begin a turn")?;
        let done = act(&mut Beside(&mut self.target))?;
        let came = self.target.ask(&Order::End, "end a turn")?;
        Ok((done, came))
    }
}

/// The process, while it works.
pub(super) struct Beside<'a>(&'a mut Target);

impl Beside<'_> {
    /// Has the process compute `steps` steps, and returns how long that took.
    pub(super) fn compute(&mut self, steps: u64) -> Result<Duration, BenchError> {
        self.0.ask(&Order::Compute { steps }, "compute")
    }
}

/// What goes wrong at the near site.
pub(super) fn failed(doing: &str, what: String) -> BenchError {
    BenchError::Wrong { fabric: "the emulator".to_owned(), doing: doing.to_owned(), what }
}
