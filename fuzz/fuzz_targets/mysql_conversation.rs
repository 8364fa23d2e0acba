//! What a client and a server of MySQL say, and what the bracket answers: nothing held passes before its time.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    verbena_relay::mysql_conversation(input);
});
