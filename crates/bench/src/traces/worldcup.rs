//! The binary logs of the 1998 World Cup web site (M. Arlitt, T. Jin, "1998 World Cup Web Site Access Logs", the
//! Internet Traffic Archive). One request is one record, big endian:
//!
//! ```text
//!  0            4            8            12           16       17       18     19       20
//!  +------------+------------+------------+------------+--------+--------+------+--------+
//!  | timestamp  | client     | object     | size       | method | status | type | server |
//!  +------------+------------+------------+------------+--------+--------+------+--------+
//!    seconds                                bytes sent
//!    since 1970
//! ```
//!
//! The key is the object's number. Methods and statuses are not looked at: the archive's own codes are in its tools.

use std::io::BufRead;

use super::input::TraceError;
use super::record::Request;

/// Bytes of one record.
pub const RECORD_BYTES: usize = 20;

/// Requests of a log in the World Cup's binary format.
pub struct WorldCupReader<R> {
    input: String,
    reader: R,
    offset: u64,
    first_s: Option<u32>,
    last_s: u32,
}

impl<R: BufRead> WorldCupReader<R> {
    /// Reads the log `reader`; `input` is what errors call it.
    pub fn new(input: String, reader: R) -> Self {
        WorldCupReader { input, reader, offset: 0, first_s: None, last_s: 0 }
    }

    fn read(&mut self) -> Result<Option<Request>, TraceError> {
        let Some(record) = self.record()? else {
            return Ok(None);
        };
        let word = |at: usize| u32::from_be_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
        let (timestamp_s, object, size_bytes) = (word(0), word(8), word(12));
        let first_s = *self.first_s.get_or_insert(timestamp_s);
        if timestamp_s < self.last_s {
            let what = format!(
                "the time stamp {timestamp_s} is before that of the record before it ({}): not a log of this format, or \
                 several that are not in order",
                self.last_s
            );
            return Err(TraceError::Byte { input: self.input.clone(), offset: self.offset, what });
        }
        self.last_s = timestamp_s;
        self.offset += RECORD_BYTES as u64;
        Ok(Some(Request {
            at_us: u64::from(timestamp_s - first_s) * 1_000_000,
            key: object.to_string(),
            size_bytes: u64::from(size_bytes),
        }))
    }

    fn record(&mut self) -> Result<Option<[u8; RECORD_BYTES]>, TraceError> {
        let mut record = [0; RECORD_BYTES];
        let mut filled = 0;
        while filled < RECORD_BYTES {
            match self.reader.read(&mut record[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => {
                    let what = format!("the last record has {filled} of {RECORD_BYTES} bytes: the log is cut off");
                    return Err(TraceError::Byte { input: self.input.clone(), offset: self.offset, what });
                }
                Ok(read) => filled += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(TraceError::io(&self.input, error)),
            }
        }
        Ok(Some(record))
    }
}

impl<R: BufRead> Iterator for WorldCupReader<R> {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(timestamp_s: u32, object: u32, size_bytes: u32) -> Vec<u8> {
        let mut record = Vec::new();
        for word in [timestamp_s, 7, object, size_bytes] {
            record.extend_from_slice(&word.to_be_bytes());
        }
        record.extend_from_slice(&[0, 2, 1, 3]);
        record
    }

    fn read(log: &[u8]) -> Result<Vec<Request>, TraceError> {
        WorldCupReader::new("log".to_owned(), log).collect()
    }

    #[test]
    fn records_are_read() {
        let log = [record(893_964_001, 4, 985), record(893_964_003, 0xfedc_ba98, 0)].concat();
        let requests = read(&log).unwrap();
        assert_eq!(requests[0], Request { at_us: 0, key: "4".to_owned(), size_bytes: 985 });
        assert_eq!(requests[1], Request { at_us: 2_000_000, key: "4275878552".to_owned(), size_bytes: 0 });
        assert_eq!(requests.len(), 2);
    }

    #[test]
    fn refusals_name_the_byte() {
        let mut cut = [record(5, 1, 1), record(6, 1, 1)].concat();
        cut.truncate(33);
        let refusal = read(&cut).unwrap_err().to_string();
        assert_eq!(refusal, "log, byte 20: the last record has 13 of 20 bytes: the log is cut off");

        let back = [record(5, 1, 1), record(6, 1, 1), record(4, 1, 1)].concat();
        let refusal = read(&back).unwrap_err().to_string();
        assert!(refusal.starts_with("log, byte 40: the time stamp 4 is before"), "{refusal}");
    }
}
