//! One frame: a function of what happened and of the size of the window.
//!
//! ```text
//!  node, state, provider                                                  live
//!  requests/s   hit ratio   median   p99   updates/s   refused/s
//!  +- requests per second ----------+ +- latency ----------------------+      as long as there is room
//!  +--------------------------------+ +--------------------------------+
//!  node  state  lease left  view  up  busy  tasks  memory free  roles  address
//!  refused: reasons                                              keys
//! ```

use std::collections::BTreeMap;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, BorderType, Cell, Chart, Dataset, GraphType, Paragraph, Row, Table};
use verbena_client::api::Node;
use verbena_client::wire::State;

use super::history::{History, Moment};
use super::reading::Reading;
use super::words::{bytes, duration, percent, rate, seconds};

/// Seconds that a chart is wide, and what they are called: as wide as what there is to show.
const SPANS: [(f64, &str); 4] = [(30.0, "30 s ago"), (60.0, "1 min ago"), (120.0, "2 min ago"), (180.0, "3 min ago")];
/// Lines that a chart needs to say anything.
const CHART_LINES: u16 = 7;
/// Columns below which one chart has the whole width.
const TWO_CHARTS: u16 = 90;
/// Columns below which how loaded a node's machine is is left out.
const WITH_LOADS: u16 = 64;
/// Columns below which words are short.
const WHOLE_NODES: u16 = 90;
/// Columns below which a node's roles and address are left out.
const WITH_ADDRESSES: u16 = 132;
/// Requests that emptied the cache, and reasons, that have room in the last line.
const SHOWN: usize = 3;
/// After so long without a word a node counts as silent, milliseconds.
const SILENT_MS: u64 = 3_000;

type Series<'a> = (&'a str, Color, Vec<(f64, f64)>);

/// Draws it.
pub fn draw(frame: &mut Frame<'_>, history: &History) {
    let Some(reading) = &history.reading else {
        let words = history.trouble.as_deref().unwrap_or("asking ...");
        return frame.render_widget(Paragraph::new(words.to_owned()), frame.area());
    };
    let members = u16::try_from(reading.members.len().max(1)).unwrap_or(u16::MAX);
    let area = frame.area();
    let fixed = 1 + 1 + 2 + 1 + 1;
    let charts = area.height.saturating_sub(fixed + 1 + members.min(area.height / 3));
    let charts = if charts < CHART_LINES { 0 } else { charts };
    let [top, below, tiles, _, plots, nodes, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Length(charts),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    if let Some(words) = reading.kept_out() {
        frame.render_widget(Line::from(words.yellow()), below);
    }
    heading(frame, top, reading, history.trouble.as_deref());
    numbers(frame, tiles, history.moments.back());
    if charts > 0 {
        requests_and_latency(frame, plots, history);
    }
    members_of(frame, nodes, reading);
    footing(frame, foot, history);
}

fn heading(frame: &mut Frame<'_>, area: Rect, reading: &Reading, trouble: Option<&str>) {
    let status = &reading.status;
    let (word, colour) = standing(status.state);
    let left = Line::from(vec![
        "verbena ".bold(),
        status.name.clone().into(),
        "  ".into(),
        Span::styled(format!("● {word}"), colour),
        format!(
            "  {}, version {}, process {}, up {}",
            status.fabric.provider,
            status.version,
            status.pid,
            duration(status.uptime_ms)
        )
        .dim(),
    ]);
    let right = match trouble {
        None => "live".green(),
        Some(_) => " no answer, trying again ".black().on_red(),
    };
    let [left_area, right_area] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(right.width() as u16)]).areas(area);
    frame.render_widget(left, left_area);
    frame.render_widget(Line::from(right), right_area);
}

fn numbers(frame: &mut Frame<'_>, area: Rect, moment: Option<&Moment>) {
    let or = |value: Option<f64>, words: fn(f64) -> String| value.map_or_else(|| "-".into(), words);
    let of = |value: fn(&Moment) -> f64| moment.map_or_else(|| "-".into(), |moment| rate(value(moment)));
    // Six words and the space between them.
    let names = if area.width >= 72 {
        ["requests/s", "hit ratio", "median", "p99", "updates/s", "refused/s"]
    } else {
        ["req/s", "hits", "median", "p99", "upd/s", "ref/s"]
    };
    let values = [
        of(|moment| moment.requests_per_second),
        or(moment.and_then(|moment| moment.hit_ratio), percent),
        or(moment.and_then(|moment| moment.median_seconds), seconds),
        or(moment.and_then(|moment| moment.p99_seconds), seconds),
        of(|moment| moment.updates_per_second),
        of(|moment| moment.refused_per_second),
    ];
    let areas = Layout::horizontal([Constraint::Ratio(1, 6); 6]).split(area);
    for ((name, value), area) in names.into_iter().zip(values).zip(areas.iter()) {
        frame.render_widget(Paragraph::new(vec![name.dim().into(), value.bold().into()]), *area);
    }
}

fn requests_and_latency(frame: &mut Frame<'_>, area: Rect, history: &History) {
    let quiet = match history.moments.back() {
        None => "waiting for the second reading",
        Some(moment) if !moment.has_proxy => "this node runs no proxy",
        Some(_) => "no requests",
    };
    let series = |value: fn(&Moment) -> Option<f64>| -> Vec<(f64, f64)> {
        let now = history.moments.back().map_or(0.0, |moment| moment.at_seconds);
        let points = history.moments.iter().map(|moment| (moment.at_seconds - now, value(moment)));
        points.filter_map(|(at, value)| Some((at, value?))).collect()
    };
    let is_idle = history.moments.iter().all(|moment| moment.requests_per_second == 0.0);
    let requests = [
        ("all", Color::Gray, series(|moment| Some(moment.requests_per_second))),
        ("hits", Color::Green, series(|moment| Some(moment.hits_per_second))),
    ];
    let latency = [
        ("p99", Color::Yellow, series(|moment| moment.p99_seconds.map(f64::log10))),
        ("median", Color::Blue, series(|moment| moment.median_seconds.map(f64::log10))),
    ];
    let areas = if area.width >= TWO_CHARTS {
        Layout::horizontal([Constraint::Ratio(1, 2); 2]).split(area)
    } else {
        Layout::horizontal([Constraint::Fill(1)]).split(area)
    };
    let most = requests.iter().flat_map(|(_, _, points)| points).map(|(_, value)| *value).fold(0.0, f64::max);
    let most = nice(most);
    plot(frame, areas[0], "requests per second", &requests, [0.0, most], &rate, is_idle.then_some(quiet));
    if let Some(area) = areas.get(1) {
        let values = || latency.iter().flat_map(|(_, _, points)| points).map(|(_, value)| *value);
        let low = values().fold(f64::INFINITY, f64::min).floor();
        let high = values().fold(f64::NEG_INFINITY, f64::max).ceil();
        let bounds = if low.is_finite() { [low, high.max(low + 1.0)] } else { [-4.0, -2.0] };
        let words = |value: f64| seconds(10_f64.powf(value));
        plot(frame, *area, "latency", &latency, bounds, &words, is_idle.then_some(quiet));
    }
}

fn plot(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    series: &[Series<'_>],
    bounds: [f64; 2],
    words: &dyn Fn(f64) -> String,
    nothing: Option<&str>,
) {
    let mut names = vec![Span::from(format!(" {title} ")).bold()];
    names.extend(series.iter().map(|(name, colour, _)| Span::styled(format!("{name} "), *colour)));
    let block =
        Block::bordered().border_type(BorderType::Rounded).border_style(Style::new().dim()).title(Line::from(names));
    if let Some(nothing) = nothing {
        let inner = block.inner(area);
        frame.render_widget(block, area);
        let middle = Rect { y: inner.y + inner.height / 2, height: 1.min(inner.height), ..inner };
        return frame.render_widget(Paragraph::new(nothing.dim()).alignment(Alignment::Center), middle);
    }
    let datasets = series.iter().map(|(_, colour, points)| {
        Dataset::default().marker(Marker::Braille).graph_type(GraphType::Line).style(*colour).data(points)
    });
    let oldest = series.iter().filter_map(|(_, _, points)| points.first()).map(|(at, _)| -at).fold(0.0, f64::max);
    let (span, since) = SPANS.into_iter().find(|(span, _)| oldest <= *span).unwrap_or(SPANS[SPANS.len() - 1]);
    let dim = |text: String| Span::styled(text, Modifier::DIM);
    let middle = (bounds[0] + bounds[1]) / 2.0;
    let chart = Chart::new(datasets.collect())
        .block(block)
        .x_axis(Axis::default().bounds([-span, 0.0]).labels([since, "now"].map(|text| dim(text.into()))))
        .y_axis(Axis::default().bounds(bounds).labels([bounds[0], middle, bounds[1]].map(|value| dim(words(value)))))
        .legend_position(None);
    frame.render_widget(chart, area);
}

fn members_of(frame: &mut Frame<'_>, area: Rect, reading: &Reading) {
    let is_whole = area.width >= WHOLE_NODES;
    let longest = |text: fn(&Node) -> &str| {
        let longest = reading.members.iter().map(|node| text(node).chars().count()).max().unwrap_or(0);
        Constraint::Length(u16::try_from(longest.clamp(7, 40)).unwrap_or(40))
    };
    let mut names = vec!["node", "state", if is_whole { "lease left" } else { "lease" }, "view", "up"];
    let mut widths = vec![longest(|node| &node.member.name)];
    // The longest words of each.
    let fixed = if is_whole { [16, 10, 11, 11] } else { [13, 5, 9, 7] };
    widths.extend(fixed.map(Constraint::Length));
    if area.width >= WITH_LOADS {
        names.extend(["busy", "tasks", if is_whole { "free" } else { "" }]);
        widths.extend([5, 5, if is_whole { 8 } else { 0 }].map(Constraint::Length));
    }
    if area.width >= WITH_ADDRESSES {
        names.extend(["roles", "address"]);
        widths.extend([longest(|node| &node.member.roles), Constraint::Fill(1)]);
    }
    let rows = reading.members.iter().map(|node| {
        let mut cells = row(node);
        cells.truncate(names.len());
        Row::new(cells)
    });
    let table = Table::new(rows, widths).header(Row::new(names).dim()).column_spacing(if is_whole { 2 } else { 1 });
    frame.render_widget(table, area);
}

fn row(node: &Node) -> Vec<Cell<'static>> {
    let (word, colour) = match &node.heard {
        _ if node.member.out => ("out of lease".into(), Color::Red),
        None => ("no answer".into(), Color::Yellow),
        Some(heard) if heard.age_ms > SILENT_MS => (format!("silent for {}", duration(heard.age_ms)), Color::Yellow),
        Some(heard) => {
            let (word, colour) = standing(heard.told.state);
            (word.to_owned(), colour)
        }
    };
    let told = node.heard.filter(|_| !node.member.out).map(|heard| heard.told);
    let lease = told.map_or_else(|| "-".into(), |told| format!("{:.1} s", told.lease_left_ms as f64 / 1e3));
    let view = told
        .map_or_else(|| "-".into(), |told| format!("{} / {} / {}", told.view.0, told.acknowledged.0, told.in_effect.0));
    let load = node.load.filter(|loaded| loaded.age_ms <= SILENT_MS && !node.member.out).map(|loaded| loaded.load);
    let [busy, tasks, free] = load.map_or_else(
        || ["-"; 3].map(String::from),
        |load| {
            let busy = f64::from(load.busy_milli) / f64::from(load.cores.max(1)) / 10.0;
            let tasks = f64::from(load.runnable_milli) / 1e3;
            [format!("{busy:.0}%"), format!("{tasks:.1}"), bytes(load.available_bytes)]
        },
    );
    let name = if node.is_self { node.member.name.clone().bold() } else { node.member.name.clone().into() };
    vec![
        name.into(),
        Span::styled(word, colour).into(),
        lease.into(),
        view.into(),
        told.map_or_else(|| "-".into(), |told| duration(told.uptime_ms)).into(),
        busy.into(),
        tasks.into(),
        free.into(),
        node.member.roles.clone().dim().into(),
        node.member.address.clone().dim().into(),
    ]
}

/// The names of a list that come most often, with how often.
fn most_frequent(list: &BTreeMap<String, f64>) -> String {
    let mut list: Vec<_> = list.iter().collect();
    list.sort_by(|one, other| other.1.total_cmp(one.1));
    let shown = list.into_iter().take(SHOWN).map(|(name, per_second)| format!("{name} {}/s", rate(*per_second)));
    shown.collect::<Vec<_>>().join(", ")
}

fn footing(frame: &mut Frame<'_>, area: Rect, history: &History) {
    let left = match (&history.trouble, history.moments.back()) {
        (Some(trouble), _) => trouble.clone().red(),
        (None, Some(moment)) if !moment.refused.is_empty() || !moment.emptied_per_second.is_empty() => {
            let lists = [("emptied by", &moment.emptied_per_second), ("refused", &moment.refused)];
            let some = lists.into_iter().filter(|(_, list)| !list.is_empty());
            some.map(|(name, list)| format!("{name}: {}", most_frequent(list))).collect::<Vec<_>>().join("; ").into()
        }
        _ => "view: installed / acknowledged / in effect".dim(),
    };
    let right = "q quits";
    let [left_area, right_area] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(right.len() as u16)]).areas(area);
    frame.render_widget(Line::from(left), left_area);
    frame.render_widget(right.dim(), right_area);
}

fn standing(state: State) -> (&'static str, Color) {
    match state {
        State::Member => ("member", Color::Green),
        State::Joining => ("joining", Color::Yellow),
        State::Lapsed => ("without lease", Color::Red),
        State::Leaving => ("leaving", Color::Yellow),
    }
}

/// The next of 1, 2, 5 times a power of ten.
fn nice(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|step| *step >= value).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::history::tests::Shop;
    use super::*;

    fn drawn(history: &History, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, history)).unwrap();
        terminal.backend().to_string()
    }

    fn busy() -> History {
        let (shop, mut history) = (Shop::new(), History::default());
        for second in 1..=60 {
            shop.answers.with(["hit"]).add(95);
            shop.answers.with(["miss"]).add(5);
            shop.not_stored.with(["refused-moved"]).add(2);
            shop.emptied.with(["/xmlrpc.php", "404"]).add(2);
            shop.emptied.with(["/cart", "200"]).add(1);
            shop.updates.add(12);
            (0..100).for_each(|_| shop.hits.record(Duration::from_micros(310)));
            (0..5).for_each(|_| shop.misses.record(Duration::from_millis(20)));
            history.answered(shop.reading(second * 1_000, 7));
        }
        history
    }

    #[test]
    fn all_of_it_is_there() {
        let shown = drawn(&busy(), 140, 30);
        for text in [
            "verbena shop-1  ● member  tcp, version 0.1.0, process 7, up 1 min",
            "live",
            "95.0%",
            "311 µs",
            "requests per second all hits",
            "latency p99 median",
            "1 min ago",
            "node     state             lease left  view         up           busy   tasks  free      roles         address",
            "shop-1   member            1.5 s       3 / 3 / 3    1 min        37%    6.2    12.0 GiB  home,updater  tcp://10.0.0.1:7001",
            "shop-2   no answer         -           -            -            -      -      -",
            "shop-3   out of lease      -           -            -            -      -      -",
            "emptied by: /xmlrpc.php 404 2.0/s, /cart 200 1.0/s; refused: moved 2.0/s",
            "q quits",
        ] {
            assert!(shown.contains(text), "{text:?} is not in\n{shown}");
        }
        let dots = shown.chars().filter(|letter| ('\u{2801}'..='\u{28ff}').contains(letter)).count();
        assert!(dots > 100, "{dots} dots are drawn:\n{shown}");
        assert!(!shown.contains("no requests"), "{shown}");
    }

    #[test]
    fn a_window_shows_as_much_of_a_node_as_there_is_room_for() {
        let shown = |width| drawn(&busy(), width, 30);
        for (width, load, free, address) in
            [(60, false, false, false), (70, true, false, false), (90, true, true, false)]
        {
            let shown = shown(width);
            assert_eq!(shown.contains("37%") && shown.contains("6.2"), load, "{shown}");
            assert_eq!(shown.contains("12.0 GiB"), free, "{shown}");
            assert_eq!(shown.contains("tcp://10.0.0.1"), address, "{shown}");
            assert!(shown.contains("3 / 3 / 3"), "{shown}");
        }
    }

    #[test]
    fn a_small_window_has_the_numbers_and_the_nodes() {
        for (width, height) in [(60, 12), (40, 8), (20, 3), (1, 1)] {
            let shown = drawn(&busy(), width, height);
            assert!(
                width < 40
                    || shown.contains("95.0%") && shown.contains("shop-1  member") && shown.contains("3 / 3 / 3"),
                "{shown}"
            );
            assert!(!shown.contains("requests per second"), "no room for a chart:\n{shown}");
        }
    }

    #[test]
    fn silence_is_said_and_nothing_asked_is_no_number() {
        let (shop, mut history) = (Shop::new(), History::default());
        assert!(drawn(&history, 80, 24).contains("asking"));
        history.answered(shop.reading(1_000, 7));
        assert!(drawn(&history, 120, 30).contains("waiting for the second reading"));
        history.answered(shop.reading(2_000, 7));
        let shown = drawn(&history, 120, 30);
        assert!(shown.contains("no requests") && !shown.contains("NaN") && !shown.contains("inf"), "{shown}");
        history.failed("no helper answers at /run/x.http.sock".into());
        let shown = drawn(&history, 120, 30);
        assert!(shown.contains("no answer, trying again") && shown.contains("/run/x.http.sock"), "{shown}");
        assert!(shown.contains("shop-1"), "what was known stays: {shown}");
    }

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!([0.0, 0.3, 1.0, 3.0, 42.0, 5_001.0].map(nice), [1.0, 0.5, 1.0, 5.0, 50.0, 10_000.0]);
    }
}
