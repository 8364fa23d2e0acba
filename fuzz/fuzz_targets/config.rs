//! Any bytes as a configuration file: read to their end, each mistake shown.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    verbena_cli::config::try_bytes(bytes);
});
