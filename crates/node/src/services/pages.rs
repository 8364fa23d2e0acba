//! The page protocol, hosted: membership's notices on one side, [`Content`] on the other.

use verbena_cluster::Notice;
use verbena_content::service::{Content, Counts, Membership, Options};
use verbena_metrics::{Registry, RegistryError};
use verbena_protocol::wire;
use verbena_terms::{Incarnation, ViewNumber};

use crate::local::open_updates::OpenUpdates;
use crate::membership::life::Life;
use crate::membership::service::{Replies, Service};

/// The service of pages.
pub(crate) struct Pages {
    content: Content,
}

impl Pages {
    /// The service, and the handle by which proxies and programs use it.
    ///
    /// # Errors
    /// If there can be no thread for it.
    pub(crate) fn start(options: Options, records: OpenUpdates) -> verbena_fabric::Result<(Pages, Content)> {
        let content = Content::start_with_records(options, Box::new(records))?;
        Ok((Pages { content: content.clone() }, content))
    }
}

impl Service for Pages {
    fn name(&self) -> &'static str {
        "pages"
    }

    fn begin(&mut self, life: &Life) -> Result<(), String> {
        self.content.life_begins(life.fabric.clone(), &life.lease).map_err(|error| error.to_string())
    }

    fn notice(&mut self, notice: &Notice, replies: &Replies) {
        match notice {
            Notice::ViewLearnt(view) => self.content.view_learnt(view.clone(), Back(replies.clone())),
            Notice::MemberOut { incarnation, .. } => self.content.member_out(*incarnation),
            Notice::Expelled(_) | Notice::Superseded(_) => self.content.life_ends(),
            _ => {}
        }
    }

    fn close(&mut self, replies: &Replies) {
        self.content.close(Back(replies.clone()));
    }

    fn end(&mut self) {
        self.content.life_ends();
    }
}

struct Back(Replies);

impl Membership for Back {
    fn prepared(&self, view: ViewNumber) {
        self.0.prepared(view);
    }

    fn settled(&self, who: Incarnation) {
        self.0.settled(who);
    }

    fn closed(&self, at_rest: bool) {
        self.0.closed(at_rest);
    }
}

/// Registers what the page protocol counts.
///
/// # Errors
/// If it is registered already.
pub(crate) fn register(metrics: &Registry, content: &Content) -> Result<(), RegistryError> {
    type Read = fn(&Counts) -> usize;
    let gauges: [(&str, &str, Read); 9] = [
        ("verbena_content_pages", "Pages with a dependency set at this home.", |counts| counts.home.pages),
        ("verbena_content_dependencies", "Dependencies in all sets at this home.", |counts| counts.home.dependencies),
        ("verbena_content_open_here", "Updates that are open at this home.", |counts| counts.home.open),
        (
            "verbena_content_open_everything",
            "Updates of everything among them: while there is one, nothing is cached.",
            |counts| counts.home.open_everything,
        ),
        (
            "verbena_content_awaiting",
            "Members whose open updates this home does not know yet: while there is one, nothing is cached.",
            |counts| counts.home.awaiting,
        ),
        ("verbena_content_updates_beginning", "Updates of this node that wait for homes.", |counts| {
            counts.updater.beginning
        }),
        ("verbena_content_updates_forwarded", "Updates of this node at the application.", |counts| {
            counts.updater.forwarded
        }),
        ("verbena_content_updates_unknown", "Updates of this node whose outcome is not known.", |counts| {
            counts.updater.unknown
        }),
        (
            "verbena_content_updates_confirming",
            "Updates of this node that are begun again before their client is answered.",
            |counts| counts.updater.confirming,
        ),
    ];
    for (name, help, read) in gauges {
        let content = content.clone();
        metrics.gauge_from(name, help, move || read(&content.counts()) as f64)?;
    }
    let counted = content.clone();
    let help = "Updates that this node began at every home, purges included.";
    metrics.counter_from("verbena_content_updates_total", help, move || counted.counts().begun)?;
    let content = content.clone();
    let help = "Messages and regions of other nodes that could not be used and were dropped.";
    metrics.counter_from("verbena_content_unusable_total", help, move || content.counts().unusable)
}

/// The state of the page protocol at this node, for its status.
pub(crate) fn counted(content: &Content) -> wire::Pages {
    let counts = content.counts();
    let own = counts.updater.beginning + counts.updater.forwarded + counts.updater.confirming + counts.updater.unknown;
    let [registered, dependencies, open_updates_here, awaiting, own_updates] =
        [counts.home.pages, counts.home.dependencies, counts.home.open, counts.home.awaiting, own]
            .map(|count| count as u64);
    wire::Pages { registered, dependencies, open_updates_here, awaiting, own_updates }
}
