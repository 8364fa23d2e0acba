//! `shop`: serves a shop's database over HTTP.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use verbena_client::{Place, Updates};
use verbena_shop::{Database, Plain, announced, lasting, routes};

/// SQLite connections in use at once; further requests wait.
const AT_ONCE: usize = 16;

/// A small web shop on SQLite: the application of Verbena's demonstration.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// The database file; made with its first contents if it is not there. Several shops can serve one file.
    #[arg(long, default_value = "shop.db")]
    database: PathBuf,
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// Announce what pages are made of and what changes touch, to the Verbena helper there: http://IP:PORT, or the path of its HTTP
    /// socket. Without it the shop knows of no cache.
    #[arg(long, value_name = "PLACE")]
    helper: Option<Place>,
    /// Say with each page that it may be kept for so many seconds, give it a tag, and answer requests for a part of it.
    #[arg(long, value_name = "SECONDS")]
    lifetime: Option<u32>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().max_blocking_threads(AT_ONCE).build()?;
    runtime.block_on(async {
        let database = Database::open(&options.database)?;
        let shop = match options.helper {
            None => routes(Plain { database }),
            Some(helper) => announced(database, Updates::at(helper)),
        };
        let shop = match options.lifetime {
            None => shop,
            Some(seconds) => lasting(shop, seconds),
        };
        let (mut interrupted, mut terminated) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let listener = TcpListener::bind(options.listen).await?;
        println!("shop: http://{}", listener.local_addr()?);
        let told = async move {
            tokio::select! {
                _ = interrupted.recv() => {}
                _ = terminated.recv() => {}
            }
        };
        axum::serve(listener, shop).with_graceful_shutdown(told).await?;
        Ok(())
    })
}
