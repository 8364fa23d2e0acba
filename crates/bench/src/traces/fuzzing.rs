//! What the fuzz target `trace` drives: each reader of traces on any bytes.

use super::clf::ClfReader;
use super::input::TraceError;
use super::keys::KeyReader;
use super::record::Request;
use super::worldcup::{RECORD_BYTES, WorldCupReader};

/// How many requests each reader found before the end or the first mistake: log lines, binary records, CSV.
pub type Found = [usize; 3];

/// Reads `input` as each format of traces.
///
/// # Panics
/// If time goes back, a reader goes on for ever or makes requests of nothing, or what is read is not the same after it was
/// written as a trace.
pub fn trace(input: &[u8]) -> Found {
    let name = || "fuzzed".to_owned();
    let keys = match KeyReader::new(name(), input) {
        Ok(reader) => whole(reader, input.len()),
        Err(_) => Vec::new(),
    };
    let logs = whole(ClfReader::new(name(), input), input.len());
    let records = whole(WorldCupReader::new(name(), input), input.len() / RECORD_BYTES);
    for requests in [&keys, &logs, &records] {
        written_and_read(requests);
    }
    [logs.len(), records.len(), keys.len()]
}

fn whole(reader: impl Iterator<Item = Result<Request, TraceError>>, most: usize) -> Vec<Request> {
    let mut requests: Vec<Request> = Vec::new();
    for request in reader {
        match request {
            Ok(request) => {
                assert!(requests.last().is_none_or(|last| last.at_us <= request.at_us), "time goes back");
                requests.push(request);
            }
            Err(refusal) => {
                assert!(refusal.to_string().starts_with("fuzzed, "), "{refusal}");
                break;
            }
        }
        assert!(requests.len() <= most, "more requests than the input has room for");
    }
    requests
}

fn written_and_read(requests: &[Request]) {
    // Times in a trace count from its first line's.
    let Some(first) = requests.first() else { return };
    let mut text = format!("{}\n", Request::HEADER).into_bytes();
    for request in requests {
        request.write(&mut text).expect("invariant: a Vec does not end");
    }
    let read: Result<Vec<Request>, _> =
        KeyReader::new("written".to_owned(), text.as_slice()).and_then(Iterator::collect);
    let since_first = |request: &Request| Request { at_us: request.at_us - first.at_us, ..request.clone() };
    match read {
        Ok(read) => assert!(read.iter().eq(&requests.iter().map(since_first).collect::<Vec<_>>()), "{requests:?}"),
        // A log's line is almost as long as a line may be, and quoting makes it longer.
        Err(refusal) => assert!(refusal.to_string().contains("the line is longer"), "{refusal}: {requests:?}"),
    }
}

#[cfg(test)]
mod tests {
    use verbena_terms::testing::corpus;

    use super::*;

    #[test]
    fn every_reader_survives_the_corpus_and_finds_requests_in_it() {
        let inputs = corpus("trace");
        let mut all = [0; 3];
        for input in &inputs {
            let found = trace(input);
            all = std::array::from_fn(|reader| all[reader] + found[reader]);
        }
        assert!(inputs.len() >= 10 && all.iter().all(|found| *found >= 3), "{all:?} in {} inputs", inputs.len());
    }
}
