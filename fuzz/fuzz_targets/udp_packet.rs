//! The body of a packet of the channel `udp`, once it has been opened.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    verbena_transfer::udp_packet(input);
});
