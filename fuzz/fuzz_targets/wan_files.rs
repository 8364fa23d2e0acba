//! Files that options of a link name, and the file of a WAN: what is read is read the same when it is written again.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    verbena_wan::wan_files(input);
    verbena_cli::try_wan_file(input);
});
