//! Options of a link of the WAN: what parses is shown as something that reads the same, and what is refused changes nothing.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    verbena_wan::wan_options(input);
});
