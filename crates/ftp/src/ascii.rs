//! `TYPE A`: lines that end with LF in a file end with CR LF on the wire.

/// Appends `bytes` of a file as they go over the wire.
pub fn to_wire(bytes: &[u8], out: &mut Vec<u8>) {
    for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
        match piece.strip_suffix(b"\n") {
            Some(line) => {
                out.extend_from_slice(line);
                out.extend_from_slice(b"\r\n");
            }
            None => out.extend_from_slice(piece),
        }
    }
}

/// Takes CR LF back to LF; other bytes stay as they are.
#[derive(Debug, Default)]
pub struct FromWire {
    /// A CR that may belong to an LF in the next piece.
    has_cr: bool,
}

impl FromWire {
    /// Appends the bytes that `bytes` stand for.
    pub fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for &byte in bytes {
            if std::mem::take(&mut self.has_cr) && byte != b'\n' {
                out.push(b'\r');
            }
            if byte == b'\r' {
                self.has_cr = true;
            } else {
                out.push(byte);
            }
        }
    }

    /// Appends what was kept at the end.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.has_cr) {
            out.push(b'\r');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_however_the_wire_cuts_them() {
        let text = b"a\nb\r\n\n\rc\r";
        let mut wire = Vec::new();
        to_wire(text, &mut wire);
        assert_eq!(wire, b"a\r\nb\r\r\n\r\n\rc\r");
        for cut in 0..=wire.len() {
            let (mut reader, mut back) = (FromWire::default(), Vec::new());
            reader.take(&wire[..cut], &mut back);
            reader.take(&wire[cut..], &mut back);
            reader.end(&mut back);
            assert_eq!(back, text, "cut at {cut}");
        }
    }
}
