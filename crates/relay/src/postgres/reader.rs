//! What messages are made of.

/// Reads a payload from its front. All numbers are big-endian. `None`: the payload ends before.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// At the front.
    pub fn new(payload: &'a [u8]) -> Self {
        Reader(payload)
    }

    /// So many bytes.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    /// A number of two bytes.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// A number of four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// A string that ends with a zero byte, which is taken too.
    pub fn terminated(&mut self) -> Option<&'a [u8]> {
        let length = self.0.iter().position(|byte| *byte == 0)?;
        let taken = self.bytes(length)?;
        self.bytes(1)?;
        Some(taken)
    }

    /// A value behind its length. NULL, which is `None` inside, has the length -1.
    pub fn value(&mut self) -> Option<Option<&'a [u8]>> {
        match self.u32()? {
            u32::MAX => Some(None),
            length => self.bytes(usize::try_from(length).ok()?).map(Some),
        }
    }

    /// A list behind the number of its parts.
    pub fn all<T>(&mut self, one: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        (0..self.u16()?).map(|_| one(self)).collect()
    }
}
