//! The endpoints of a session as the answer to `TPRT` writes them: `(tcp |||41234| TOKEN) (quic |||41235| TOKEN FINGERPRINT)
//! (udp |||41236| TOKEN SECRET)`.

use std::net::{IpAddr, SocketAddr};

use verbena_transfer::{ChannelKind, Endpoint};

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if digits.len() != 2 * N || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// The endpoints, each in parentheses.
pub(crate) fn written(endpoints: &[Endpoint]) -> String {
    let each: Vec<String> = endpoints.iter().map(|endpoint| format!("({})", one(endpoint))).collect();
    each.join(" ")
}

fn one(endpoint: &Endpoint) -> String {
    let Endpoint { channel, address, token, fingerprint, secret } = endpoint;
    let mut text = format!("{channel} |||{}| {}", address.port(), digits(token));
    if let Some(of_channel) = fingerprint.or(*secret) {
        text.push_str(&format!(" {}", digits(&of_channel)));
    }
    text
}

/// The endpoints in an answer of the server at `host`: at least one, and each of another channel.
pub(crate) fn read(reply: &str, host: IpAddr) -> Option<Vec<Endpoint>> {
    let mut endpoints: Vec<Endpoint> = Vec::new();
    for part in reply.split('(').skip(1) {
        let endpoint = parse(part.split_once(')')?.0, host)?;
        if endpoints.iter().any(|other| other.channel == endpoint.channel) {
            return None;
        }
        endpoints.push(endpoint);
    }
    (!endpoints.is_empty()).then_some(endpoints)
}

fn parse(inside: &str, host: IpAddr) -> Option<Endpoint> {
    let (channel, rest) = inside.split_once(" |||")?;
    let (port, secrets) = rest.split_once("| ")?;
    let (token, of_channel) = match secrets.split_once(' ') {
        Some((token, of_channel)) => (token, Some(bytes(of_channel)?)),
        None => (secrets, None),
    };
    let address = SocketAddr::new(host, port.parse().ok()?);
    let channel = channel.parse().ok()?;
    let (fingerprint, secret) = if channel == ChannelKind::Udp { (None, of_channel) } else { (of_channel, None) };
    Some(Endpoint { channel, address, token: bytes(token)?, fingerprint, secret })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_comes_back() {
        let host = IpAddr::from([127, 0, 0, 1]);
        let tcp = Endpoint {
            channel: ChannelKind::Tcp,
            address: (host, 41234).into(),
            token: [0xa7; 16],
            fingerprint: None,
            secret: None,
        };
        let quic = Endpoint { channel: ChannelKind::Quic, fingerprint: Some([0x1b; 32]), ..tcp };
        let udp = Endpoint { channel: ChannelKind::Udp, secret: Some([0x2c; 32]), ..tcp };
        for endpoints in [vec![tcp], vec![quic], vec![udp], vec![tcp, quic, udp]] {
            let reply = format!("229 Entering Transfer Mode {}", written(&endpoints));
            assert_eq!(read(&reply, host), Some(endpoints), "{reply}");
        }
        let twice = written(&[tcp, tcp]);
        for wrong in [
            "229 (tcp |||1| 00)",
            "229 (ton |||1| 00112233445566778899aabbccddeeff)",
            "229 (tcp |||é| é)",
            "229 (tcp |||1| 00112233445566778899aabbccddeeff) (",
            "229",
            &twice,
        ] {
            assert_eq!(read(wrong, host), None, "{wrong}");
        }
    }
}
