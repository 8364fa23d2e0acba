//! What a foreign FTP server answers and lists: each entry has a name, and is read the same when it was written again.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    verbena_ftp::ftp_listing(input);
});
