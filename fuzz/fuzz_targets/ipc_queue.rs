//! What comes out of a message queue, put together, and records of queues.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    verbena_ipc::queue_ends(input);
});
