//! What experiments with web pages are made of, each in a process of its own: applications, a bare loop to compare proxies with, clients, and
//! threads that take a core's time.

mod application;
mod asker;
mod bare;
mod busy;
mod checked;
mod closed;
mod connection;
mod crowd;
mod database;
mod paced;
mod pages;
mod products;
mod program;
mod replay;
mod requests;
mod slow;
mod threads;
mod updating;
mod verify;
pub(crate) mod versions;

pub(crate) use asker::{Answer, Asker};
pub(crate) use bare::ROLE as BARE;
pub(crate) use busy::ROLE as BUSY;
pub(crate) use closed::{Found, Order, ROLE as CLOSED};
pub(crate) use connection::get;
pub(crate) use crowd::ask_at_once;
pub(crate) use database::{ROLE as DATABASE, fill as fill_database};
pub(crate) use pages::ROLE as PAGES;
pub(crate) use products::{LARGEST_BYTES as LARGEST_PRODUCT, SMALLEST_BYTES as SMALLEST_PRODUCT};
pub(crate) use products::{ROLE as PRODUCTS, fill as fill_products, path as product_path};
pub(crate) use program::ROLE as PROGRAM;
pub(crate) use replay::{CONNECTIONS as REPLAY_CONNECTIONS, KeyTrace, ROLE as REPLAY, Replayed, Stretch};
pub(crate) use requests::{OBJECTS, PAGE_BYTES, Workload, database_path, once_path};
pub(crate) use slow::ROLE as SLOW;
pub(crate) use updating::Stream;
pub(crate) use verify::ROLE as VERIFY;

/// Plays the part that `arguments` name; `None` if there is no such part.
pub(crate) fn play(arguments: &[String]) -> Option<Result<(), String>> {
    let (role, rest) = arguments.split_first()?;
    match role.as_str() {
        bare::ROLE => Some(bare::serve(rest)),
        busy::ROLE => Some(busy::serve(rest)),
        closed::ROLE => Some(closed::serve(rest)),
        database::ROLE => Some(database::serve(rest)),
        pages::ROLE => Some(pages::serve(rest)),
        paced::ROLE => Some(paced::ask(rest)),
        products::ROLE => Some(products::serve(rest)),
        program::ROLE => Some(program::become_it(rest)),
        replay::ROLE => Some(replay::serve(rest)),
        slow::ROLE => Some(slow::serve(rest)),
        versions::ROLE => Some(versions::serve(rest)),
        verify::ROLE => Some(verify::serve(rest)),
        _ => None,
    }
}
