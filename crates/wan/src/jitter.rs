//! Laws by which the delay of packets varies.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use verbena_terms::Lapse;

use crate::chance::Chance;

/// The exponent of the Pareto law: of the laws with a mean and a variance, one with a heavy tail.
const PARETO_EXPONENT: f64 = 3.0;
/// A Pareto law has no longest delay; here it ends at this many times its mean (one draw in a hundred million is cut).
const LONGEST_PARETO: f64 = 1000.0;
/// Lines of a file of delays.
const MOST_SAMPLES: usize = 1_000_000;

/// How much longer or shorter than the others one packet takes.
#[derive(Clone, Debug, PartialEq)]
pub enum Jitter {
    /// Anything from `-width` to `+width`, all alike.
    Uniform {
        /// At most the delay of the way.
        width: Duration,
    },
    /// Normal around the delay; no packet arrives before it was sent.
    Normal {
        /// Standard deviation.
        deviation: Duration,
    },
    /// Pareto (Lomax, exponent 3): most take little more than the delay, a few very much more. Never less.
    Pareto {
        /// What is added in the mean.
        mean: Duration,
    },
    /// One of the times in a file is added, all lines alike.
    File {
        /// Where it was read.
        path: PathBuf,
        /// What stands in it.
        samples: Arc<[Duration]>,
    },
}

impl Jitter {
    /// The delay of the next packet, around `delay`.
    pub(crate) fn draw(&self, delay: Duration, chance: &mut Chance) -> Duration {
        let around = |by_s: f64| Duration::try_from_secs_f64(delay.as_secs_f64() + by_s).unwrap_or_default();
        match self {
            Jitter::Uniform { width } => around(width.as_secs_f64() * (2.0 * chance.unit() - 1.0)),
            Jitter::Normal { deviation } => around(deviation.as_secs_f64() * chance.normal()),
            Jitter::Pareto { mean } => delay + mean.mul_f64(lomax(chance.unit())),
            Jitter::File { samples, .. } => delay + samples[chance.below(samples.len() as u64) as usize],
        }
    }

    /// The most that a packet takes more than the delay, of a law that has a longest.
    pub(crate) fn most(&self) -> Option<Duration> {
        match self {
            Jitter::Uniform { width } => Some(*width),
            Jitter::File { samples, .. } => samples.iter().max().copied(),
            Jitter::Normal { .. } | Jitter::Pareto { .. } => None,
        }
    }

    /// Reads `TIME` (uniform), `uniform:TIME`, `normal:TIME`, `pareto:TIME` or `file:PATH`.
    pub(crate) fn parse(text: &str, read: &dyn Fn(&str) -> Result<String, String>) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("file:") {
            let samples = samples(&read(path)?).map_err(|problem| format!("{path}: {problem}"))?;
            return Ok(Jitter::File { path: path.into(), samples });
        }
        let (law, width) = text.split_once(':').unwrap_or(("uniform", text));
        let expected = "a time such as \"2ms\", or \"normal:2ms\", \"pareto:2ms\", \"file:PATH\"";
        let Lapse(width) = width.parse().map_err(|_| format!("{text:?} is not {expected}"))?;
        match law {
            "uniform" => Ok(Jitter::Uniform { width }),
            "normal" => Ok(Jitter::Normal { deviation: width }),
            "pareto" => Ok(Jitter::Pareto { mean: width }),
            _ => Err(format!("{law:?} is no law of jitter; expected {expected}")),
        }
    }
}

/// What of the Pareto law (Lomax, mean 1) is at most as much in this part of all draws, less than 1.
pub(crate) fn lomax(part: f64) -> f64 {
    let draw = libm::pow(1.0 - part, -1.0 / PARETO_EXPONENT) - 1.0;
    (draw * (PARETO_EXPONENT - 1.0)).min(LONGEST_PARETO)
}

/// One time a line; empty lines and what follows `#` are passed over.
fn samples(text: &str) -> Result<Arc<[Duration]>, String> {
    let mut samples = vec![];
    for (line, number) in text.lines().zip(1..) {
        let time = line.split('#').next().unwrap_or_default().trim();
        if time.is_empty() {
            continue;
        }
        let Lapse(time) = time.parse().map_err(|problem| format!("line {number}: {problem}"))?;
        samples.push(time);
        if samples.len() > MOST_SAMPLES {
            return Err(format!("line {number}: there may be {MOST_SAMPLES} times"));
        }
    }
    if samples.is_empty() { Err("there is no time in it".into()) } else { Ok(samples.into()) }
}

impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Jitter::Uniform { width } => write!(f, "uniform:{}", Lapse(*width)),
            Jitter::Normal { deviation } => write!(f, "normal:{}", Lapse(*deviation)),
            Jitter::Pareto { mean } => write!(f, "pareto:{}", Lapse(*mean)),
            Jitter::File { path, .. } => write!(f, "file:{}", path.display()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use crate::chance::Purpose;

    const MS: Duration = Duration::from_millis(1);

    /// A million draws around 10 ms: mean and standard deviation in ms, the least, the most.
    fn drawn(text: &str) -> (f64, f64, Duration, Duration) {
        let jitter = Jitter::parse(text, &|_| Ok("1ms # one\n\n3ms\n".into())).unwrap();
        let mut chance = Chance::new(11, 0, Purpose::Jitter);
        let draws: Vec<Duration> = (0..1_000_000).map(|_| jitter.draw(10 * MS, &mut chance)).collect();
        let ms = |time: &Duration| time.as_secs_f64() * 1e3;
        let mean = draws.iter().map(ms).sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|time| (ms(time) - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        (mean, variance.sqrt(), *draws.iter().min().unwrap(), *draws.iter().max().unwrap())
    }

    #[test]
    fn each_law_has_its_mean_and_spread() {
        // 3.89 standard errors of the mean hold in 99.99% of all seeds.
        let (mean, deviation, least, most) = drawn("3ms");
        assert!(
            (mean - 10.0).abs() < 3.89 * 3.0 / 3f64.sqrt() / 1e3 && (deviation - 1.732).abs() < 0.01,
            "{mean} {deviation}"
        );
        assert!(least >= 7 * MS && most <= 13 * MS && least < 7 * MS + MS / 100 && most > 13 * MS - MS / 100);
        let (mean, deviation, least, most) = drawn("normal:2ms");
        assert!((mean - 10.0).abs() < 3.89 * 2.0 / 1e3 && (deviation - 2.0).abs() < 0.01, "{mean} {deviation}");
        assert!(least < 2 * MS && most > 18 * MS, "{least:?} {most:?}");
        let (mean, deviation, least, most) = drawn("pareto:1ms");
        assert!((mean - 11.0).abs() < 3.89 * 3f64.sqrt() / 1e3 * 1.2, "{mean}");
        assert!(deviation > 1.4 && least >= 10 * MS && most > 60 * MS, "{deviation} {least:?} {most:?}");
        let (mean, deviation, least, most) = drawn("file:times");
        assert!((mean - 12.0).abs() < 3.89 / 1e3 && (deviation - 1.0).abs() < 0.01, "{mean} {deviation}");
        assert_eq!((least, most), (11 * MS, 13 * MS));
    }

    #[test]
    fn no_packet_arrives_before_it_was_sent() {
        let mut chance = Chance::new(1, 0, Purpose::Jitter);
        let jitter = Jitter::Normal { deviation: 5 * MS };
        let draws: Vec<Duration> = (0..10_000).map(|_| jitter.draw(MS, &mut chance)).collect();
        assert!(draws.contains(&Duration::ZERO) && draws.iter().max() > Some(&(10 * MS)));
    }

    #[test]
    fn a_file_with_mistakes_names_the_line() {
        let of = |text: &'static str| Jitter::parse("file:f", &|_| Ok(text.into())).unwrap_err();
        assert_eq!(of("1ms\nfoo\n"), "f: line 2: \"foo\" is not a time such as \"250ms\" or \"2s\"");
        assert_eq!(of("# nothing\n"), "f: there is no time in it");
        let unread = Jitter::parse("file:f", &|path| Err(format!("{path}: no such file"))).unwrap_err();
        assert_eq!(unread, "f: no such file");
        assert!(Jitter::parse("cauchy:1ms", &|_| Ok(String::new())).unwrap_err().contains("no law"));
    }
}
