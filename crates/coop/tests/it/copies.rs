//! A copy that is dropped does not come back while a read that began before may go on (rule K3).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{Lease, Member, Role, Roles, View};
use verbena_coop::holder::OwnMemory;
use verbena_coop::object::{ReadBack, units};
use verbena_coop::table::{Entry, Geometry};
use verbena_coop::{
    Action, Clocks, Command, Completion, Coop, Frame, Object, Place, Reply, Rules, SchemeName, Settings, Table, Tenant,
    Version, hash_of,
};
use verbena_memcache::semantics::{Answer, Item};
use verbena_memcache::{Limits, Operation, Read};
use verbena_terms::{Incarnation, Time, ViewNumber};

const VERSION: Version = Version(77);
const PATIENCE: Duration = Duration::from_millis(40);

struct Pair {
    reader: Coop<OwnMemory>,
    table: Table,
    object: Object,
    place: Place,
    now: Time,
    id: u64,
}

impl Pair {
    /// A reader, and another node that is home and holder of a key.
    fn new(rules: Rules) -> Pair {
        let (me, other) = (Incarnation::new(1, 1), Incarnation::new(2, 1));
        let settings = Settings {
            units: 64,
            buckets: (1, 4),
            patience: PATIENCE,
            limits: Limits::default(),
            scheme: SchemeName::Bcc,
            mirror: false,
            shares: BTreeMap::new(),
            rules,
        };
        let mut reader = Coop::new(me, OwnMemory::new(64), settings);
        let members = [me, other].map(|incarnation| Member {
            incarnation,
            name: format!("node{}", incarnation.rank.0),
            address: String::new(),
            roles: Roles::ALL.and(Role::Pool),
        });
        let view = Arc::new(View::new(ViewNumber(1), members.to_vec(), vec![]).unwrap());
        let until = Time::FAR;
        reader.lease(Lease { until, acknowledged: ViewNumber(1), in_effect: ViewNumber(1) }, Time::ZERO);
        reader.view(&view, &mut vec![]);
        let key = b"key".to_vec();
        let hash = hash_of(&key);
        let object = Object {
            tenant: Tenant::DEFAULT,
            key,
            item: Item { value: b"value".to_vec(), ..Item::default() },
            has_cas: false,
        };
        let place = Place::new(hash, other.rank, 5, units(&object.key, &object.item.value) as u32);
        let mut table = Table::new(1, 4);
        table.open(1);
        table.put(hash, Entry { version: VERSION, place });
        Pair { reader, table, object, place, now: Time::ZERO, id: 0 }
    }

    /// A get, which finds the object at the other node.
    fn get(&mut self) {
        self.id += 1;
        let lease = Lease { until: Time::FAR, acknowledged: ViewNumber(1), in_effect: ViewNumber(1) };
        self.reader.lease(lease, self.now);
        let clocks = Clocks { now: self.now, seconds: 1 };
        let command = Command::Execute {
            tenant: Tenant::DEFAULT,
            key: b"key".to_vec(),
            operation: Operation::Read(Read::default()),
            value: vec![],
        };
        let mut actions = vec![];
        self.reader.command(self.id, command, clocks, &mut actions);
        while let Some(action) = actions.pop() {
            let completion = match action {
                Action::ReadTable { hash, geometry, .. } => Completion::Table(Some(self.table.look(hash, geometry))),
                Action::ReadObject { place, .. } if place == self.place => {
                    let bytes = self.object.encode(VERSION);
                    Completion::Object(place, ReadBack { first: VERSION.0, bytes, last: VERSION.0 })
                }
                // What was remembered is gone.
                Action::ReadObject { place, .. } => Completion::Object(place, ReadBack::default()),
                Action::Answer { reply, .. } => {
                    assert!(matches!(reply, Reply::Answer(Answer::Hit(_), _)), "{reply:?}");
                    continue;
                }
                Action::Send { .. } => continue,
            };
            self.reader.completed(self.id, completion, clocks, &mut actions);
        }
    }

    /// The home says that nothing names the copy.
    fn drop_copy(&mut self) {
        let clocks = Clocks { now: self.now, seconds: 1 };
        let drop = Frame::Drop { unit: 0, version: VERSION };
        self.reader.frame(Incarnation::new(2, 1), ViewNumber(1), drop, clocks, &mut vec![]);
        assert!(self.reader.holder().is_empty());
    }
}

#[test]
fn a_copy_that_was_dropped_comes_back_when_no_read_can_have_seen_it() {
    assert_eq!(Geometry(1 << 32).buckets(), 1);
    let mut pair = Pair::new(Rules::ALL);
    pair.get();
    assert_eq!(pair.reader.holder().version_at(0), Some(VERSION), "a copy is kept");
    pair.drop_copy();
    pair.get();
    assert!(pair.reader.holder().is_empty(), "not at once");
    pair.now = Time::ZERO + PATIENCE + Duration::from_millis(1);
    pair.reader.tick(Clocks { now: pair.now, seconds: 1 }, &mut vec![]);
    pair.get();
    assert_eq!(pair.reader.holder().version_at(0), Some(VERSION), "then again");
    // Without the rule it lies there at once: a read of three steps sees the version before and behind what lay there between.
    let mut pair = Pair::new(Rules { takes_no_copy_again: false, ..Rules::ALL });
    pair.get();
    pair.drop_copy();
    pair.get();
    assert_eq!(pair.reader.holder().version_at(0), Some(VERSION));
}
