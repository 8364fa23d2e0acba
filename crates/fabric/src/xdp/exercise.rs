//! Both parsers of frames, fed with anything: the caller's with answers, the program with requests. The tag is put right first, or little would
//! be looked at.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use verbena_terms::{Incarnation, Time, ViewNumber};

use super::ledger::Ledger;
use super::node::Node;
use super::program::{Program, Verdict};
use super::share::Share;
use super::trial;
use super::wire::{Datagram, FrameWriter, TagKey, tag};
use crate::ending::Endings;
use crate::error::Result;
use crate::operation::{Batch, Operation, OperationId};
use crate::pool::Pool;
use crate::region::{RegionKey, Rights, Secret};
use crate::supply::{Life, Part, Supply};

const KEY: TagKey = TagKey([3, 4]);
const CALLER: u32 = 7;
const SECRET: Secret = Secret([1; 16]);
const VIEW: ViewNumber = ViewNumber(1);

/// Sets the words of a frame that the fuzzer must not choose: its caller, and its serial.
fn put_right(frame: &mut [u8], caller: u32, serial: u64) {
    if frame.len() < 32 {
        return;
    }
    frame[8..12].copy_from_slice(&caller.to_le_bytes());
    frame[16..24].copy_from_slice(&serial.to_le_bytes());
    tag(frame, KEY);
}

/// Takes `data` for the answer to a frame with a batch and a settle.
pub fn answer(data: &[u8]) {
    let mut bytes = data.to_vec();
    put_right(&mut bytes, CALLER, 1);
    let _ = Datagram::parse(&bytes, CALLER, KEY);

    let (far, pool, mut endings) = (Time::from_nanos(1 << 40), Pool::new(1 << 16), Endings::default());
    let target = Incarnation::new(1, 1);
    let key = RegionKey { owner: target, region: 1, view: VIEW, bytes: 64, rights: Rights::Change, secret: SECRET };
    let mut ledger = Ledger::new(target, 1);
    ledger.introduced(CALLER, KEY);
    let mut batch = Batch::one(Operation::FetchAdd { at: 0, addend: 1 });
    if let Ok(into) = pool.take(20) {
        batch.push(Operation::Read { at: 3, into });
    }
    let posted = ledger.post(Time::ZERO, &key, batch, far);
    let (mut frame, mut sent) = (FrameWriter::default(), Vec::new());
    assert!(ledger.gather(Time::ZERO, &mut frame, &mut sent, &mut endings), "a batch is sent");
    let settled = ledger.settle(Time::ZERO, OperationId(1), far);
    assert!(ledger.gather(Time::ZERO, &mut frame, &mut sent, &mut endings), "a settle is sent");
    for serial in [1, 2, 1] {
        put_right(&mut bytes, CALLER, serial);
        let _ = ledger.answered(&bytes, &mut endings);
    }
    ledger.close(&mut endings);
    assert!(ledger.is_idle(), "a closed ledger waits for nothing");
    endings.hand_over();
    drop((posted, settled));
}

/// A node whose program is fed.
struct Fed {
    node: Node,
    caller: u32,
    serial: AtomicU64,
    /// Never reached: no frame has its secret.
    other: Part,
    _own: Part,
}

const UNTOUCHED: u64 = 0xaaaa_aaaa_aaaa_aaaa;

fn fed() -> Result<Fed> {
    let node = Node::new(Share::alone(Program::load()?))?;
    node.answer_at(SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 1)))?;
    let life = |secret| Life { bytes: 64, view: VIEW, change: secret, read: secret };
    let (_, own) = node.make(&life(SECRET))?;
    let (_, other) = node.make(&Life::new(64, VIEW)?)?;
    (0..8).for_each(|word| other.store(8 * word, UNTOUCHED));
    let caller = node.admit(KEY, OperationId(1))?;
    Ok(Fed { node, caller, serial: AtomicU64::new(1), other, _own: own })
}

/// Has the program take `data` for a frame of requests. Whether it was answered.
///
/// # Errors
/// That the program cannot be loaded here.
pub fn request(data: &[u8]) -> Result<bool> {
    static FED: OnceLock<Result<Fed>> = OnceLock::new();
    let fed = FED.get_or_init(fed).as_ref().map_err(Clone::clone)?;
    let mut payload = data[..data.len().min(1440)].to_vec();
    put_right(&mut payload, fed.caller, fed.serial.fetch_add(1, Ordering::Relaxed));
    let mut packet = trial::packet(&payload);
    let verdict = fed.node.run(&mut packet)?;
    assert_ne!(verdict, Verdict::Passed, "it is for a node of ours");
    let answered = verdict == Verdict::Answered;
    let back = &packet[packet.len() - payload.len()..];
    assert!(!answered || Datagram::parse(back, fed.caller, KEY).is_some(), "an answer is one");
    assert!((0..8).all(|word| fed.other.load(8 * word) == UNTOUCHED), "a region was changed without its secret");
    Ok(answered)
}

#[cfg(test)]
mod tests {
    use verbena_terms::testing::corpus;

    use super::*;
    use crate::xdp::if_allowed;

    #[test]
    fn the_corpora_are_replayed() {
        let answers = corpus("xdp_answer");
        answers.iter().for_each(|data| answer(data));
        let requests = corpus("xdp_frame");
        let mut answered = 0;
        for data in &requests {
            let Some(one) = if_allowed(request(data)) else { return };
            answered += usize::from(one);
        }
        assert!(answers.len() >= 4 && requests.len() >= 5 && answered >= 4, "{answered} of {}", requests.len());
    }

    #[test]
    fn every_changed_byte_of_a_frame_is_taken_or_refused() {
        let Some(sound) = corpus("xdp_frame").into_iter().max_by_key(Vec::len) else { panic!("no corpus") };
        for at in 0..sound.len() {
            for change in [1, 0x80, 0xff] {
                let mut changed = sound.clone();
                changed[at] ^= change;
                answer(&changed);
                let Some(_) = if_allowed(request(&changed)) else { return };
            }
        }
    }
}
