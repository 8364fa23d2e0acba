//! Sends and receives membership's messages, on port 1 of the fabric and in any view (rule F5).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use verbena_cluster::{MAX_MEMBERS, Membership, Message, View};
use verbena_fabric::{Address, Class, Fabric, Inbox, Port, Views};
use verbena_terms::{Complaints, Incarnation, Rank, Time, ViewNumber};

use crate::error::Result;

/// Membership's port.
pub(crate) const PORT: Port = Port(1);

/// Twice the members of a view: a node that was dropped from a view asks to come back, and needs an answer that names
/// its next incarnation.
const MOST_KNOWN: usize = 2 * MAX_MEMBERS;

/// Sends and receives for one incarnation.
pub(crate) struct Post {
    pub(crate) fabric: Arc<dyn Fabric>,
    pub(crate) inbox: Inbox,
    membership: Membership,
    book: Book,
    complaints: Complaints,
}

/// The address that each node's newest incarnation gave: at most [`MOST_KNOWN`].
#[derive(Default)]
struct Book {
    lives: BTreeMap<Rank, (Incarnation, Address)>,
    /// The newest view whose members are in it, and which these are.
    view: ViewNumber,
    members: BTreeSet<Rank>,
}

impl Post {
    pub(crate) fn open(fabric: Arc<dyn Fabric>, membership: Membership) -> Result<Self> {
        let inbox = fabric.listen(PORT, Views::Any)?;
        Ok(Post { fabric, inbox, membership, book: Book::default(), complaints: Complaints::default() })
    }

    /// Decodes a message that arrived at `now`. Returns `None` if its sender is not the one that it names, or if it is
    /// for another node.
    pub(crate) fn read(&mut self, now: Time, message: &verbena_fabric::Message) -> Option<Message> {
        let read = match Message::decode(&message.body) {
            Ok(read) => read,
            Err(error) => {
                self.complain(now, message.from, &error);
                return None;
            }
        };
        // A keeper answers as the incarnation that it was started in; a member speaks as its present one. So only ranks
        // are compared.
        if read.from.rank != message.from.rank || read.to.rank != self.fabric.identity().rank {
            self.complain(now, message.from, &format_args!("it is in the name of {} and for {}", read.from, read.to));
            return None;
        }
        if let verbena_cluster::Body::Join { member, .. } = &read.body {
            self.note(member.incarnation, Address(member.address.clone()));
        }
        Some(read)
    }

    fn complain(&mut self, now: Time, from: Incarnation, why: &dyn std::fmt::Display) {
        if let Some(number) = self.complaints.another(now) {
            tracing::warn!(%from, number, %why, "a membership message was dropped");
        }
    }

    /// Notes the address of an incarnation, unless a later incarnation of that node is known.
    pub(crate) fn note(&mut self, who: Incarnation, address: Address) {
        if self.membership.knows(who.rank) {
            self.book.note(who, address);
        }
    }

    /// Notes the members of a view. They stay known when a later view drops them: a dropped node asks to come back, and
    /// needs an answer that names its next incarnation.
    pub(crate) fn know(&mut self, view: &View) {
        self.book.know(view);
    }

    /// Sends to the incarnation that the message names, or to the known one where the message names none. What cannot
    /// be sent is lost: everything that matters is repeated.
    pub(crate) fn send(&self, message: &Message) {
        let known =
            self.book.lives.get(&message.to.rank).filter(|(who, _)| message.to.start == 0 || *who == message.to);
        let Some((who, address)) = known else {
            tracing::debug!(to = %message.to, "nobody knows where it is");
            return;
        };
        let sent = self
            .fabric
            .connect(*who, address)
            .and_then(|peer| peer.send(Class::Control, message.view, PORT, message.request, &message.encode()));
        if let Err(error) = sent {
            tracing::debug!(to = %who, address = address.shown(), %error, "a membership message was not sent");
        }
    }
}

impl Book {
    fn note(&mut self, who: Incarnation, address: Address) {
        if self.lives.get(&who.rank).is_none_or(|(known, _)| known.start <= who.start) {
            self.lives.insert(who.rank, (who, address));
        }
        // Where each incarnation has a rank of its own, drop the oldest that is not a member: a member may be older
        // than all others.
        if self.lives.len() > MOST_KNOWN {
            let goes = self.lives.keys().find(|rank| **rank != who.rank && !self.members.contains(rank));
            goes.copied().and_then(|rank| self.lives.remove(&rank));
        }
    }

    fn know(&mut self, view: &View) {
        if self.view < view.number() {
            self.view = view.number();
            self.members = view.members().iter().map(|member| member.incarnation.rank).collect();
            for member in view.members() {
                self.note(member.incarnation, Address(member.address.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use verbena_cluster::{ClusterConfig, Member, Roles};
    use verbena_fabric::tcp::{TcpConfig, TcpFabric};

    use super::*;

    /// The field `number` of each line that is logged.
    #[derive(Clone, Default)]
    struct Numbers(Arc<Mutex<Vec<u64>>>);

    impl tracing::Subscriber for Numbers {
        fn enabled(&self, about: &tracing::Metadata<'_>) -> bool {
            about.target() == module_path!().trim_end_matches("::tests")
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            event.record(&mut self.clone());
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    impl Visit for Numbers {
        fn record_u64(&mut self, field: &Field, value: u64) {
            if field.name() == "number" {
                self.0.lock().unwrap().push(value);
            }
        }
        fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
    }

    #[test]
    fn a_flood_of_what_cannot_be_used_is_one_line_a_second() {
        let fabric = TcpFabric::open(Incarnation::new(1, 1), TcpConfig::default()).unwrap();
        let mut post = Post::open(Arc::new(fabric), Membership::new(&ClusterConfig::default()).unwrap()).unwrap();
        let body = verbena_cluster::Body::Expel(Incarnation::new(3, 1));
        let [me, peer, another] = [1, 2, 3].map(|rank| Incarnation::new(rank, 1));
        let of_another = Message { from: another, to: me, view: ViewNumber(1), request: 1, body };
        let arrived = |body: &[u8]| verbena_fabric::Message {
            from: peer,
            view: ViewNumber(1),
            number: 1,
            class: Class::Control,
            port: PORT,
            body: body.to_vec(),
        };
        let flood = [arrived(b"nothing"), arrived(&of_another.encode())];
        let said = Numbers::default();
        tracing::subscriber::with_default(said.clone(), || {
            for (ms, message) in (0..2500).zip(flood.iter().cycle()) {
                assert_eq!(post.read(Time::ZERO + Duration::from_millis(ms), message), None);
            }
        });
        assert_eq!(*said.0.lock().unwrap(), [1, 1000, 1000]);
        let own = Message { from: peer, ..of_another };
        assert_eq!(post.read(Time::ZERO, &arrived(&own.encode())), Some(own));
    }

    #[test]
    fn a_member_is_known_however_many_lives_came_after_it() {
        let member = |rank| Member {
            incarnation: Incarnation::new(rank, 1),
            name: format!("n{rank}"),
            address: format!("at {rank}"),
            roles: Roles::ALL,
        };
        let mut book = Book::default();
        book.know(&View::new(ViewNumber(1), vec![member(1), member(2)], vec![]).unwrap());
        for rank in 3..3000 {
            book.note(Incarnation::new(rank, 1), Address(format!("at {rank}")));
        }
        assert_eq!(book.lives.len(), MOST_KNOWN);
        assert!([1, 2, 2999].iter().all(|rank| book.lives.contains_key(&Rank(*rank))), "{:?}", book.lives.keys());
        // A former member is dropped as the others are.
        book.know(&View::new(ViewNumber(2), vec![member(2)], vec![]).unwrap());
        book.note(Incarnation::new(3000, 1), Address("at 3000".into()));
        assert!(!book.lives.contains_key(&Rank(1)) && book.lives.contains_key(&Rank(2)));
        book.note(Incarnation::new(1, 1), Address("at 1".into()));
        assert!(book.lives.contains_key(&Rank(1)), "who has just said where it is");
    }
}
