//! What the program of the provider `xdp` receives, under the right tag. Needs CAP_BPF.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    verbena_fabric::xdp::fuzz_request(input).expect("whoever runs this may load a program into the kernel");
});
