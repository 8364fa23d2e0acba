//! Blocks of MODE E over several data connections: a file that is whole has each of its bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    verbena_ftp::ftp_blocks(input);
});
