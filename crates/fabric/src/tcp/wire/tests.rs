use verbena_terms::Incarnation;
use verbena_terms::testing::corpus;

use super::*;
use crate::message::Class;

fn head(number: u32, first: u64) -> BatchHead {
    let first = (first > 0).then_some(OperationId(first));
    BatchHead { number, region: 9, view: ViewNumber(4), first, secret: Secret([7; 16]) }
}

fn requests() -> Vec<u8> {
    let mut writer = FrameWriter::default();
    let elements = [
        Element::ReadWord { at: 8 },
        Element::WriteWord { at: 16, value: 1 },
        Element::CompareSwap { at: 24, expected: 2, desired: 3 },
        Element::FetchAdd { at: 32, addend: 4 },
        Element::Read { at: 1, length: 5 },
        Element::Write { at: 2, from: b"bytes" },
    ];
    writer.batch(&head(0, 1), elements.len());
    elements.iter().for_each(|element| writer.element(*element));
    writer.settle(1, OperationId(4));
    writer.message(Port(5), ViewNumber(6), 7, b"said");
    writer.batch(&head(2, 0), 1);
    writer.element(Element::ReadWord { at: 0 });
    writer.finish().to_vec()
}

fn answers() -> Vec<u8> {
    let mut writer = FrameWriter::default();
    writer.results(0, |bytes| {
        bytes.extend_from_slice(&[1; 16]);
        (2, Outcome::OutOfBounds(64))
    });
    writer.settled(1, Some(Settled::Executed(8)));
    writer.settled(2, Some(Settled::Barred));
    writer.settled(3, None);
    writer.results(4, |_| (0, Outcome::Revoked));
    writer.finish().to_vec()
}

#[test]
fn what_is_written_is_read() {
    let frame = requests();
    assert_eq!(frame_bytes(&frame), Ok(Some(frame.len())));
    let parsed = Requests::parse(&frame).unwrap();
    assert_eq!(parsed.items[0], Request::Batch(head(0, 1), 0..6));
    assert_eq!(parsed.elements[5], Element::Write { at: 2, from: b"bytes" });
    assert_eq!(parsed.items[2], Request::Message { port: Port(5), view: ViewNumber(6), number: 7, body: b"said" });
    assert_eq!(parsed.items[3], Request::Batch(head(2, 0), 6..7));

    let frame = answers();
    let parsed = parse_answers(&frame).unwrap();
    let payload = &[1; 16][..];
    assert_eq!(parsed[0], Answer::Results { number: 0, outcome: Outcome::OutOfBounds(64), done: 2, payload });
    assert_eq!(parsed[3], Answer::Settled { number: 3, settled: None });

    let hello =
        Hello { from: Incarnation::new(1, 2), to: Incarnation::new(3, 4), next: OperationId(5), class: Class::Bulk };
    assert_eq!(Hello::parse(&hello.bytes()), Ok(hello));
    let welcome = Welcome { incarnation: Incarnation::new(3, 4), verdict: Verdict::Superseded };
    assert_eq!(Welcome::parse(&welcome.bytes()), Ok(welcome));
    let preamble = Preamble { class: Class::Control, secured: true };
    assert_eq!(Preamble::parse(&preamble.bytes()), Ok(preamble));
    assert_eq!(check_preamble_answer(&answer_preamble(Verdict::Secure)), Ok(Verdict::Secure));
}

/// Every byte is checked: a changed one either says something else or is refused, and never passes for the same.
#[test]
fn every_byte_means_something() {
    for frame in [requests(), answers()] {
        for at in 0..frame.len() {
            for flip in [1, 0x80, 0xff] {
                let mut changed = frame.clone();
                changed[at] ^= flip;
                exercise(&changed);
                assert!(
                    Requests::parse(&changed).ok() != Requests::parse(&frame).ok()
                        || parse_answers(&changed).ok() != parse_answers(&frame).ok()
                );
            }
        }
    }
}

#[test]
fn what_is_cut_or_too_long_is_refused() {
    for frame in [requests(), answers()] {
        for end in 0..frame.len() {
            assert!(Requests::parse(&frame[..end]).is_err() && parse_answers(&frame[..end]).is_err(), "{end} bytes");
        }
        let mut longer = frame.clone();
        longer.push(0);
        assert!(Requests::parse(&longer).is_err() && parse_answers(&longer).is_err());
    }
}

#[test]
fn refusals_name_the_place() {
    let mut frame = requests();
    frame[16] = 9;
    assert_eq!(Requests::parse(&frame).unwrap_err().to_string(), "byte 16: no request is of kind 9");
    let mut frame = requests();
    frame[56 + 4] = 1;
    assert_eq!(Requests::parse(&frame).unwrap_err().to_string(), "byte 60: not zero");
    let mut frame = requests();
    frame[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(frame_bytes(&frame).unwrap_err().offset, 8, "refused before anything is kept for it");
    let mut frame = requests();
    frame[4] = 3;
    let refusal = Requests::parse(&frame).unwrap_err().to_string();
    assert!(refusal.contains("version 3") && refusal.contains("version 1"), "{refusal}");
}

#[test]
fn a_batch_moves_no_more_than_its_limit() {
    let largest = LARGEST_TRANSFER as u32;
    let of = |reads: usize| {
        let mut writer = FrameWriter::default();
        writer.batch(&head(0, 0), reads);
        (0..reads).for_each(|_| writer.element(Element::Read { at: 0, length: largest }));
        writer.finish().to_vec()
    };
    assert!(Requests::parse(&of(4)).is_ok());
    assert!(Requests::parse(&of(5)).is_err());
}

#[test]
fn the_corpus_is_replayed() {
    let inputs = corpus("tcp_frame");
    inputs.iter().for_each(|input| exercise(input));
    assert!(inputs.len() >= 6, "{} inputs", inputs.len());
}
