const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A key in base64, padded.
pub fn encode(key: &[u8], out: &mut Vec<u8>) {
    for block in key.chunks(3) {
        let bits = block.iter().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - block.len()));
        for place in 0..4 {
            if place <= block.len() {
                out.push(ALPHABET[(bits >> (18 - 6 * place)) as usize & 63]);
            } else {
                out.push(b'=');
            }
        }
    }
}

/// The key that `token` stands for; `None` if it is no padded base64 or stands for nothing.
pub fn decode(token: &[u8]) -> Option<Vec<u8>> {
    if token.is_empty() || !token.len().is_multiple_of(4) {
        return None;
    }
    let padding = token.iter().rev().take_while(|&&byte| byte == b'=').count();
    if padding > 2 {
        return None;
    }
    let mut key = Vec::with_capacity(token.len() / 4 * 3);
    for block in token[..token.len() - padding].chunks(4) {
        let mut bits = 0u32;
        for &byte in block {
            bits = bits << 6 | digit(byte)?;
        }
        bits <<= 6 * (4 - block.len());
        key.extend_from_slice(&bits.to_be_bytes()[1..block.len()]);
    }
    Some(key)
}

fn digit(byte: u8) -> Option<u32> {
    Some(u32::from(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_is_decoded() {
        for length in 1..40usize {
            let key: Vec<u8> = (0..length).map(|at| (at * 37 + length) as u8).collect();
            let mut token = vec![];
            encode(&key, &mut token);
            assert_eq!(decode(&token), Some(key));
        }
        let mut token = vec![];
        encode(b"foo\0", &mut token);
        assert_eq!(token, b"Zm9vAA==");
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        for bad in [&b""[..], b"abc", b"ab=c", b"====", b"Zm9v!A==", b"A==="] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
    }
}
