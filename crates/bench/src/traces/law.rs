//! The laws that generated traces follow, each drawn from a seeded PCG64.
//!
//! Logarithms and exponentials come from the crate `libm`, which is plain Rust and rounds the same everywhere; the C
//! library's differ in the last digit between versions, and a trace would with them.

use std::fmt;
use std::str::FromStr;

use rand_core::Rng;
use rand_pcg::Pcg64;
use thiserror::Error;

/// More objects than this would not have distinct ranks in a double.
const MOST_OBJECTS: u64 = 1 << 40;

/// The largest object a size law gives, in bytes: 1 TiB.
const LARGEST_BYTES: u64 = 1 << 40;

/// A law that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what}")]
pub struct LawError {
    what: String,
}

impl LawError {
    fn new(what: impl Into<String>) -> Self {
        LawError { what: what.into() }
    }
}

/// The Zipf law over objects 1 to N: the object of rank k is asked for with a probability proportional to
/// 1 / k^alpha. `alpha` 0 asks for all alike.
///
/// Drawn by rejection-inversion (W. Hörmann, G. Derflinger, "Rejection-inversion to generate variates from monotone
/// discrete distributions", ACM TOMACS 6(3), 1996): exact, a bounded number of draws on average for every alpha, and no
/// table, so a billion objects cost what ten do.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    objects: u64,
    alpha: f64,
    integral_first: f64,
    integral_last: f64,
    accept_below: f64,
}

impl Zipf {
    /// The law over `objects` objects (1 to 2^40) with exponent `alpha` (0 to 20).
    pub fn new(objects: u64, alpha: f64) -> Result<Self, LawError> {
        if !(1..=MOST_OBJECTS).contains(&objects) {
            return Err(LawError::new(format!("a Zipf law has 1 to 2^40 objects, not {objects}")));
        }
        if !(0.0..=20.0).contains(&alpha) {
            return Err(LawError::new(format!("the exponent of a Zipf law is 0 to 20, not {alpha}")));
        }
        let mut law = Zipf { objects, alpha, integral_first: 0.0, integral_last: 0.0, accept_below: 0.0 };
        law.integral_first = law.integral(1.5) - 1.0;
        law.integral_last = law.integral(objects as f64 + 0.5);
        law.accept_below = 2.0 - law.integral_inverse(law.integral(2.5) - law.density(2.0));
        Ok(law)
    }

    /// How many objects it has.
    pub fn objects(&self) -> u64 {
        self.objects
    }

    /// Draws an object: its rank, 1 for the most popular.
    pub fn draw(&self, random: &mut Pcg64) -> u64 {
        loop {
            let u = self.integral_last + uniform(random) * (self.integral_first - self.integral_last);
            let x = self.integral_inverse(u);
            let rank = (x + 0.5).floor().clamp(1.0, self.objects as f64);
            if rank - x <= self.accept_below || u >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u64;
            }
        }
    }

    /// x^-alpha: what a rank weighs.
    fn density(&self, x: f64) -> f64 {
        libm::exp(-self.alpha * libm::log(x))
    }

    /// An antiderivative of the density: (x^(1-alpha) - 1) / (1 - alpha), and ln x where alpha is 1.
    fn integral(&self, x: f64) -> f64 {
        let log = libm::log(x);
        expm1_over_x((1.0 - self.alpha) * log) * log
    }

    fn integral_inverse(&self, y: f64) -> f64 {
        // Rounding may leave the domain of the logarithm by a hair.
        let t = (y * (1.0 - self.alpha)).max(-1.0);
        libm::exp(log1p_over_x(t) * y)
    }
}

/// (e^x - 1) / x, also around 0.
fn expm1_over_x(x: f64) -> f64 {
    if x.abs() > 1e-8 { libm::expm1(x) / x } else { 1.0 + x * 0.5 * (1.0 + x / 3.0 * (1.0 + 0.25 * x)) }
}

/// ln(1 + x) / x, also around 0.
fn log1p_over_x(x: f64) -> f64 {
    if x.abs() > 1e-8 { libm::log1p(x) / x } else { 1.0 - x * (0.5 - x * (1.0 / 3.0 - 0.25 * x)) }
}

/// How large objects are. An object's size depends on the seed and the object alone: it is the same in every trace of
/// that seed, and has nothing to do with how popular the object is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SizeLaw {
    /// `fixed:BYTES`: all alike.
    Fixed {
        /// That size.
        bytes: u64,
    },
    /// `uniform:FROM:TO`: every size from `from` to `to`, both included, alike.
    Uniform {
        /// The smallest size.
        from_bytes: u64,
        /// The largest size.
        to_bytes: u64,
    },
    /// `lognormal:MEDIAN:SIGMA`: the logarithm of the size is normal around the median's with standard deviation
    /// sigma; rounded to bytes, at least 1 and at most 2^40.
    LogNormal {
        /// Half of the objects are larger.
        median_bytes: u64,
        /// Standard deviation of the natural logarithm, 0 to 10.
        sigma: f64,
    },
}

impl SizeLaw {
    /// The size of `object` in a trace of `seed`, in bytes.
    pub fn size_bytes(&self, seed: u64, object: u64) -> u64 {
        match *self {
            SizeLaw::Fixed { bytes } => bytes,
            SizeLaw::Uniform { from_bytes, to_bytes } => {
                let sizes = to_bytes - from_bytes + 1;
                // The high half of a product is uniform to within sizes / 2^64.
                from_bytes + ((u128::from(mixed(seed, object, 0)) * u128::from(sizes)) >> 64) as u64
            }
            SizeLaw::LogNormal { median_bytes, sigma } => {
                let size = median_bytes as f64 * libm::exp(sigma * normal(seed, object));
                size.round().clamp(1.0, LARGEST_BYTES as f64) as u64
            }
        }
    }
}

impl FromStr for SizeLaw {
    type Err = LawError;

    fn from_str(text: &str) -> Result<Self, LawError> {
        let bytes = |word: &str| match word.parse::<u64>() {
            Ok(bytes) if (1..=LARGEST_BYTES).contains(&bytes) => Ok(bytes),
            _ => Err(LawError::new(format!("`{word}` in `{text}` is not a number of bytes from 1 to 2^40"))),
        };
        match *text.split(':').collect::<Vec<_>>() {
            ["fixed", size] => Ok(SizeLaw::Fixed { bytes: bytes(size)? }),
            ["uniform", from, to] => {
                let (from_bytes, to_bytes) = (bytes(from)?, bytes(to)?);
                if from_bytes > to_bytes {
                    return Err(LawError::new(format!("`{text}` ends below its beginning")));
                }
                Ok(SizeLaw::Uniform { from_bytes, to_bytes })
            }
            ["lognormal", median, sigma] => match sigma.parse::<f64>() {
                Ok(sigma) if (0.0..=10.0).contains(&sigma) => {
                    Ok(SizeLaw::LogNormal { median_bytes: bytes(median)?, sigma })
                }
                _ => Err(LawError::new(format!("`{sigma}` in `{text}` is not a sigma from 0 to 10"))),
            },
            _ => Err(LawError::new(format!(
                "`{text}` is not a size law: write fixed:BYTES, uniform:FROM:TO or lognormal:MEDIAN:SIGMA"
            ))),
        }
    }
}

impl fmt::Display for SizeLaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SizeLaw::Fixed { bytes } => write!(f, "fixed:{bytes}"),
            SizeLaw::Uniform { from_bytes, to_bytes } => write!(f, "uniform:{from_bytes}:{to_bytes}"),
            SizeLaw::LogNormal { median_bytes, sigma } => write!(f, "lognormal:{median_bytes}:{sigma}"),
        }
    }
}

/// Arrivals at a rate: a Poisson process, so the gaps are exponential with mean 1 / rate and independent.
#[derive(Clone, Copy, Debug)]
pub struct Poisson {
    rate_per_s: f64,
}

impl Poisson {
    /// Arrivals at `rate_per_s`: more than 0, at most 10^9.
    pub fn new(rate_per_s: f64) -> Result<Self, LawError> {
        if rate_per_s > 0.0 && rate_per_s <= 1e9 {
            Ok(Poisson { rate_per_s })
        } else {
            Err(LawError::new(format!("a rate is more than 0 and at most 10^9 a second, not {rate_per_s}")))
        }
    }

    /// Draws the time until the next arrival, in seconds.
    pub fn gap_s(&self, random: &mut Pcg64) -> f64 {
        // 1 - u is never 0.
        -libm::log(1.0 - uniform(random)) / self.rate_per_s
    }
}

/// A generator for one purpose of one seed: purposes draw from sequences of their own.
pub(crate) fn generator(seed: u64, purpose: u128) -> Pcg64 {
    Pcg64::new(u128::from(seed), purpose)
}

/// Uniform in [0, 1), of 53 random bits.
fn uniform(random: &mut Pcg64) -> f64 {
    unit(random.next_u64())
}

fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// A standard normal value that belongs to `object` (Box and Muller).
fn normal(seed: u64, object: u64) -> f64 {
    let radius = (-2.0 * libm::log(1.0 - unit(mixed(seed, object, 0)))).sqrt();
    radius * libm::cos(std::f64::consts::TAU * unit(mixed(seed, object, 1)))
}

/// 64 bits that belong to (seed, object, draw): the finaliser of SplitMix64 over each of the three in turn.
fn mixed(seed: u64, object: u64, draw: u64) -> u64 {
    [object, draw].into_iter().fold(scrambled(seed), |state, word| scrambled(state ^ scrambled(word)))
}

fn scrambled(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pearson's statistic for `observed` against `expected` counts, divided so that 1 is what chance gives: its
    /// standard deviation is sqrt(2 / degrees of freedom).
    fn chi_square_per_degree(observed: &[u64], expected: &[f64]) -> f64 {
        assert!(expected.iter().all(|&count| count >= 5.0), "bins too small for the test");
        let sum: f64 = observed.iter().zip(expected).map(|(&o, e)| (o as f64 - e).powi(2) / e).sum();
        sum / (observed.len() - 1) as f64
    }

    #[test]
    fn zipf_follows_its_law() {
        const DRAWS: u64 = 400_000;
        for (seed, alpha) in [(1, 0.0), (2, 0.5), (3, 0.9), (4, 1.0), (5, 1.3), (6, 2.0)] {
            let objects = 60;
            let law = Zipf::new(objects, alpha).unwrap();
            let mut random = generator(seed, 1);
            let mut observed = vec![0; objects as usize];
            (0..DRAWS).for_each(|_| observed[law.draw(&mut random) as usize - 1] += 1);

            let weights: Vec<f64> = (1..=objects).map(|rank| (rank as f64).powf(-alpha)).collect();
            let whole: f64 = weights.iter().sum();
            let expected: Vec<f64> = weights.iter().map(|weight| weight / whole * DRAWS as f64).collect();
            let statistic = chi_square_per_degree(&observed, &expected);
            assert!(statistic < 1.0 + 4.0 * (2.0f64 / 59.0).sqrt(), "alpha {alpha}: {statistic}");
        }
    }

    #[test]
    fn zipf_keeps_its_law_over_many_objects() {
        // The share of the ten most popular of a million, against the sum of the law.
        let (objects, alpha, draws) = (1_000_000, 0.9, 200_000);
        let law = Zipf::new(objects, alpha).unwrap();
        let mut random = generator(9, 1);
        let top = (0..draws).filter(|_| law.draw(&mut random) <= 10).count() as f64 / f64::from(draws);
        let weight = |ranks| (1..=ranks).map(|rank| (rank as f64).powf(-alpha)).sum::<f64>();
        let expected = weight(10) / weight(objects);
        let deviation = (expected * (1.0 - expected) / f64::from(draws)).sqrt();
        assert!((top - expected).abs() < 4.0 * deviation, "{top} for {expected}");
    }

    #[test]
    fn impossible_laws_are_refused() {
        for (objects, alpha) in [(0, 1.0), (MOST_OBJECTS + 1, 1.0), (5, -0.1), (5, f64::NAN), (5, f64::INFINITY)] {
            assert!(Zipf::new(objects, alpha).is_err(), "{objects} {alpha}");
        }
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Poisson::new(rate).is_err(), "{rate}");
        }
        assert_eq!(Zipf::new(1, 1.0).unwrap().draw(&mut generator(1, 1)), 1);
    }

    #[test]
    fn gaps_are_exponential() {
        const DRAWS: usize = 200_000;
        const BINS: usize = 50;
        let law = Poisson::new(250.0).unwrap();
        let mut random = generator(7, 2);
        let mut observed = [0; BINS];
        for _ in 0..DRAWS {
            let share = 1.0 - (-law.gap_s(&mut random) * 250.0).exp();
            observed[((share * BINS as f64) as usize).min(BINS - 1)] += 1;
        }
        let statistic = chi_square_per_degree(&observed, &[DRAWS as f64 / BINS as f64; BINS]);
        assert!(statistic < 1.0 + 4.0 * (2.0f64 / 49.0).sqrt(), "{statistic}");
    }

    #[test]
    fn sizes_follow_their_law() {
        const OBJECTS: u64 = 100_000;
        let uniform: SizeLaw = "uniform:200:219".parse().unwrap();
        let mut observed = [0; 20];
        (0..OBJECTS).for_each(|object| observed[uniform.size_bytes(3, object) as usize - 200] += 1);
        let statistic = chi_square_per_degree(&observed, &[OBJECTS as f64 / 20.0; 20]);
        assert!(statistic < 1.0 + 4.0 * (2.0f64 / 19.0).sqrt(), "uniform: {statistic}");

        let lognormal: SizeLaw = "lognormal:1000000:1.5".parse().unwrap();
        // Quantiles of the standard normal law at 10, 25, 50, 75 and 90 per cent.
        let bounds = [-1.281_552, -0.674_490, 0.0, 0.674_490, 1.281_552].map(|z: f64| 1e6 * (1.5 * z).exp());
        let mut observed = [0; 6];
        for object in 0..OBJECTS {
            let size = lognormal.size_bytes(3, object) as f64;
            observed[bounds.iter().filter(|&&bound| size > bound).count()] += 1;
        }
        let expected = [0.1, 0.15, 0.25, 0.25, 0.15, 0.1].map(|share| share * OBJECTS as f64);
        let statistic = chi_square_per_degree(&observed, &expected);
        assert!(statistic < 1.0 + 4.0 * (2.0f64 / 5.0).sqrt(), "lognormal: {statistic}");
    }

    #[test]
    fn a_size_belongs_to_its_object_and_seed() {
        let law: SizeLaw = "lognormal:8192:1.2".parse().unwrap();
        assert_eq!(law.size_bytes(1, 77), law.size_bytes(1, 77));
        let differing = (0..100).filter(|&object| law.size_bytes(1, object) != law.size_bytes(2, object)).count();
        assert!(differing > 95, "{differing}");
    }

    #[test]
    fn size_laws_are_read_and_written() {
        for text in ["fixed:8192", "uniform:200:1000000", "lognormal:8192:1.2"] {
            assert_eq!(text.parse::<SizeLaw>().unwrap().to_string(), text);
        }
        for (text, told) in [
            ("8192", "is not a size law"),
            ("fixed:0", "not a number of bytes"),
            ("fixed:8k", "`8k` in `fixed:8k`"),
            ("uniform:9:3", "ends below its beginning"),
            ("lognormal:8192:-1", "not a sigma"),
            ("lognormal:8192", "is not a size law"),
        ] {
            let refusal = text.parse::<SizeLaw>().unwrap_err().to_string();
            assert!(refusal.contains(told), "{text}: {refusal}");
        }
    }
}
