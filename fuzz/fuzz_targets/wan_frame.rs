//! Frames as the WAN's router has them: whatever their heads say, one bit is changed and the checksum is right before that.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    verbena_wan::wan_frame(input);
});
