//! Reading a key: which version is valid, and an object that says it is that version.

use crate::object::{Object, ReadBack};
use crate::place::Place;
use crate::rules::Rules;
use crate::table::{Entry, Geometry, Look};
use crate::tenant::Tenant;
use crate::work::{Found, Looking};

/// Once more if an object was not what its entry says: it was being moved, or written.
const ROUNDS: u32 = 2;

/// What a reader does next.
pub(crate) enum Next {
    /// Waits for what was posted.
    Wait,
    /// Reads the table again, by this geometry.
    Look(Geometry),
    /// Reads an object.
    Read(Place),
    /// Is done.
    Found(Box<Found>),
}

impl Looking {
    pub fn new(tenant: Tenant, geometry: Geometry, remembered: Option<Place>) -> Looking {
        Looking {
            tenant,
            geometry,
            look: None,
            remembered: remembered.map(|place| (place, None)),
            entries: vec![],
            reading: None,
            unreadable: vec![],
            rounds: 0,
        }
    }

    /// The table's words are here.
    pub fn looked(&mut self, key: &[u8], hash: u64, look: Look, rules: &Rules) -> Next {
        if look.geometry() != self.geometry {
            self.geometry = look.geometry();
            return Next::Look(self.geometry);
        }
        self.entries = look.entries(hash).collect();
        self.look = Some(look);
        self.next(key, rules)
    }

    /// The object at the place that was remembered is here, or is not reached.
    pub fn read_remembered(&mut self, key: &[u8], read: ReadBack, rules: &Rules) -> Next {
        if let Some((_, slot)) = &mut self.remembered {
            *slot = Some(read);
        }
        self.next(key, rules)
    }

    /// The object of an entry is here, or is not reached.
    pub fn read(&mut self, key: &[u8], read: &ReadBack, rules: &Rules) -> Next {
        let Some(entry) = self.reading.take() else { return Next::Wait };
        match check(read, self.tenant, key, entry, rules) {
            Some(object) => Next::Found(Box::new(Found::Object(object, entry))),
            None => {
                self.unreadable.push(entry.version);
                self.next(key, rules)
            }
        }
    }

    fn next(&mut self, key: &[u8], rules: &Rules) -> Next {
        if self.look.is_none() {
            return Next::Wait;
        }
        // Word and object were read side by side: either order will do, because the version is compared (rule K2).
        if let Some((place, read)) = &self.remembered {
            let Some(read) = read else { return Next::Wait };
            let valid = self.entries.iter().find_map(|entry| {
                let entry = Entry { place: *place, ..*entry };
                check(read, self.tenant, key, entry, rules).map(|object| Found::Object(object, entry))
            });
            self.remembered = None;
            if let Some(found) = valid {
                return Next::Found(Box::new(found));
            }
        }
        if let Some(entry) = self.entries.pop() {
            self.reading = Some(entry);
            return Next::Read(entry.place);
        }
        self.rounds += 1;
        if self.rounds < ROUNDS && !self.unreadable.is_empty() {
            self.unreadable.clear();
            self.look = None;
            return Next::Look(self.geometry);
        }
        Next::Found(Box::new(Found::Nothing(std::mem::take(&mut self.unreadable))))
    }
}

fn check(read: &ReadBack, tenant: Tenant, key: &[u8], entry: Entry, rules: &Rules) -> Option<Object> {
    if rules.compares_version && rules.reads_head_twice {
        return read.check(tenant, key, entry.version);
    }
    // As a reader would that leaves out one of the two comparisons.
    let first = if rules.compares_version { read.first } else { read.last };
    let version = if rules.compares_version { entry.version.0 } else { read.last };
    let (_, object) = (first == version).then(|| Object::decode(&read.bytes))??;
    (object.tenant == tenant && object.key == key).then_some(object)
}
