//! Messages of the page protocol and introductions: what parses is written as something that reads the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    verbena_content::content_message(input);
});
