//! Decimal numbers as C's `strtol` family reads them, without its truncations.

/// A number with the sign that C allows; `None` unless all of the token is one.
pub(crate) fn signed(token: &[u8]) -> Option<i64> {
    std::str::from_utf8(token).ok()?.parse().ok()
}

/// As [`signed`], within 32 bits.
pub(crate) fn signed_32(token: &[u8]) -> Option<i32> {
    signed(token)?.try_into().ok()
}

/// An unsigned number; a plus is allowed.
pub(crate) fn unsigned(token: &[u8]) -> Option<u64> {
    std::str::from_utf8(token).ok()?.parse().ok()
}

/// As [`unsigned`], within 32 bits.
pub(crate) fn unsigned_32(token: &[u8]) -> Option<u32> {
    unsigned(token)?.try_into().ok()
}

/// The number that a value begins with, if white space or nothing follows it: what `incr` counts from.
pub(crate) fn of_value(value: &[u8]) -> Option<u64> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c);
    let start = value.iter().position(|byte| !is_space(byte))?;
    let rest = &value[start..];
    let end = rest.iter().position(is_space).unwrap_or(rest.len());
    unsigned(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_as_far_as_white_space() {
        assert_eq!(of_value(b"12"), Some(12));
        assert_eq!(of_value(b" +9  "), Some(9));
        assert_eq!(of_value(b"7 apples"), Some(7));
        assert_eq!(of_value(b"18446744073709551615"), Some(u64::MAX));
        for none in [&b""[..], b"  ", b"-1", b"7a", b"18446744073709551616"] {
            assert_eq!(of_value(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_number_out_of_range_is_none() {
        assert_eq!(signed_32(b"-1"), Some(-1));
        assert_eq!(signed_32(b"2147483648"), None);
        assert_eq!(unsigned_32(b"4294967296"), None);
        assert_eq!(unsigned(b"-1"), None);
        assert_eq!(unsigned(b"1x"), None);
    }
}
