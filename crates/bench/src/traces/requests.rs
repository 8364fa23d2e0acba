//! Generated traces: requests and updates as endless streams.

use rand_pcg::Pcg64;

use super::law::{LawError, Poisson, SizeLaw, Zipf, generator};
use super::record::{Request, Update};

// Each purpose draws from a sequence of its own, so that more of one does not shift another.
const REQUEST_OBJECTS: u128 = 1;
const REQUEST_TIMES: u128 = 2;
const UPDATE_OBJECTS: u128 = 3;
const UPDATE_TIMES: u128 = 4;

/// What a generated trace of requests follows: objects by a Zipf law, arrivals by a Poisson process, sizes by a law of
/// their own. The key of an object is its rank, from 1.
#[derive(Clone, Copy, Debug)]
pub struct RequestLaw {
    /// Which object is asked for.
    pub popularity: Zipf,
    /// When.
    pub arrivals: Poisson,
    /// How large it is.
    pub sizes: SizeLaw,
}

impl RequestLaw {
    /// The trace of `seed`. It does not end.
    pub fn requests(self, seed: u64) -> Requests {
        Requests {
            law: self,
            seed,
            at_s: 0.0,
            objects: generator(seed, REQUEST_OBJECTS),
            times: generator(seed, REQUEST_TIMES),
        }
    }
}

/// A generated trace of requests.
#[derive(Clone, Debug)]
pub struct Requests {
    law: RequestLaw,
    seed: u64,
    at_s: f64,
    objects: Pcg64,
    times: Pcg64,
}

impl Iterator for Requests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        self.at_s += self.law.arrivals.gap_s(&mut self.times);
        let object = self.law.popularity.draw(&mut self.objects);
        let size_bytes = self.law.sizes.size_bytes(self.seed, object);
        Some(Request { at_us: (self.at_s * 1e6) as u64, key: object.to_string(), size_bytes })
    }
}

/// What a generated stream of updates follows: objects by a Zipf law (of the same ranks as the requests'), at the times
/// of a Poisson process that has nothing to do with the requests'.
#[derive(Clone, Copy, Debug)]
pub struct UpdateLaw {
    /// Which object changes.
    pub popularity: Zipf,
    /// When.
    pub arrivals: Poisson,
}

impl UpdateLaw {
    /// A law by its numbers: `objects` of a Zipf law with exponent `alpha`, `rate_per_s` updates a second.
    pub fn new(objects: u64, alpha: f64, rate_per_s: f64) -> Result<Self, LawError> {
        Ok(UpdateLaw { popularity: Zipf::new(objects, alpha)?, arrivals: Poisson::new(rate_per_s)? })
    }

    /// The stream of `seed`. It does not end.
    pub fn updates(self, seed: u64) -> Updates {
        Updates { law: self, at_s: 0.0, objects: generator(seed, UPDATE_OBJECTS), times: generator(seed, UPDATE_TIMES) }
    }
}

/// A generated stream of updates.
#[derive(Clone, Debug)]
pub struct Updates {
    law: UpdateLaw,
    at_s: f64,
    objects: Pcg64,
    times: Pcg64,
}

impl Iterator for Updates {
    type Item = Update;

    fn next(&mut self) -> Option<Update> {
        self.at_s += self.law.arrivals.gap_s(&mut self.times);
        let object = self.law.popularity.draw(&mut self.objects);
        Some(Update { at_us: (self.at_s * 1e6) as u64, key: object.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_at_their_rate_and_in_order() {
        let law = RequestLaw {
            popularity: Zipf::new(100, 0.8).unwrap(),
            arrivals: Poisson::new(1_000.0).unwrap(),
            sizes: SizeLaw::Fixed { bytes: 10 },
        };
        let trace: Vec<Request> = law.requests(5).take(100_000).collect();
        assert!(trace.windows(2).all(|pair| pair[0].at_us <= pair[1].at_us));
        let seconds = trace[trace.len() - 1].at_us as f64 / 1e6;
        assert!((seconds - 100.0).abs() < 4.0 * 100_000f64.sqrt() / 1_000.0, "{seconds} s for 100,000 at 1,000/s");
    }

    #[test]
    fn updates_do_not_follow_the_requests() {
        let updates: Vec<Update> = UpdateLaw::new(50, 0.0, 10.0).unwrap().updates(5).take(1_000).collect();
        let law = RequestLaw {
            popularity: Zipf::new(50, 0.0).unwrap(),
            arrivals: Poisson::new(10.0).unwrap(),
            sizes: SizeLaw::Fixed { bytes: 1 },
        };
        let same = law.requests(5).zip(&updates).filter(|(request, update)| request.key == update.key).count();
        assert!((5..60).contains(&same), "{same} of 1,000 in common where chance gives 20");
    }
}
