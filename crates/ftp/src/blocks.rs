//! Extended block mode (MODE E, GFD.20 section 3.4): headers of blocks, the ends of connections, and which bytes have come.
//!
//! Each data connection carries blocks in any order, and says by EOD that it has sent its last one. One block of one
//! connection has EOF; its offset is how many EODs there will be in all (EODC). A transfer is over once as many have come:
//! no end of one connection says anything about the others.
//!
//! ```text
//!   byte   0            1 ... 8       9 ... 16
//!          descriptor   count         offset, or EODC with EOF        big-endian, then `count` bytes of the file
//! ```
//! Nothing here does input or output: [`crate::parallel`] moves the bytes.

/// Bytes of a header.
pub const HEADER: usize = 17;
/// Data connections of one transfer.
pub const MOST_CONNECTIONS: u16 = 32;
/// Pieces between which bytes may be missing at a time: clients send few blocks ahead of each other.
const MOST_PIECES: usize = 1024;
/// Blocks without bytes, one behind the other, on a connection: they move nothing, and hold it.
const MOST_EMPTY: u32 = 16;
/// The kernel's largest offset.
const LAST: u64 = i64::MAX as u64;

const END_OF_RECORD: u8 = 0x80;
const EOF: u8 = 0x40;
const EOD: u8 = 0x08;
const CLOSES: u8 = 0x04;

/// Why what came is no upload in MODE E.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// The descriptor says that the data may be wrong, or has a bit that MODE E does not know.
    #[error("A block has a descriptor that is not known.")]
    Descriptor,
    /// The block ends behind the largest offset.
    #[error("A block ends behind the largest offset.")]
    Offset,
    /// EOF with bytes, or with a number of connections that cannot be, or EOF twice.
    #[error("The number of data connections is none, more than 32, or was said twice.")]
    Count,
    /// More connections have ended than there are.
    #[error("More data connections have ended than were announced.")]
    Ends,
    /// Too many blocks without bytes.
    #[error("Too many blocks without bytes.")]
    Empty,
    /// Too many pieces with bytes missing between them.
    #[error("Too many pieces of the file are apart.")]
    Pieces,
}

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    descriptor: u8,
    count: u64,
    offset: u64,
}

impl Header {
    /// Of `count` bytes at `offset`.
    pub fn data(offset: u64, count: u64) -> Header {
        Header { descriptor: 0, count, offset }
    }

    /// The last one of a connection; one of them says how many there are.
    pub fn end(connections: Option<u64>) -> Header {
        match connections {
            Some(connections) => Header { descriptor: EOF | EOD, count: 0, offset: connections },
            None => Header { descriptor: EOD, count: 0, offset: 0 },
        }
    }

    /// Reads a header.
    pub fn parse(bytes: &[u8; HEADER]) -> Result<Header, BlockError> {
        let [descriptor, numbers @ ..] = bytes;
        let number = |bytes: &[u8]| bytes.iter().fold(0u64, |number, byte| (number << 8) | u64::from(*byte));
        let header = Header { descriptor: *descriptor, count: number(&numbers[..8]), offset: number(&numbers[8..]) };
        if header.descriptor & !(END_OF_RECORD | EOF | EOD | CLOSES) != 0 {
            return Err(BlockError::Descriptor);
        }
        let is_eof = header.descriptor & EOF != 0;
        if is_eof && (header.count != 0 || !(1..=u64::from(MOST_CONNECTIONS)).contains(&header.offset)) {
            return Err(BlockError::Count);
        }
        match header.offset.checked_add(header.count) {
            Some(end) if end <= LAST => Ok(header),
            _ => Err(BlockError::Offset),
        }
    }

    /// The header as it is sent.
    pub fn written(&self) -> [u8; HEADER] {
        let mut bytes = [self.descriptor; HEADER];
        bytes[1..9].copy_from_slice(&self.count.to_be_bytes());
        bytes[9..].copy_from_slice(&self.offset.to_be_bytes());
        bytes
    }
}

/// What the bytes that were taken are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Bytes of the file, from this one on.
    pub data: Option<u64>,
    /// How many connections there are in all.
    pub connections: Option<u64>,
    /// The connection has sent its last block, and is closed then or not.
    pub end: Option<bool>,
}

/// One data connection that is read.
#[derive(Debug, Default)]
pub struct BlockReader {
    header: [u8; HEADER],
    filled: usize,
    block: Option<Header>,
    empty: u32,
    has_begun: bool,
}

impl BlockReader {
    /// How many bytes may be read next. What comes behind the last block is of the next transfer, so nothing is read ahead.
    pub fn wants(&self) -> usize {
        match self.block {
            Some(block) => usize::try_from(block.count).unwrap_or(usize::MAX),
            None => HEADER - self.filled,
        }
    }

    /// Whether a byte has come.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Takes bytes, at most as many as are wanted.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Step, BlockError> {
        debug_assert!(bytes.len() <= self.wants(), "bytes of another block");
        self.has_begun |= !bytes.is_empty();
        let mut step = Step::default();
        let block = match self.block {
            Some(mut block) => {
                step.data = Some(block.offset);
                block.offset += bytes.len() as u64;
                block.count -= bytes.len() as u64;
                block
            }
            None => {
                self.header[self.filled..self.filled + bytes.len()].copy_from_slice(bytes);
                self.filled += bytes.len();
                if self.filled < HEADER {
                    return Ok(step);
                }
                self.filled = 0;
                let block = Header::parse(&self.header)?;
                self.empty = if block.count == 0 { self.empty + 1 } else { 0 };
                if self.empty > MOST_EMPTY {
                    return Err(BlockError::Empty);
                }
                step.connections = (block.descriptor & EOF != 0).then_some(block.offset);
                block
            }
        };
        self.block = (block.count > 0).then_some(block);
        if block.count == 0 && block.descriptor & EOD != 0 {
            step.end = Some(block.descriptor & CLOSES != 0);
        }
        Ok(step)
    }
}

/// Parts of a file: sorted, apart from each other, none empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces(Vec<(u64, u64)>);

impl Pieces {
    /// Adds the bytes from the first to before the second. Those that are there already change nothing.
    pub fn add(&mut self, from: u64, to: u64) -> Result<(), BlockError> {
        if from >= to {
            return Ok(());
        }
        // Those that touch the new one become one with it.
        let first = self.0.partition_point(|(_, end)| *end < from);
        let behind = self.0.partition_point(|(start, _)| *start <= to);
        let start = self.0.get(first).filter(|_| first < behind).map_or(from, |piece| piece.0.min(from));
        let end = self.0[..behind].last().filter(|_| first < behind).map_or(to, |piece| piece.1.max(to));
        if first == behind && self.0.len() >= MOST_PIECES {
            return Err(BlockError::Pieces);
        }
        self.0.splice(first..behind, [(start, end)]);
        Ok(())
    }

    /// What is not there of the bytes from the first to before the second.
    pub fn missing(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let (mut at, mut missing) = (from, Vec::new());
        for (start, end) in &self.0 {
            if *start >= to {
                break;
            }
            if at < *start {
                missing.push((at, *start));
            }
            at = at.max(*end);
        }
        if at < to {
            missing.push((at, to));
        }
        missing
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How long a file is of which all bytes are there. None: some are missing.
    fn whole(&self) -> Option<u64> {
        match self.0[..] {
            [] => Some(0),
            [(0, end)] => Some(end),
            _ => None,
        }
    }
}

/// An upload by all its connections.
#[derive(Debug, Default)]
pub struct Gathered {
    pieces: Pieces,
    connections: Option<u64>,
    ended: u64,
}

impl Gathered {
    /// `count` bytes have been written.
    pub fn written(&mut self, offset: u64, count: usize) -> Result<(), BlockError> {
        self.pieces.add(offset, offset + count as u64)
    }

    /// What a connection has said, once its bytes are written.
    pub fn said(&mut self, step: Step) -> Result<(), BlockError> {
        if let Some(connections) = step.connections
            && self.connections.replace(connections).is_some()
        {
            return Err(BlockError::Count);
        }
        self.ended += u64::from(step.end.is_some());
        match self.connections {
            Some(connections) if self.ended > connections => Err(BlockError::Ends),
            None if self.ended > u64::from(MOST_CONNECTIONS) => Err(BlockError::Ends),
            _ => Ok(()),
        }
    }

    /// Whether so many ends are all that there are.
    pub fn are_all(&self, ended: u64) -> bool {
        self.connections == Some(ended)
    }

    /// The bytes of the file. None: some are missing.
    pub fn size(&self) -> Option<u64> {
        self.pieces.whole().filter(|_| self.are_all(self.ended))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_header_is_what_globus_sends() {
        assert_eq!(Header::data(0x102, 3).written(), *b"\x00\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\x01\x02");
        assert_eq!(Header::end(Some(2)).written(), *b"\x48\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02");
        assert_eq!(Header::end(None).written(), *b"\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    }

    #[test]
    fn a_header_out_of_range_is_refused() {
        let parse = |descriptor, count, offset| Header::parse(&Header { descriptor, count, offset }.written());
        for (descriptor, count, offset, error) in [
            (0x20, 1, 0, BlockError::Descriptor),
            (0x10, 1, 0, BlockError::Descriptor),
            (0x01, 1, 0, BlockError::Descriptor),
            (EOF, 1, 1, BlockError::Count),
            (EOF, 0, 0, BlockError::Count),
            (EOF | EOD, 0, 33, BlockError::Count),
            (0, u64::MAX, 1, BlockError::Offset),
            (0, 1, LAST, BlockError::Offset),
        ] {
            assert_eq!(parse(descriptor, count, offset), Err(error), "{descriptor} {count} {offset}");
        }
        assert!(parse(END_OF_RECORD, 1, LAST - 1).is_ok() && parse(EOF | EOD | CLOSES, 0, 32).is_ok());
    }

    #[test]
    fn an_upload_is_over_with_the_last_end_alone() {
        let end = |connections| Step { connections, end: Some(false), ..Step::default() };
        let mut gathered = Gathered::default();
        gathered.said(end(Some(2))).unwrap();
        assert!(!gathered.are_all(1));
        gathered.written(5, 5).unwrap();
        gathered.said(end(None)).unwrap();
        assert_eq!((gathered.are_all(2), gathered.size()), (true, None), "the first five bytes are missing");
        gathered.written(0, 7).unwrap();
        assert_eq!(gathered.size(), Some(10));
        assert_eq!(gathered.said(end(None)), Err(BlockError::Ends));
        assert_eq!(gathered.said(end(Some(2))), Err(BlockError::Count));
    }

    #[test]
    fn what_moves_nothing_and_what_is_scattered_has_an_end() {
        let mut reader = BlockReader::default();
        let empty = Header::data(0, 0).written();
        let taken = (0..100).take_while(|_| reader.take(&empty).is_ok()).count();
        assert_eq!(taken, MOST_EMPTY as usize);
        let mut pieces = Pieces::default();
        let added = (0..5000).take_while(|piece| pieces.add(piece * 2, piece * 2 + 1).is_ok()).count();
        assert_eq!(added, MOST_PIECES);
        pieces.add(1, 2).unwrap();
    }

    proptest! {
        #[test]
        fn pieces_are_a_set_of_bytes(parts in proptest::collection::vec((0u64..60, 0u64..12), 0..20), from in 0u64..80, length in 0u64..40) {
            let (mut pieces, mut bytes) = (Pieces::default(), [false; 80]);
            for (start, length) in parts {
                pieces.add(start, start + length).unwrap();
                bytes[start as usize..(start + length) as usize].fill(true);
            }
            prop_assert!(pieces.0.iter().all(|(start, end)| start < end));
            prop_assert!(pieces.0.windows(2).all(|two| two[0].1 < two[1].0), "{pieces:?}");
            let missing = pieces.missing(from, from + length);
            for at in from..from + length {
                let is_there = bytes.get(at as usize).is_some_and(|is_there| *is_there);
                let is_missing = missing.iter().any(|(start, end)| (*start..*end).contains(&at));
                prop_assert_eq!(is_there, !is_missing, "{}", at);
            }
        }
    }
}
