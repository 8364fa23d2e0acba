//! What members tell each other of how they are: what parses is written as something that reads the same, and can be shown.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    verbena_node::node_message(input);
});
