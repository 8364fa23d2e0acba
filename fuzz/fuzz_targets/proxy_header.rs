//! A header of the PROXY protocol ends where it says, and is none before.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = verbena_proxy::proxy_header(input);
});
