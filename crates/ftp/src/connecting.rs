//! Streams that this server makes, to another server (rule T17).

use std::net::IpAddr;
use std::time::Duration;

use verbena_transfer::{Channel, Endpoint};

use crate::address::canonical;

/// Makes the stream of a number, from the address at which the client has reached this server: the other one was told that one, and takes no other.
pub(crate) fn make(
    endpoint: &Endpoint,
    local: IpAddr,
    number: u16,
    numbers: u16,
    most: Duration,
) -> std::io::Result<Box<dyn Channel>> {
    let (local, other) = (canonical(local), canonical(endpoint.address.ip()));
    // What is loopback for a client on this machine leads to no other one.
    let here = (local.is_ipv4() == other.is_ipv4() && (!local.is_loopback() || other.is_loopback())).then_some(local);
    endpoint.make_from(here, number, numbers, most)
}
