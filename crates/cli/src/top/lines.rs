//! One line for each moment, where no window is shown.

use serde::Serialize;
use verbena_client::api::Node;
use verbena_client::wire::Departed;

use super::history::Moment;
use super::reading::Reading;
use super::words::{percent, rate, seconds};

/// What `--json` prints, one in a line.
#[derive(Serialize)]
pub struct Line<'a> {
    node: &'a str,
    state: verbena_client::wire::State,
    lease_left_ms: u64,
    view: verbena_terms::ViewNumber,
    in_effect: verbena_terms::ViewNumber,
    #[serde(flatten)]
    moment: &'a Moment,
    members: &'a [Node],
    departed_list: &'a [Departed],
}

impl<'a> Line<'a> {
    /// Of the newest reading, and what happened before it.
    pub fn new(reading: &'a Reading, moment: &'a Moment) -> Line<'a> {
        let status = &reading.status;
        Line {
            node: &status.name,
            state: status.state,
            lease_left_ms: status.lease_left_ms,
            view: status.view,
            in_effect: status.in_effect,
            moment,
            members: &reading.members,
            departed_list: &reading.departed,
        }
    }
}

/// What stands above the columns of [`in_words`].
pub fn heading() -> String {
    format!(
        "{:>10} {:>7} {:>9} {:>9} {:>9} {:>9}  lease  view  nodes",
        "requests/s", "hits", "median", "p99", "updates/s", "refused/s"
    )
}

/// A moment, for people.
pub fn in_words(reading: &Reading, moment: &Moment) -> String {
    let or = |value: Option<f64>, words: fn(f64) -> String| value.map_or_else(|| "-".into(), words);
    let status = &reading.status;
    let kept_out = reading.kept_out().map(|words| format!("  {words}")).unwrap_or_default();
    format!(
        "{:>10} {:>7} {:>9} {:>9} {:>9} {:>9} {:>4.1} s {:>5} {:>6}{kept_out}",
        rate(moment.requests_per_second),
        or(moment.hit_ratio, percent),
        or(moment.median_seconds, seconds),
        or(moment.p99_seconds, seconds),
        rate(moment.updates_per_second),
        rate(moment.refused_per_second),
        status.lease_left_ms as f64 / 1e3,
        status.view.0,
        reading.members.len(),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::history::{History, tests::Shop};
    use super::*;

    fn busy() -> (History, Moment) {
        let (shop, mut history) = (Shop::new(), History::default());
        history.answered(shop.reading(1_000, 7));
        shop.answers.with(["hit"]).add(90);
        shop.answers.with(["miss"]).add(10);
        shop.hits.record(Duration::from_micros(310));
        let moment = history.answered(shop.reading(2_000, 7)).unwrap().clone();
        (history, moment)
    }

    #[test]
    fn columns_stand_under_their_names() {
        let (history, moment) = busy();
        let line = in_words(history.reading.as_ref().unwrap(), &moment);
        assert_eq!(heading(), "requests/s    hits    median       p99 updates/s refused/s  lease  view  nodes");
        assert_eq!(line, "       100   90.0%    311 µs    311 µs         0         0  1.5 s     3      3");
        let idle = in_words(history.reading.as_ref().unwrap(), &Moment::default());
        assert!(idle.starts_with("         0       -         -         -"), "{idle}");
    }

    #[test]
    fn json_is_one_line_with_all_of_it() {
        let (history, moment) = busy();
        let line = serde_json::to_string(&Line::new(history.reading.as_ref().unwrap(), &moment)).unwrap();
        assert!(!line.contains('\n'));
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            (&read["hit_ratio"], &read["node"], &read["state"]),
            (&0.9.into(), &"shop-1".into(), &"member".into())
        );
        assert_eq!(read["members"][0]["told"]["lease_left_ms"], 1500);
        assert_eq!(read["members"][1]["told"], serde_json::Value::Null);
    }
}
