//! Participants that could change places while a view ends.

use stateright::Representative;
use verbena_lock::testing::Renamed;
use verbena_terms::Rank;

use crate::every_order::across::views::{Node, State};
use crate::every_order::symmetry::{behind, names, order};
use crate::every_order::view::rank;

impl Representative for State {
    fn representative(&self) -> Self {
        let order = self.order();
        let name = names(&order);
        State {
            nodes: order.iter().map(|&at| self.nodes[at].renamed(&name)).collect(),
            views: self.views.each_ref().map(|view| view.renamed(&name, &order)),
            ..*self
        }
    }
}

impl State {
    /// In which its representative has its participants.
    pub(crate) fn order(&self) -> Vec<usize> {
        let sides = || self.nodes.iter().map(|node| &node.role);
        order(self.nodes.len(), |at| {
            let found = self.nodes.iter().filter(|node| node.ahead == rank(at)).count();
            let [old, new] = self.views.each_ref().map(|view| view.nameless(at));
            (self.nodes[at].renamed(&|_| Rank(1)), found, behind(sides(), at), old, new)
        })
    }
}

impl Node {
    fn renamed(&self, name: &impl Fn(Rank) -> Rank) -> Self {
        let ahead = if self.ahead == Rank::NOBODY { Rank::NOBODY } else { name(self.ahead) };
        Node { role: self.role.renamed(name), ahead, ..*self }
    }
}
