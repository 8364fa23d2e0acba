//! Posts in flight: the number of each, and the part of the node that waits for its outcome.

use std::collections::BTreeMap;

use verbena_terms::Incarnation;

use crate::access::{Post, PostId, Step};
use crate::{RequestId, SegmentId};

/// The part of the node that made a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A get or a put of this segment.
    Request(RequestId, SegmentId),
    /// An allocation, which reads how much is free at this home.
    Look(RequestId, Incarnation),
    /// The node's home.
    Home(SegmentId),
    /// A slot that this node has not used for a while is free for others.
    GiveBack(SegmentId),
}

impl Origin {
    /// The segment that the node does not forget before the post has ended.
    pub(super) fn segment(self) -> Option<SegmentId> {
        match self {
            Origin::Request(_, segment) | Origin::GiveBack(segment) => Some(segment),
            Origin::Look(..) | Origin::Home(_) => None,
        }
    }
}

#[derive(Default)]
pub(super) struct InFlight {
    posts: BTreeMap<PostId, Origin>,
    posted: u64,
}

impl InFlight {
    /// The view ends: no outcome of its posts counts.
    pub(super) fn view_ends(&mut self) {
        self.posts.clear();
    }

    pub(super) fn begin(&mut self, origin: Origin, home: Incarnation, steps: Vec<Step>) -> Post {
        self.posted += 1;
        let id = PostId(self.posted);
        self.posts.insert(id, origin);
        Post { id, home, steps }
    }

    /// `None` for a post of an earlier view.
    pub(super) fn end(&mut self, post: PostId) -> Option<Origin> {
        self.posts.remove(&post)
    }
}
