//! What goes wrong, as one struct of knobs; a seed draws them anew, so that some runs are calm and some are wild.

use crate::sim::dice::Dice;

pub const MS: u64 = 1_000_000;

/// Chances are per mille; times are nanoseconds of true time.
#[derive(Clone, Copy, Debug)]
pub struct Knobs {
    /// A message is lost.
    pub loss: u64,
    /// A message arrives twice.
    pub double: u64,
    /// A message takes up to two and a half leases.
    pub late: u64,
    /// An ordinary message takes at most so long.
    pub delay: u64,
    /// A disc takes at most so long.
    pub persist: u64,
    /// Services never prepare a view.
    pub stuck: u64,
    /// One of the faults below starts about so often.
    pub every: u64,
    /// Weights of the faults: crash, pause, cut, replacement, leaving.
    pub weights: [u64; 5],
    /// A node that starts crashes again at once.
    pub stillborn: u64,
    /// How far a clock's rate may be off, parts per million, either way.
    pub drift_ppm: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Crash,
    Pause,
    Cut,
    Replace,
    Leave,
}

impl Knobs {
    pub fn draw(dice: &mut Dice) -> Self {
        let often = |dice: &mut Dice, most: u64| if dice.chance(500) { dice.between(0, most) } else { 0 };
        Knobs {
            loss: often(dice, 200),
            double: often(dice, 200),
            late: often(dice, 100),
            delay: dice.between(1, 40) * MS,
            persist: dice.between(1, 60) * MS,
            stuck: often(dice, 100),
            every: if dice.chance(250) { dice.between(10_000, 30_000) } else { dice.between(300, 2000) } * MS,
            weights: [
                dice.between(1, 5),
                dice.between(1, 5),
                dice.between(1, 5),
                dice.between(0, 3),
                dice.between(0, 3),
            ],
            stillborn: 150,
            drift_ppm: 8000,
        }
    }

    /// Nothing goes wrong, and messages and discs take a millisecond at most.
    pub const CALM: Knobs = Knobs {
        loss: 0,
        double: 0,
        late: 0,
        delay: MS,
        persist: MS,
        stuck: 0,
        every: 0,
        weights: [0; 5],
        stillborn: 0,
        drift_ppm: 0,
    };

    pub fn fault(&self, dice: &mut Dice) -> Fault {
        let mut lot = dice.between(0, self.weights.iter().sum::<u64>() - 1);
        for (weight, fault) in
            self.weights.iter().zip([Fault::Crash, Fault::Pause, Fault::Cut, Fault::Replace, Fault::Leave])
        {
            if lot < *weight {
                return fault;
            }
            lot -= weight;
        }
        unreachable!("the lot is below the sum of the weights")
    }
}
