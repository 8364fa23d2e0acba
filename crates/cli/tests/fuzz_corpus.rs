//! Whatever bytes the configuration has, it is read to its end and each mistake can be shown.

use std::path::Path;

use verbena_cli::config::try_bytes;

#[test]
fn the_corpus_is_read_to_its_end() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/config");
    let mut mistakes = 0;
    let mut files = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        mistakes += try_bytes(&bytes);
        files += 1;
    }
    assert!(files >= 12 && mistakes >= 15, "{files} files with {mistakes} mistakes");
}

#[test]
fn every_beginning_and_every_changed_byte_is_read_to_its_end() {
    let text = include_bytes!("config/keys.toml");
    for end in 0..text.len() {
        try_bytes(&text[..end]);
    }
    let mut wrong = 0;
    for at in 0..text.len() {
        for byte in *b"\"[]{}=.#\n\x00\xff'9" {
            let mut changed = text.to_vec();
            changed[at] = byte;
            wrong += usize::from(try_bytes(&changed) > 0);
        }
    }
    assert!(wrong > text.len(), "hardly anything was found wrong");
}
