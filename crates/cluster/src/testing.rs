//! Short names for what unit tests make often.

use verbena_terms::{Incarnation, ViewNumber};

use crate::{Member, Roles, View};

pub fn member(rank: u32, start: u32) -> Member {
    Member {
        incarnation: Incarnation::new(rank, start),
        name: format!("n{rank}"),
        address: format!("at {rank}"),
        roles: Roles::ALL,
    }
}

pub fn view(number: u32, members: &[(u32, u32)]) -> View {
    let members = members.iter().map(|(rank, start)| member(*rank, *start)).collect();
    View::new(ViewNumber(number), members, vec![]).unwrap()
}
