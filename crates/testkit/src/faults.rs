//! What befalls nodes and ways in a [`World`](crate::world::World), and how it ends.

use verbena_fabric::sim::{Faults, Outage};

use crate::keeper::LEASE;
use crate::world::{Event, Run, Simulation, ms, rank};

crate::counts! {
    /// How often something struck.
    pub struct Struck {
        pub views: u64,
        pub crashes: u64,
        pub pauses: u64,
        /// Ways that were cut: between nodes, or to the keeper.
        pub cuts: u64,
    }
}

/// Lots of a strike that are of every simulation: one crash, two pauses, one cut between nodes, one from the keeper.
const LOTS: u64 = 5;

/// Something strikes a node, and the next strike is not far.
pub(crate) fn strike<S: Simulation>(simulation: &mut S) {
    let world = simulation.world();
    if world.is_calm {
        return;
    }
    let nodes = world.nodes.len();
    let at = world.dice.below(nodes as u64) as usize;
    let long = world.dice.between(ms(1), 3 * LEASE);
    simulation.strikes_too(at, long);
    let own = simulation.own_faults();
    let world = simulation.world();
    let me = world.nodes[at].me;
    let runs = world.nodes[at].service.is_some();
    match world.dice.below(LOTS + own) {
        0 if runs => {
            world.struck.crashes += 1;
            simulation.crashes(at);
            let world = simulation.world();
            world.fabric.crash(me);
            world.nodes[at].service = None;
            world.schedule(long, Event::Restart { at });
        }
        1 | 2 if runs && !world.fabric.is_paused(me) => {
            world.struck.pauses += 1;
            world.fabric.pause(me, long);
        }
        3 => {
            world.struck.cuts += 1;
            let other = rank((at + 1 + world.dice.below(nodes as u64 - 1) as usize) % nodes);
            if world.dice.below(2) == 0 {
                world.fabric.partition(me.rank, other);
            } else {
                world.fabric.partition_one_way(me.rank, other, Outage::Either);
            }
            world.schedule(long, Event::Heal { one: me.rank, other });
        }
        LOTS.. => simulation.own_fault(at, long),
        _ => {
            world.struck.cuts += 1;
            world.nodes[at].is_cut = true;
            world.schedule(long, Event::Reconnect { at });
        }
    }
    let world = simulation.world();
    let pause = world.dice.between(ms(10), ms(200));
    world.schedule(pause, Event::Strike);
}

/// Nothing strikes any more, all ways are open, and every node that is down or stands still goes on.
pub(crate) fn calm_down<S: Simulation>(simulation: &mut S) {
    let world = simulation.world();
    world.is_calm = true;
    world.fabric.set_faults(Faults::none());
    world.fabric.heal_all();
    for at in 0..world.nodes.len() {
        let world = simulation.world();
        let me = world.nodes[at].me;
        world.nodes[at].is_cut = false;
        if world.nodes[at].service.is_none() {
            simulation.start(at);
        } else if world.fabric.is_paused(me) {
            world.fabric.resume(me);
        }
    }
}
