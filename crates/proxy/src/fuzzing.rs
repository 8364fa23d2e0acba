//! What the fuzz target `proxy_header` drives: the header that a balancer begins a connection with.

use std::net::SocketAddr;

use crate::proxy_protocol::{Beginning, Ends, NoHeader, ProxyVersion, parse};

/// Reads the first bytes of a connection, and each shorter beginning of them.
///
/// # Panics
/// If what they are depends on how many of what follows are here, or what is written of an address reads otherwise.
pub fn proxy_header(input: &[u8]) -> Result<Option<SocketAddr>, bool> {
    let whole = parse(input);
    let of = |bytes: &[u8]| parse(bytes).map_err(|error| assert!(matches!(error, NoHeader::Malformed)));
    match &whole {
        Ok(Beginning::Whole { length, from }) => {
            assert!((1..=input.len()).contains(length), "{length} bytes of {}", input.len());
            for shorter in 0..*length {
                assert_eq!(of(&input[..shorter]), Ok(Beginning::Part), "{shorter} of {length}");
            }
            assert_eq!(of(&input[..*length]), Ok(Beginning::Whole { length: *length, from: *from }));
            for version in [ProxyVersion::V1, ProxyVersion::V2] {
                let ends = from.map(|from| Ends { from, to: from });
                let written = version.header(ends.as_ref());
                let read = Beginning::Whole { length: written.len(), from: from.map(plain) };
                assert_eq!(of(&written), Ok(read), "{version:?}");
            }
            Ok(*from)
        }
        Ok(Beginning::Part) => {
            for shorter in 0..input.len() {
                assert_eq!(of(&input[..shorter]), Ok(Beginning::Part), "{shorter} of {}", input.len());
            }
            Err(true)
        }
        Err(_) => Err(false),
    }
}

/// IPv4 within IPv6 is written as IPv4.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use verbena_terms::testing::corpus;

    use super::*;

    #[test]
    fn headers_parts_of_them_and_what_is_none_are_in_the_corpus() {
        let all: Vec<_> = corpus("proxy_header").iter().map(|input| proxy_header(input)).collect();
        let count = |of: Result<bool, bool>| all.iter().filter(|one| one.map(|from| from.is_some()) == of).count();
        assert!([Ok(true), Ok(false), Err(true), Err(false)].into_iter().all(|of| count(of) >= 2), "{all:?}");
    }
}
