//! Whatever bytes the configuration has, it is read to its end and each mistake can be shown.

use verbena_cli::config::try_bytes;
use verbena_terms::testing::corpus;

#[test]
fn the_corpus_is_read_to_its_end() {
    let files = corpus("config");
    let mistakes: usize = files.iter().map(|bytes| try_bytes(bytes)).sum();
    assert!(files.len() >= 12 && mistakes >= 15, "{} files with {mistakes} mistakes", files.len());
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
