//! Plays a dialogue: the words of its language (see `dialogues`), and what it expects at which time.

use verbena_cluster::{EarlierLife, ParticipantEvent, Provider, Rules};
use verbena_terms::Rank;

use super::{FAULTS_END, World};
use crate::sim::dice::Dice;
use crate::sim::faults::{Knobs, MS};
use crate::sim::node::Input;

/// How often what is expected is looked at.
const LOOK_EVERY: u64 = MS;

/// What a line expects of a node.
enum Expected {
    /// It may act in a view that is in effect, and these lives are the members.
    Sees(Vec<String>),
    /// It has a lease, in whatever view.
    Leased,
    /// It may not act at all.
    Idle,
}

/// Plays a dialogue among so many nodes; the first thing that is not as it should be.
///
/// # Errors
/// If a checker complains or a line does not come true.
pub fn play(seed: u64, size: u32, rules: Rules, script: &str) -> Result<(), String> {
    let world = World::of(size, (seed, Dice::new(seed)), Knobs::CALM, Provider::Static, rules, false);
    let mut play = Play { world, since: 0, never: vec![] };
    for line in script.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            play.perform(line).map_err(|why| format!("at {} ms, {line:?}: {why}", play.world.now / MS))?;
        }
    }
    Ok(())
}

struct Play {
    world: World,
    /// When the last thing was done.
    since: u64,
    /// Members that no node may ever see together, from where the dialogue says so.
    never: Vec<Vec<String>>,
}

impl Play {
    fn perform(&mut self, line: &str) -> Result<(), String> {
        if let Some((action, expected)) = line.split_once(" : ") {
            return self.expect(action, expected);
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let world = &mut self.world;
        match words[..] {
            ["wait", span] => return self.run_to(self.world.now + length(span)),
            ["start", who] => {
                world.earlier = Some(EarlierLife::Ended);
                world.start(rank(who))?;
            }
            ["start", who, "unsure"] => {
                world.earlier = Some(EarlierLife::MayRun);
                world.start(rank(who))?;
            }
            ["kill", who] => world.kill(process(world, who), true),
            ["stop", who] => world.pause(process(world, who), FAULTS_END),
            ["continue", who] => world.resume(process(world, who))?,
            ["leave", who] => {
                let leave = ParticipantEvent::Leave { at_rest: true };
                world.input(process(world, who), Input::Participant(leave))?;
            }
            ["cut", from, to] => world.cut.push((rank(from), rank(to))),
            ["mend", from, to] => world.cut.retain(|way| *way != (rank(from), rank(to))),
            ["disc", who, "refuses"] => world.disc_refuses.push(rank(who)),
            ["disc", who, "writes"] => world.disc_refuses.retain(|refuses| *refuses != rank(who)),
            ["never", ref lives @ ..] => self.never.push(lives.iter().map(|life| (*life).to_owned()).collect()),
            _ => panic!("not understood: {line:?}"),
        }
        self.since = self.world.now;
        Ok(())
    }

    /// `after 1s to 2s : NODES EXPECTED` waits until it is so; `for 2s : NODES EXPECTED` wants it all that time.
    fn expect(&mut self, when: &str, what: &str) -> Result<(), String> {
        let (nodes, expected) = expectation(what);
        let is_it = |world: &World| nodes.iter().all(|node| is_so(world, *node, &expected));
        match when.split_whitespace().collect::<Vec<_>>()[..] {
            ["after", soonest, "to", latest] => {
                let (soonest, latest) = (self.since + length(soonest), self.since + length(latest));
                while !is_it(&self.world) {
                    if self.world.now >= latest {
                        return Err(format!("never: {}", shown(&self.world)));
                    }
                    self.run_to(self.world.now + LOOK_EVERY)?;
                }
                let took = self.world.now - self.since;
                if self.world.now < soonest {
                    return Err(format!("after {} ms already: {}", took / MS, shown(&self.world)));
                }
            }
            ["for", span] => {
                let until = self.world.now + length(span);
                while self.world.now < until {
                    self.run_to(self.world.now + LOOK_EVERY)?;
                    if !is_it(&self.world) {
                        return Err(format!("not any more: {}", shown(&self.world)));
                    }
                }
            }
            _ => panic!("not understood: {when:?}"),
        }
        Ok(())
    }

    fn run_to(&mut self, until: u64) -> Result<(), String> {
        assert!(until < FAULTS_END, "a dialogue is over before faults would end");
        let world = &mut self.world;
        while let Some(((at, _), _)) = world.queue.first_key_value()
            && *at <= until
        {
            let ((at, _), happening) = world.queue.pop_first().expect("it was there");
            world.now = at;
            world.happen(happening).and_then(|()| world.look())?;
        }
        world.now = until;
        for rank in world.nodes.keys() {
            if let Some(seen) = seen(world, *rank)
                && self.never.contains(&seen)
            {
                return Err(format!("{rank} sees {seen:?}"));
            }
        }
        Ok(())
    }
}

fn rank(who: &str) -> Rank {
    Rank(who.parse().unwrap_or_else(|_| panic!("no node: {who:?}")))
}

fn process(world: &World, who: &str) -> u64 {
    world.nodes[&rank(who)].process.unwrap_or_else(|| panic!("{who} does not run"))
}

fn length(span: &str) -> u64 {
    span.strip_suffix("ms").and_then(|number| number.parse::<u64>().ok()).expect("milliseconds") * MS
}

/// `1 2 see 1.1 2.1`, `1 2 leased`, `3 idle`.
fn expectation(what: &str) -> (Vec<Rank>, Expected) {
    let words: Vec<&str> = what.split_whitespace().collect();
    let nodes = |count: usize| words[..count].iter().map(|who| rank(who)).collect();
    let at = words.iter().position(|word| word.starts_with(|c: char| !c.is_ascii_digit())).expect("what is expected");
    let expected = match words[at] {
        "see" => Expected::Sees(words[at + 1..].iter().map(|life| (*life).to_owned()).collect()),
        "leased" => Expected::Leased,
        "idle" => Expected::Idle,
        other => panic!("not understood: {other:?}"),
    };
    (nodes(at), expected)
}

/// The members of the view in effect in which a node may act now; nothing if it may not act.
fn seen(world: &World, rank: Rank) -> Option<Vec<String>> {
    let node = &world.nodes[&rank];
    let process = world.processes.get(&node.process?)?;
    let number = process.word.in_effect_at(node.clock.local(world.now))?;
    let view = process.participant.view().filter(|view| view.number() == number)?;
    Some(view.members().iter().map(|member| member.incarnation.to_string()).collect())
}

fn is_so(world: &World, rank: Rank, expected: &Expected) -> bool {
    let node = &world.nodes[&rank];
    let process = node.process.and_then(|id| world.processes.get(&id));
    let valid = process.and_then(|process| process.word.valid_at(node.clock.local(world.now)));
    match expected {
        Expected::Sees(lives) => seen(world, rank).as_ref() == Some(lives),
        Expected::Leased => valid.is_some(),
        Expected::Idle => valid.is_none(),
    }
}

fn shown(world: &World) -> String {
    let all = world.nodes.keys().map(|rank| format!("{rank} sees {:?}", seen(world, *rank)));
    all.collect::<Vec<_>>().join("; ")
}
