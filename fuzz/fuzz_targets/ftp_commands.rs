//! What a client of the FTP server sends: no path leads elsewhere, and each answer is one of FTP.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    verbena_ftp::ftp_commands(input);
});
