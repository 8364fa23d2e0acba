//! Packets on the sockets of the provider `shm`: what parses is written as something that reads the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    verbena_fabric::shm::fuzz_frame(input);
});
