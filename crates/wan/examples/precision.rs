//! Prints how far delays are from what was asked: by mode and delay, the error of the added one-way delay, median and 99 of a hundred, in
//! microseconds. The same path without a router in between is taken off. For root:
//!
//! ```text
//! cargo run --release -p verbena-wan --example precision [ROUNDS]
//! ```

use std::error::Error;
use std::time::Duration;

use verbena_namespaces::{End, Namespace};
use verbena_wan::probe::{Probe, quantile};
use verbena_wan::router::Mode;
use verbena_wan::{Plan, Wan, Way};

/// The time between two datagrams, so that each finds an idle path.
const PAUSE: Duration = Duration::from_micros(300);

fn measure(probe: &mut Probe, rounds: u32) -> Result<Vec<Duration>, Box<dyn Error>> {
    let mut took = vec![];
    for _ in 0..rounds {
        took.extend(probe.one_way(Duration::from_secs(1))?);
        std::thread::sleep(PAUSE);
    }
    took.sort();
    if took.len() * 100 < rounds as usize * 99 { Err("packets are missing".into()) } else { Ok(took) }
}

fn main() -> Result<(), Box<dyn Error>> {
    let rounds: u32 = std::env::args().nth(1).map_or(Ok(1000), |rounds| rounds.parse())?;
    let (here, there) = (Namespace::new()?, Namespace::new()?);
    here.link(End::new("near", [10, 77, 0, 1]), &there, End::new("far", [10, 77, 0, 2]))?;
    let plain = measure(&mut Probe::new(&here, &there, [10, 77, 0, 2].into())?, rounds)?;
    let base = quantile(&plain, 0.5);
    println!("the path alone: median {:.1} us, p99 {:.1} us", us(base), us(quantile(&plain, 0.99)));
    println!("mode      asked us   error us: median       p99");
    for mode in [Mode::Precise, Mode::Sleep] {
        for asked_us in [0, 10, 100, 1000, 10_000, 100_000] {
            let asked = Duration::from_micros(asked_us);
            let way = Way { delay: asked, ..Way::default() };
            let wan = Wan::up(Plan::two_sites([way.clone(), way], mode, 1))?;
            let address = wan.plan().sites[1].addresses[0];
            let mut probe = Probe::new(wan.site("a")?, wan.site("b")?, address)?;
            let some = rounds.min(u32::try_from(5_000_000 / asked_us.max(1))?).max(20);
            let took = measure(&mut probe, some)?;
            let error = |part| us(quantile(&took, part)) - us(base) - asked_us as f64;
            println!(
                "{:<8} {asked_us:>9}   {:>16.1} {:>9.1}",
                format!("{mode:?}").to_lowercase(),
                error(0.5),
                error(0.99)
            );
        }
    }
    Ok(())
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
