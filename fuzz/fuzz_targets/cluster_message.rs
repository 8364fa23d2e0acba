//! Messages between members, a keeper's record, a start record: what parses is written as something that reads the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    verbena_cluster::cluster_message(input);
});
