//! A small HTTP server: a thread a listener, hyper on each, as the proxy has it.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use clap::error::ErrorKind;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt::set_socket_reuseport;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::net::TcpListener;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Reads what stands behind a role, and ties the process to the one that started it.
pub(super) fn part<P: Parser>(role: &str, arguments: &[String]) -> Result<P, String> {
    // Whatever becomes of the starter, nothing of it stays. A system that cannot do this leaves the ending to the starter.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let words = std::iter::once(role.to_owned()).chain(arguments.iter().cloned());
    P::try_parse_from(words).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp => error.to_string(),
        _ => format!("{role}: {error}"),
    })
}

/// Answers every request by `answer`, on `threads` threads that share `address`, until the process is ended.
pub(super) fn serve<A, F>(address: SocketAddr, threads: usize, answer: A) -> Result<(), String>
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let text = |error: std::io::Error| format!("{address}: {error}");
    let mut running = Vec::new();
    for _ in 0..threads.max(1) {
        let listener = listener(address).map_err(text)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(text)?;
        let answer = answer.clone();
        running.push(std::thread::spawn(move || runtime.block_on(run(listener, answer))));
    }
    running.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
}

async fn run<A, F>(listener: StdListener, answer: A) -> Result<(), String>
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let listener = TcpListener::from_std(listener).map_err(|error| error.to_string())?;
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors: it passes when connections close.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        // Costs at most what it would save.
        let _ = stream.set_nodelay(true);
        let answer = answer.clone();
        let service = service_fn(move |request| {
            let response = answer(request);
            async move { Ok::<_, Infallible>(response.await) }
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        // A client that goes away is not an error.
        tokio::spawn(async move { drop(connection.await) });
    }
}

fn listener(address: SocketAddr) -> std::io::Result<StdListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    set_socket_reuseport(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(StdListener::from(socket))
}
