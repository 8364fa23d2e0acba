//! The header in the repository is that of the code. Written anew with `VERBENA_WRITE_EXPECTED=1`.

use std::path::Path;

#[test]
fn the_header_is_made_from_the_code() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).unwrap();
    let files =
        ["src/error.rs", "src/locks.rs", "src/memory.rs", "src/windows.rs", "src/checkpoints.rs", "src/pages.rs"]
            .map(|file| here.join(file));
    let builder = cbindgen::Builder::new().with_config(config);
    let builder = files.iter().fold(builder, |builder, file| builder.with_src(file));
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    // What rustdoc wants above the conditions of an unsafe function.
    let made = String::from_utf8(made).unwrap().replace("// # Safety\n", "// The caller sees to it:\n");
    let path = here.join("include/verbena.h");
    if std::env::var_os("VERBENA_WRITE_EXPECTED").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == made, "include/verbena.h is not that of the code: VERBENA_WRITE_EXPECTED=1 writes it\n{made}");
}
