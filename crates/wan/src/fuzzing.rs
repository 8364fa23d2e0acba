//! What the fuzz targets `wan_options` and `wan_files` drive: what people write of a way, and the files that it names.

use crate::jitter::Jitter;
use crate::netem;
use crate::options::OptionError;
use crate::trace::Trace;
use crate::way::Way;

pub use crate::router::{FrameOutcomes, wan_frame};

/// What happened, so that a replay of the corpus can say that every road was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Outcomes {
    pub changed: u32,
    pub unknown: u32,
    pub wrong: u32,
    pub formless: u32,
    pub impossible: u32,
    pub for_the_kernel: u32,
}

/// What files there are.
fn file(path: &str) -> Result<String, String> {
    match path {
        _ if path.starts_with("no") => Err(format!("{path}: there is none")),
        _ if path.starts_with("trace") => Ok("0s 10ms 1mbit\n1s - -\n2s repeat\n".into()),
        _ => Ok("1ms\n3ms\n".into()),
    }
}

/// Each line of `input` is a change of one way, and an option by its name.
///
/// # Panics
/// If what was changed is not shown as something that reads the same, or what was refused has changed something.
pub fn wan_options(input: &[u8]) -> Outcomes {
    let (mut way, mut outcomes) = (Way::default(), Outcomes::default());
    for line in String::from_utf8_lossy(input).lines() {
        let before = way.clone();
        match way.change(line, &file) {
            Ok(()) => {
                assert_eq!(way.check(), Ok(()));
                let (shown, mut again) = (way.to_string(), Way::default());
                assert_eq!((again.change(&shown, &file), &again), (Ok(()), &way), "{shown:?}");
                outcomes.changed += 1;
                outcomes.for_the_kernel += u32::from(netem::words(&way, 1500, "law").is_ok());
            }
            Err(error) => {
                assert_eq!(way, before, "{line:?} was refused");
                *match error {
                    OptionError::Unknown { .. } => &mut outcomes.unknown,
                    OptionError::Value { .. } => &mut outcomes.wrong,
                    OptionError::Form(_) => &mut outcomes.formless,
                    OptionError::Impossible(_) => &mut outcomes.impossible,
                } += 1;
            }
        }
        if let Some((name, value)) = line.split_once('=') {
            one(name, value);
        }
    }
    outcomes
}

/// An option alone, whose value may have blanks.
fn one(name: &str, value: &str) {
    let mut way = Way::default();
    if way.set(name, value, &file).is_err() {
        assert_eq!(way, Way::default(), "{name}={value:?} was refused");
        return;
    }
    // What is as usual is not shown.
    for (name, shown) in way.options() {
        let mut again = Way::default();
        assert_eq!((again.set(name, &shown, &file), &again), (Ok(()), &way), "{name}={shown:?}");
    }
}

/// Reads `input` as a file of jitter and as a trace: whether it is one.
///
/// # Panics
/// If what is read is not what stands there by a second way to read it.
pub fn wan_files(input: &[u8]) -> (bool, bool) {
    let text = String::from_utf8_lossy(input);
    let jitter = Jitter::parse("file:times", &|_| Ok(text.to_string()));
    if let Ok(Jitter::File { samples, .. }) = &jitter {
        let written: String = samples.iter().map(|time| format!("{}\n", verbena_terms::Lapse(*time))).collect();
        assert_eq!(Jitter::parse("file:times", &|_| Ok(written.clone())), jitter);
        let lines = text.lines().filter(|line| !line.split('#').next().unwrap_or_default().trim().is_empty());
        assert_eq!(lines.count(), samples.len());
    }
    (jitter.is_ok(), Trace::parse(&text).is_ok_and(|trace| trace.is_read_again()))
}

#[cfg(test)]
mod tests {
    use verbena_terms::testing::corpus;

    use super::*;

    #[test]
    fn options_of_the_corpus_are_read_as_they_are_shown() {
        let inputs = corpus("wan_options");
        let mut all = Outcomes::default();
        for input in &inputs {
            let one = wan_options(input);
            all.changed += one.changed;
            all.unknown += one.unknown;
            all.wrong += one.wrong;
            all.formless += one.formless;
            all.impossible += one.impossible;
            all.for_the_kernel += one.for_the_kernel;
        }
        let Outcomes { changed, unknown, wrong, formless, impossible, for_the_kernel } = all;
        assert!(inputs.len() >= 6 && changed >= 20 && wrong >= 15, "{all:?}");
        assert!(unknown >= 2 && formless >= 2 && impossible >= 6, "{all:?}");
        assert!(for_the_kernel >= 8 && changed - for_the_kernel >= 6, "{all:?}");
    }

    #[test]
    fn files_of_the_corpus_are_read_as_they_are_written() {
        let inputs = corpus("wan_files");
        let read: Vec<_> = inputs.iter().map(|input| wan_files(input)).collect();
        let count = |wanted| read.iter().filter(|read| **read == wanted).count();
        assert!(count((true, false)) >= 3 && count((false, true)) >= 4 && count((false, false)) >= 6, "{read:?}");
    }

    #[test]
    fn frames_of_the_corpus_are_changed_in_one_bit() {
        let inputs = corpus("wan_frame");
        let mut all = FrameOutcomes::default();
        for input in &inputs {
            let one = wan_frame(input);
            all.several += one.several;
            all.housekeeping += one.housekeeping;
            all.changed += one.changed;
            all.summed += one.summed;
        }
        let FrameOutcomes { several, housekeeping, changed, summed } = all;
        assert!(inputs.len() >= 9 && several >= 2 && housekeeping >= 3 && changed >= 6 && summed >= 2, "{all:?}");
        assert!((changed as usize) < inputs.len(), "{all:?}");
    }
}
