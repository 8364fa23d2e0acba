//! What one machine says in one situation: what the promises cost, and what cannot be.
use verbena_lock::{
    Action, Batch, Change, Home, LockParticipant, LockWord, Message, Mode, Outcome, Refusal, Request, Rules, To, Token,
};
use verbena_terms::{Rank, ViewNumber};

const ME: Rank = Rank(1);
const OTHER: Rank = Rank(2);
const READER: Rank = Rank(3);
const WRITE: Request = Request { mode: Mode::Exclusive, is_try: false };
const READ: Request = Request { mode: Mode::Shared, is_try: false };

fn token(count: u64) -> Token {
    Token::from_bits(Token::first_of(ViewNumber(7)).to_bits() + count)
}

fn found(tail: Rank, count: u32) -> Outcome {
    Outcome { before: LockWord { tail, count }, token: token(0), is_closed: false }
}

/// A participant, and what it says to each event.
struct Talk(LockParticipant);

impl Talk {
    fn begin() -> Self {
        Talk(LockParticipant::new(ME, Rules::ALL))
    }

    fn request(&mut self, request: Request) -> Vec<Action> {
        let mut out = vec![];
        self.0.request(request, &mut out).unwrap();
        out
    }

    fn finds(&mut self, outcome: Outcome) -> Vec<Action> {
        let mut out = vec![];
        self.0.completed(&outcome, &mut out).unwrap();
        out
    }

    fn hears(&mut self, from: Rank, message: Message) -> Vec<Action> {
        let mut out = vec![];
        self.0.heard(from, message, &mut out).unwrap();
        out
    }

    fn release(&mut self) -> Vec<Action> {
        let mut out = vec![];
        self.0.release(&mut out).unwrap();
        out
    }
}

fn enters(expected: LockWord) -> Action {
    let change = Change::Swap { expected, new: LockWord::writer(ME) };
    Action::Access(Batch { change: Some(change), read: true, ..Batch::default() })
}

fn to(rank: Rank, message: Message) -> Action {
    Action::Send(To::Participant(rank), message)
}

#[test]
fn a_free_lock_is_taken_and_freed_with_one_batch_each() {
    let mut me = Talk::begin();
    assert_eq!(me.request(WRITE), [enters(LockWord::FREE)]);
    assert_eq!(me.finds(found(Rank::NOBODY, 0)), [Action::Granted(Mode::Exclusive, token(2))]);
    let free = Change::Swap { expected: LockWord::writer(ME), new: LockWord::FREE };
    assert_eq!(me.release(), [Action::Access(Batch { token: Some(token(2)), change: Some(free), ..Batch::default() })]);
    assert_eq!(me.finds(found(ME, 0)), [Action::Left]);
}

#[test]
fn readers_share_with_one_batch_each() {
    let mut me = Talk::begin();
    let adds = Batch { change: Some(Change::AddReader), read: true, ..Batch::default() };
    assert_eq!(me.request(READ), [Action::Access(adds)]);
    assert_eq!(me.finds(found(Rank::NOBODY, 5)), [Action::Granted(Mode::Shared, token(1))]);
    assert_eq!(me.release(), [Action::Send(To::Home, Message::Released), Action::Left]);
}

#[test]
fn a_writer_hands_over_to_the_next_with_one_message() {
    let mut me = Talk::begin();
    me.request(WRITE);
    me.finds(found(Rank::NOBODY, 0));
    assert_eq!(me.hears(OTHER, Message::Behind { writer: OTHER, readers: 0 }), []);
    assert_eq!(me.release(), [to(OTHER, Message::Grant { last: token(2) }), Action::Left]);
}

#[test]
fn who_waits_says_so_once() {
    let mut me = Talk::begin();
    me.request(WRITE);
    let seen = LockWord::writer(OTHER);
    assert_eq!(me.finds(found(OTHER, 0)), [enters(seen)]);
    assert_eq!(me.finds(found(OTHER, 0)), [to(OTHER, Message::Behind { writer: ME, readers: 0 })]);
    assert_eq!(me.hears(READER, Message::Join), []);
    let granted = me.hears(OTHER, Message::Grant { last: token(8) });
    assert_eq!(granted, [Action::Granted(Mode::Exclusive, token(10))]);
}

#[test]
fn readers_and_a_writer_behind_a_writer() {
    let mut me = Talk::begin();
    me.request(WRITE);
    me.finds(found(Rank::NOBODY, 0));
    me.hears(READER, Message::Join);
    me.hears(OTHER, Message::Behind { writer: OTHER, readers: 2 });
    // The home reads the token when the readers have released.
    assert_eq!(me.release(), [Action::Access(Batch { token: Some(token(2)), ..Batch::default() })]);
    let grant = Message::Grant { last: token(2) };
    let after = Action::Send(To::Home, Message::After { writer: OTHER, readers: 2 });
    assert_eq!(me.finds(found(Rank::NOBODY, 0)), [to(READER, grant), after, Action::Left]);
    // The second reader was counted and is owed its grant.
    assert_eq!(me.hears(Rank(4), Message::Join), [to(Rank(4), grant)]);
}

#[test]
fn readers_that_come_while_the_last_writer_leaves() {
    let mut me = Talk::begin();
    me.request(WRITE);
    me.finds(found(Rank::NOBODY, 0));
    me.release();
    let again = Change::Swap { expected: LockWord { tail: ME, count: 1 }, new: LockWord::readers(1) };
    assert_eq!(me.finds(found(ME, 1)), [Action::Access(Batch { change: Some(again), ..Batch::default() })]);
    assert_eq!(me.finds(found(ME, 1)), [Action::Left]);
    assert_eq!(me.hears(READER, Message::Join), [to(READER, Message::Grant { last: token(2) })]);
}

#[test]
fn who_finds_the_gate_closed_asks_the_home_the_next_time() {
    let mut me = Talk::begin();
    me.request(READ);
    me.finds(Outcome { is_closed: true, ..found(Rank::NOBODY, 0) });
    me.release();
    assert_eq!(me.request(READ), [Action::Send(To::Home, Message::AskHome)]);
    assert!(matches!(me.hears(ME, Message::Open)[..], [Action::Access(_)]));
}

#[test]
fn the_home_puts_a_writer_in_behind_a_closed_gate() {
    let mut home = Home::new(Rules::ALL);
    let mut out = vec![];
    home.heard(ME, Message::Enter, &mut out).unwrap();
    home.heard(READER, Message::AskHome, &mut out).unwrap();
    let enters = |gate, expected| {
        let change = Change::Swap { expected, new: LockWord::writer(ME) };
        Action::Access(Batch { gate, change: Some(change), read: true, token: None })
    };
    assert_eq!(out.split_off(0), [enters(Some(true), LockWord::FREE)]);
    home.completed(&found(OTHER, 1), &mut out).unwrap();
    assert_eq!(out.split_off(0), [enters(None, LockWord { tail: OTHER, count: 1 })]);
    home.completed(&found(OTHER, 1), &mut out).unwrap();
    let opens = Action::Access(Batch { gate: Some(false), ..Batch::default() });
    assert_eq!(out.split_off(0), [to(OTHER, Message::Behind { writer: ME, readers: 1 }), opens]);
    home.completed(&Outcome::default(), &mut out).unwrap();
    assert_eq!(out, [to(READER, Message::Open)]);
    assert!(home.is_at_rest());
}

#[test]
fn a_try_changes_nothing_where_somebody_waits_behind_the_gate() {
    let mut me = Talk::begin();
    me.request(READ);
    me.finds(Outcome { is_closed: true, ..found(Rank::NOBODY, 0) });
    me.release();
    let looks = Batch { change: Some(Change::Look), read: true, ..Batch::default() };
    assert_eq!(me.request(Request { is_try: true, ..WRITE }), [Action::Access(looks)]);
    let refused = [Action::Refused(Refusal::Busy), Action::Left];
    assert_eq!(me.finds(Outcome { is_closed: true, ..found(Rank::NOBODY, 0) }), refused);
}

#[test]
fn when_tokens_are_used_up_the_lock_is_refused_and_stays_free() {
    let mut me = Talk::begin();
    me.request(WRITE);
    let last = Token::from_bits(Token::first_of(ViewNumber(8)).to_bits() - 1);
    let said = me.finds(Outcome { token: last, ..found(Rank::NOBODY, 0) });
    assert_eq!(said[0], Action::Refused(Refusal::TokensUsedUp));
    let free = Change::Swap { expected: LockWord::writer(ME), new: LockWord::FREE };
    assert_eq!(said[1], Action::Access(Batch { token: Some(last), change: Some(free), ..Batch::default() }));
    assert_eq!(me.finds(found(ME, 0)), [Action::Left]);
}

#[test]
fn who_finds_evicted_words_is_in_nothing() {
    for (request, count) in [(WRITE, 0), (READ, 3), (Request { is_try: true, ..READ }, 0)] {
        let mut me = Talk::begin();
        me.request(request);
        assert_eq!(me.finds(Outcome { is_closed: true, ..found(LockWord::NO_LOCK, count) }), [Action::Moved]);
        // At other words it begins anew: nothing is known of their gate.
        assert_eq!(me.request(WRITE), [enters(LockWord::FREE)]);
    }
    let mut me = Talk::begin();
    me.request(WRITE);
    assert_eq!(me.finds(found(OTHER, 0)), [enters(LockWord::writer(OTHER))]);
    assert_eq!(me.finds(found(LockWord::NO_LOCK, 0)), [Action::Moved]);
}

#[test]
fn who_asks_the_home_about_evicted_words_is_told() {
    let mut me = Talk::begin();
    me.request(READ);
    me.finds(Outcome { is_closed: true, ..found(Rank::NOBODY, 0) });
    me.release();
    assert_eq!(me.request(WRITE), [Action::Send(To::Home, Message::AskHome)]);
    assert_eq!(me.hears(ME, Message::Moved), [Action::Moved]);
    let mut me = Talk(LockParticipant::new(ME, Rules::ALL).patient_for(0));
    me.request(WRITE);
    assert_eq!(me.finds(found(OTHER, 0)), [Action::Send(To::Home, Message::Enter)]);
    assert_eq!(me.hears(ME, Message::Moved), [Action::Moved]);
}

#[test]
fn the_home_evicts_what_nobody_uses_with_one_batch() {
    let mut home = Home::new(Rules::ALL);
    let mut out = vec![];
    home.evict(&mut out).unwrap();
    let change = Change::Swap { expected: LockWord::FREE, new: LockWord::EVICTED };
    assert_eq!(out.split_off(0), [Action::Access(Batch { change: Some(change), read: true, ..Batch::default() })]);
    home.heard(READER, Message::AskHome, &mut out).unwrap();
    home.heard(OTHER, Message::Enter, &mut out).unwrap();
    assert_eq!(out, []);
    home.completed(&Outcome { token: token(8), ..found(Rank::NOBODY, 0) }, &mut out).unwrap();
    let evicted = [to(OTHER, Message::Moved), to(READER, Message::Moved), Action::Evicted(token(8))];
    assert_eq!(out, evicted);
    assert!(home.is_at_rest());
}

#[test]
fn a_lock_that_somebody_was_faster_to_take_is_not_evicted() {
    let mut home = Home::new(Rules::ALL);
    let mut out = vec![];
    home.evict(&mut out).unwrap();
    home.heard(READER, Message::AskHome, &mut out).unwrap();
    out.clear();
    home.completed(&found(OTHER, 0), &mut out).unwrap();
    assert_eq!(out.split_off(0), [Action::Access(Batch { gate: Some(false), ..Batch::default() })]);
    home.completed(&Outcome::default(), &mut out).unwrap();
    assert_eq!(out.split_off(0), [to(READER, Message::Open)]);
    home.heard(READER, Message::Released, &mut out).unwrap();
    assert!(home.evict(&mut out).is_err(), "a reader has released, and is not taken off the count");
}

#[test]
fn what_cannot_be_is_an_error_and_changes_nothing() {
    let out = &mut vec![];
    let grant = Message::Grant { last: token(2) };
    for message in [
        grant,
        Message::Join,
        Message::Open,
        Message::Moved,
        Message::Behind { writer: OTHER, readers: 0 },
        Message::Enter,
    ] {
        let mut me = LockParticipant::new(ME, Rules::ALL);
        let before = me.clone();
        assert!(me.heard(OTHER, message, out).is_err(), "{message:?}");
        assert_eq!(me, before);
    }
    for message in [grant, Message::Join, Message::Open, Message::Moved] {
        let mut home = Home::new(Rules::ALL);
        assert!(home.heard(OTHER, message, out).is_err(), "{message:?}");
        assert!(home.is_at_rest());
    }
    let mut me = LockParticipant::new(ME, Rules::ALL);
    assert!(me.release(out).is_err() && me.downgrade(out).is_err() && me.completed(&found(OTHER, 0), out).is_err());
    assert!(Home::new(Rules::ALL).completed(&found(OTHER, 0), out).is_err());
    assert_eq!(*out, []);
    me.request(READ, out).unwrap();
    assert!(me.request(READ, out).is_err());
}
