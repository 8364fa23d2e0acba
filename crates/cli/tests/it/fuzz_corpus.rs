//! Whatever bytes the configuration has, or the file of a WAN, it is read to its end and each mistake can be shown.

use verbena_cli::config::try_bytes;
use verbena_cli::try_wan_file;
use verbena_terms::testing::corpus;

#[test]
fn the_corpus_is_read_to_its_end() {
    let files = corpus("config");
    let mistakes: usize = files.iter().map(|bytes| try_bytes(bytes)).sum();
    assert!(files.len() >= 12 && mistakes >= 15, "{} files with {mistakes} mistakes", files.len());
}

#[test]
fn every_beginning_and_every_changed_byte_is_read_to_its_end() {
    let text = include_bytes!("../config/keys.toml");
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

#[test]
fn the_files_of_wans_in_the_corpus_are_read_to_their_end() {
    let mistakes: Vec<usize> = corpus("wan_files").iter().map(|bytes| try_wan_file(bytes)).collect();
    let plans = mistakes.iter().filter(|mistakes| **mistakes == 0).count();
    assert!(plans >= 3 && mistakes.iter().sum::<usize>() >= 25, "{mistakes:?}");
}
