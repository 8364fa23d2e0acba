//! Laws of jitter as the kernel draws them: one number of a table, all alike, by the jitter's scale (`tabledist` in net/sched/sch_netem.c).

use std::time::Duration;

use crate::backend::lacks;
use crate::jitter::{Jitter, lomax};
use crate::way::Impossible;

/// NETEM_DIST_SCALE: what stands for one of the scale.
const ONE: f64 = 8192.0;
/// Numbers in the table of a law: a power of two, so that the kernel's draw modulo their count is even.
const NUMBERS: u32 = 8192;
/// Numbers that a message of `tc` holds, with room for all else (TCA_BUF_MAX of iproute2).
const MOST_NUMBERS: usize = 16_000;
/// The kernel's scale is an `int` of nanoseconds.
const LARGEST_SCALE_US: f64 = 2_147_483.0;

/// What is added to a delay, of which one number is drawn for each packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    /// What is added besides, in microseconds.
    pub middle_us: u64,
    /// What 8192 stands for, in microseconds: at least one.
    pub scale_us: u64,
    /// In no order.
    pub numbers: Vec<i16>,
}

impl Table {
    /// That of a jitter. `Ok(None)` if it adds nothing.
    pub fn of(jitter: &Jitter) -> Result<Option<Self>, Impossible> {
        if let Jitter::File { samples, .. } = jitter
            && samples.len() > MOST_NUMBERS
        {
            return Err(lacks("jitter", &format!("a file may have {MOST_NUMBERS} times, and not {}", samples.len())));
        }
        let added_us = added_us(jitter);
        let (least, most) =
            added_us.iter().fold((f64::MAX, f64::MIN), |(least, most), us| (least.min(*us), most.max(*us)));
        // For a law that goes both ways alike, this is only what rounding loses.
        let middle_us = ((least + most) / 2.0).round().max(0.0);
        let farthest = (most - middle_us).max(middle_us - least);
        if most == 0.0 && least == 0.0 {
            return Ok(None);
        }
        let scale_us = (farthest * ONE / f64::from(i16::MAX)).ceil().max(1.0);
        if scale_us > LARGEST_SCALE_US {
            return Err(lacks("jitter", "it is wider than netem's, which goes some 8 seconds less or more"));
        }
        // All fit: the scale was made for the farthest.
        let number = |us: &f64| ((us - middle_us) * ONE / scale_us).round() as i16;
        let numbers = added_us.iter().map(number).collect();
        Ok(Some(Table { middle_us: middle_us as u64, scale_us: scale_us as u64, numbers }))
    }

    /// As `tc` reads it.
    pub fn text(&self) -> String {
        self.numbers.iter().map(|number| format!("{number}\n")).collect()
    }
}

/// What is added to the delays of packets, in microseconds: as many times as it is that often.
fn added_us(jitter: &Jitter) -> Vec<f64> {
    let us = |time: &Duration| time.as_secs_f64() * 1e6;
    // The middle of each part of the law that is as probable as the others.
    let parts = (0..NUMBERS).map(|number| (f64::from(number) + 0.5) / f64::from(NUMBERS));
    match jitter {
        Jitter::Uniform { width } => parts.map(|part| us(width) * (2.0 * part - 1.0)).collect(),
        Jitter::Normal { deviation } => normal().into_iter().map(|by| us(deviation) * by).collect(),
        Jitter::Pareto { mean } => parts.map(|part| us(mean) * lomax(part)).collect(),
        Jitter::File { samples, .. } => samples.iter().map(us).collect(),
    }
}

/// The same parts of the standard normal law.
fn normal() -> Vec<f64> {
    let mut at = 0.0;
    let upper = (NUMBERS / 2..NUMBERS).map(|number| {
        let part = (f64::from(number) + 0.5) / f64::from(NUMBERS);
        // Newton from the part before, which is below it: here the law is concave, so no step goes too far.
        for _ in 0..8 {
            let density = libm::exp(-at * at / 2.0) / std::f64::consts::TAU.sqrt();
            at += (part - 0.5 * libm::erfc(-at / std::f64::consts::SQRT_2)) / density;
        }
        at
    });
    upper.flat_map(|by: f64| [by, -by]).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    /// Mean and standard deviation of what a table adds, the least and the most, in ms: as `tabledist` computes it.
    fn added(text: &str, file: &str) -> (f64, f64, f64, f64) {
        let jitter = Jitter::parse(text, &|_| Ok(file.into())).unwrap();
        let table = Table::of(&jitter).unwrap().unwrap();
        let ms = |number: &i16| (table.middle_us as f64 + f64::from(*number) * table.scale_us as f64 / 8192.0) / 1e3;
        let all: Vec<f64> = table.numbers.iter().map(ms).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let variance = all.iter().map(|ms| (ms - mean).powi(2)).sum::<f64>() / all.len() as f64;
        let extremes = all.iter().fold((f64::MAX, f64::MIN), |(least, most), ms| (least.min(*ms), most.max(*ms)));
        (mean, variance.sqrt(), extremes.0, extremes.1)
    }

    #[test]
    fn tables_have_the_mean_and_the_spread_of_their_law() {
        let (mean, deviation, least, most) = added("3ms", "");
        assert!(mean.abs() < 0.001 && (deviation - 1.732).abs() < 0.001, "{mean} {deviation}");
        assert!(least > -3.0 && least < -2.998 && most < 3.0 && most > 2.998, "{least} {most}");
        let (mean, deviation, least, most) = added("normal:2ms", "");
        assert!(mean.abs() < 0.001 && (deviation - 2.0).abs() < 0.002, "{mean} {deviation}");
        assert!(least < -7.6 && most > 7.6, "{least} {most}");
        // Its tail ends with the last part.
        let (mean, deviation, least, most) = added("pareto:1ms", "");
        assert!((mean - 1.0).abs() < 0.005 && deviation > 1.4, "{mean} {deviation}");
        assert!((0.0..0.001).contains(&least) && (48.0..49.0).contains(&most), "{least} {most}");
        let (mean, deviation, least, most) = added("file:f", "1ms\n3ms\n3ms\n5ms\n");
        assert!((mean - 3.0).abs() < 0.001 && (deviation - 2f64.sqrt()).abs() < 0.001, "{mean} {deviation}");
        assert!((least - 1.0).abs() < 0.001 && (most - 5.0).abs() < 0.001, "{least} {most}");
        // As narrow as microseconds.
        let (mean, deviation, ..) = added("normal:3us", "");
        assert!(mean.abs() < 1e-5 && (deviation - 0.003).abs() < 1e-5, "{mean} {deviation}");
    }

    #[test]
    fn the_quantiles_of_the_normal_law_are_those_of_the_books() {
        let mut all = normal();
        all.sort_by(f64::total_cmp);
        // Of 8192 the part 0.975 lies between these two.
        assert!((all[7986] - 1.95965).abs() < 2e-3 && (all[8191] - 3.8415).abs() < 1e-2, "{} {}", all[7986], all[8191]);
    }

    #[test]
    fn what_a_table_cannot_hold_is_refused() {
        let of = |text: &str, lines: usize| {
            let file = "1ms\n2ms\n".repeat(lines / 2);
            Table::of(&Jitter::parse(text, &|_| Ok(file.clone())).unwrap())
                .map(|table| table.map(|table| table.numbers.len()))
        };
        assert_eq!(of("0ms", 0), Ok(None));
        assert_eq!(of("file:f", 16_000), Ok(Some(16_000)));
        assert!(of("file:f", 16_002).unwrap_err().to_string().contains("16000 times, and not 16002"));
        assert!(of("pareto:1s", 0).unwrap_err().to_string().starts_with("jitter: the backend kernel cannot do it"));
        let one = Table::of(&Jitter::parse("file:f", &|_| Ok("4ms\n".into())).unwrap()).unwrap().unwrap();
        assert_eq!(
            (one.middle_us, one.scale_us, one.numbers.as_slice(), one.text().as_str()),
            (4000, 1, &[0][..], "0\n")
        );
    }
}
