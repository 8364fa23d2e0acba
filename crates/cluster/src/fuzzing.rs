//! What the fuzz target `cluster_message` drives: messages between members, the records that outlive a process, and what stands in the register.

use std::fmt::Debug;

use crate::ClusterError;
use crate::record::{self, KEEPER_FORMAT, KeeperRecord, START_FORMAT, StartRecord};
use crate::register::{BEAT_FORMAT, Beat, HOLDER_FORMAT, Holder};
use crate::wire::Message;

/// Reads `input` as a message and as each record, as it stands and with the checksum that a record with this content has;
/// how many of these it is.
///
/// # Panics
/// If what is read is not written as something that reads the same, and no longer.
pub fn cluster_message(input: &[u8]) -> usize {
    let mut read = 0;
    if let Ok(message) = Message::decode(input) {
        let written = message.encode();
        assert!(written.len() <= input.len(), "{message:?} has grown");
        assert_eq!(Message::decode(&written), Ok(message));
        read += 1;
    }
    // No fuzzer finds a checksum.
    let formats = [KEEPER_FORMAT, START_FORMAT, HOLDER_FORMAT, BEAT_FORMAT];
    let [keeper, start, holder, beat] = formats.map(|format| record::with_checksum(format, input));
    read += read_again([input, &keeper], KeeperRecord::decode, KeeperRecord::encode);
    read += read_again([input, &start], StartRecord::decode, StartRecord::encode);
    read += read_again([input, &holder], Holder::decode, Holder::encode);
    read += read_again([input, &beat], Beat::decode, Beat::encode);
    read
}

/// How many of these blocks are such a record, each of which reads the same when it is written again.
fn read_again<T: Debug + PartialEq>(
    blocks: [&[u8]; 2],
    decode: fn(&[u8]) -> Result<T, ClusterError>,
    encode: fn(&T) -> Vec<u8>,
) -> usize {
    let records = blocks.into_iter().filter_map(|block| decode(block).ok());
    records.map(|record| assert_eq!(decode(&encode(&record)), Ok(record))).count()
}

#[cfg(test)]
mod tests {
    use verbena_terms::testing::corpus;

    use super::*;

    #[test]
    fn every_input_of_the_corpus_is_read_as_it_is_written() {
        let inputs = corpus("cluster_message");
        let read: usize = inputs.iter().map(|input| cluster_message(input)).sum();
        assert!(inputs.len() >= 14 && read >= 14, "{read} of {} inputs can be read", inputs.len());
    }
}
