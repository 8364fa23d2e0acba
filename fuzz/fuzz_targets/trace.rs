//! Each reader of traces: what is read is the same after it was written as a trace.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    verbena_bench::traces::trace(input);
});
