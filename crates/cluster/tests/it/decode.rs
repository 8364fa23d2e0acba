//! Any bytes give a message or an error, never a panic, and what is decoded encodes to what was read.

use proptest::prelude::*;
use verbena_cluster::{
    Body, Departed, KEEPER_FORMAT, KeeperRecord, LeaseTerms, MESSAGE_FORMAT, Member, Message, Refusal, Renewal, Role,
    Roles, START_FORMAT, Standing, StartRecord, View,
};
use verbena_terms::{Format, Incarnation, Rank, ViewNumber};

fn incarnation() -> impl Strategy<Value = Incarnation> {
    (1..9u32, 1..u32::MAX).prop_map(|(rank, start)| Incarnation::new(rank, start))
}

fn incarnations() -> impl Strategy<Value = Vec<Incarnation>> {
    prop::collection::vec(incarnation(), 0..5)
}

fn member(incarnation: Incarnation) -> impl Strategy<Value = Member> {
    let roles = prop::collection::vec(prop::sample::select(vec![Role::Home, Role::Reader, Role::Updater]), 0..3);
    ("[a-z]{0,9}", "[a-z:/.]{0,20}", roles).prop_map(move |(name, address, roles)| Member {
        incarnation,
        name,
        address,
        roles: Roles::from(roles),
    })
}

fn view() -> impl Strategy<Value = View> {
    let starts = prop::collection::btree_map(1..9u32, 1..99u32, 0..6);
    (1..u32::MAX, starts, prop::collection::btree_set((9..12u32, 1..99u32), 0..4)).prop_flat_map(
        |(number, starts, gone)| {
            let members: Vec<_> =
                starts.into_iter().map(|(rank, start)| member(Incarnation::new(rank, start))).collect();
            let gone = gone.into_iter().map(|(rank, start)| Departed {
                incarnation: Incarnation::new(rank, start),
                since: ViewNumber(number),
                at_rest: start % 2 == 0,
                is_relay: start % 3 == 0,
            });
            let gone: Vec<_> = gone.collect();
            members
                .prop_map(move |members| View::new(ViewNumber(number), members, gone.clone()).expect("it is in order"))
        },
    )
}

fn renewal() -> impl Strategy<Value = Renewal> {
    (any::<u64>(), any::<u32>(), incarnations()).prop_map(|(heard, acknowledged, settled)| Renewal {
        terms: LeaseTerms::DEFAULT,
        heard,
        acknowledged: ViewNumber(acknowledged),
        settled,
    })
}

fn standing() -> impl Strategy<Value = Standing> {
    (any::<u32>(), any::<bool>(), incarnations(), incarnations(), incarnations()).prop_map(
        |(view, in_effect, acknowledged, out, settled)| Standing {
            view: ViewNumber(view),
            in_effect,
            acknowledged,
            out,
            settled,
        },
    )
}

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        any::<u32>().prop_map(|rank| Refusal::UnknownRank(Rank(rank))),
        ("[a-z]{0,9}", "[a-z]{0,9}").prop_map(|(expected, found)| Refusal::Name { rank: Rank(2), expected, found }),
        any::<u32>().prop_map(|known| Refusal::StartUsed { known }),
        incarnation().prop_map(Refusal::Superseded),
        any::<u32>().prop_map(|view| Refusal::Unacknowledged(ViewNumber(view))),
        Just(Refusal::Expelled),
        Just(Refusal::Full),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let body = |from| {
        prop_oneof![
            (member(from), renewal()).prop_map(|(member, renewal)| Body::Join { member, renewal }),
            renewal().prop_map(Body::Renew),
            any::<u32>().prop_map(|view| Body::Acknowledge(ViewNumber(view))),
            any::<bool>().prop_map(|at_rest| Body::Leave { at_rest }),
            standing().prop_map(Body::Grant),
            view().prop_map(Body::Propose),
            standing().prop_map(Body::Stand),
            refusal().prop_map(Body::Refuse),
        ]
    };
    (incarnation(), incarnation(), any::<u32>(), any::<u64>()).prop_flat_map(move |(from, to, view, request)| {
        body(from).prop_map(move |body| Message { from, to, view: ViewNumber(view), request, body })
    })
}

fn after(format: Format, rest: &[u8]) -> Vec<u8> {
    [format.header().as_slice(), rest].concat()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn a_message_survives(message in message()) {
        prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
    }

    #[test]
    fn a_damaged_message_is_another_message_or_an_error(
        message in message(), at in any::<prop::sample::Index>(), to in any::<u8>(), keep in any::<prop::sample::Index>()
    ) {
        let mut bytes = message.encode();
        let at = at.index(bytes.len());
        bytes[at] = to;
        let _ = Message::decode(&bytes);
        prop_assert!(Message::decode(&message.encode()[..keep.index(bytes.len())]).is_err());
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(rest in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Message::decode(&rest);
        let _ = KeeperRecord::decode(&rest);
        let _ = StartRecord::decode(&rest);
        let _ = Message::decode(&after(MESSAGE_FORMAT, &rest));
        let _ = KeeperRecord::decode(&after(KEEPER_FORMAT, &rest));
        let _ = StartRecord::decode(&after(START_FORMAT, &rest));
    }

    #[test]
    fn a_keepers_record_survives(view in prop::option::of(view()), starts in prop::collection::btree_map(1..9u32, 1..99u32, 0..5)) {
        let out = view.iter().flat_map(View::members).map(|member| member.incarnation).take(1).collect();
        let starts = starts.into_iter().map(|(rank, start)| (Rank(rank), start)).collect();
        let record = KeeperRecord { view, out, starts, terms: LeaseTerms::DEFAULT };
        prop_assert_eq!(KeeperRecord::decode(&record.encode()), Ok(record));
    }
}

#[test]
fn a_long_list_that_is_not_there_takes_no_memory() {
    // A renewal whose list of settled claims 2^32 - 1 entries.
    let claim = [1, 1, 1, 0, 0, 1, 1, 0xd0, 0x0f, 20, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f];
    assert!(Message::decode(&after(MESSAGE_FORMAT, &claim)).is_err());
}
