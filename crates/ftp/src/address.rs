//! Addresses of data connections: the arguments of `PORT` and `EPRT`, the answers of `PASV` and `EPSV`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The argument of `PORT`: `h1,h2,h3,h4,p1,p2` (RFC 959, section 4.1.2).
pub fn parse_port(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let mut numbers = [0u8; 6];
    let mut fields = text.split(',');
    for number in &mut numbers {
        *number = parse_number(fields.next()?.trim(), 3)?.try_into().ok()?;
    }
    let [a, b, c, d, high, low] = numbers;
    fields.next().is_none().then(|| SocketAddr::from((Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]))))
}

/// Why an argument of `EPRT` is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EprtError {
    /// It is not of the form `|1|address|port|`.
    Form,
    /// Another family than IPv4 (1) and IPv6 (2).
    Family,
}

/// The argument of `EPRT`: `|family|address|port|` with any printable delimiter (RFC 2428, section 2).
pub fn parse_eprt(text: &[u8]) -> Result<SocketAddr, EprtError> {
    let text = std::str::from_utf8(text).map_err(|_| EprtError::Form)?;
    let delimiter = text.chars().next().filter(char::is_ascii_graphic).ok_or(EprtError::Form)?;
    let fields: Vec<&str> = text.split(delimiter).collect();
    let ["", family, address, port, ""] = fields[..] else { return Err(EprtError::Form) };
    let address: IpAddr = match family {
        "1" => address.parse().map(IpAddr::V4).map_err(|_| EprtError::Form)?,
        "2" => address.parse().map(IpAddr::V6).map_err(|_| EprtError::Form)?,
        _ => return Err(EprtError::Family),
    };
    let port = parse_number(port, 5).and_then(|port| u16::try_from(port).ok()).ok_or(EprtError::Form)?;
    Ok(SocketAddr::new(address, port))
}

fn parse_number(text: &str, most_digits: usize) -> Option<u32> {
    let is_number = !text.is_empty() && text.len() <= most_digits && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// The address and port of a `227` answer.
pub fn pasv_text(address: Ipv4Addr, port: u16) -> String {
    let [a, b, c, d] = address.octets();
    let [high, low] = port.to_be_bytes();
    format!("({a},{b},{c},{d},{high},{low})")
}

/// The address with an IPv4 address inside IPv6 (`::ffff:a.b.c.d`) taken out, so that both spellings compare equal.
pub fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_takes_six_bytes_and_nothing_else() {
        assert_eq!(parse_port(b"127,0,0,1,4,1"), Some("127.0.0.1:1025".parse().unwrap()));
        for bad in ["", "1,2,3,4,5", "1,2,3,4,5,6,7", "256,0,0,1,4,1", "1,2,3,4,5,+6", "1,2,3,4,5,0006", "a,b,c,d,e,f"]
        {
            assert_eq!(parse_port(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn eprt_takes_both_families() {
        assert_eq!(parse_eprt(b"|1|10.0.0.1|2000|"), Ok("10.0.0.1:2000".parse().unwrap()));
        assert_eq!(parse_eprt(b"!2!::1!2000!"), Ok("[::1]:2000".parse().unwrap()));
        assert_eq!(parse_eprt(b"|3|x|2000|"), Err(EprtError::Family));
        for bad in
            ["", "|", "|1|::1|2000|", "|2|10.0.0.1|2000|", "|1|10.0.0.1|65536|", "|1|10.0.0.1|2000", "|1|10.0.0.1||"]
        {
            assert_eq!(parse_eprt(bad.as_bytes()), Err(EprtError::Form), "{bad}");
        }
    }

    #[test]
    fn pasv_answers_are_six_numbers() {
        assert_eq!(pasv_text(Ipv4Addr::LOCALHOST, 1025), "(127,0,0,1,4,1)");
    }
}
