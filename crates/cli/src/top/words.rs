//! Numbers as people read them: as the dashboard writes them.

/// Three digits.
fn three(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// How many in a second.
pub fn rate(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        value if value < 1.0 => format!("{value:.2}"),
        value if value < 9.95 => format!("{value:.1}"),
        value if value < 9_999.5 => format!("{value:.0}"),
        value if value < 999_500.0 => format!("{}k", three(value / 1e3)),
        value => format!("{}M", three(value / 1e6)),
    }
}

/// A part of a whole.
pub fn percent(value: f64) -> String {
    format!("{:.1}%", value * 100.0)
}

/// How much memory.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut rest = value as f64;
    while rest >= 999.5 && unit + 1 < UNITS.len() {
        rest /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value} B") } else { format!("{} {}", three(rest), UNITS[unit]) }
}

/// How long something took.
pub fn seconds(value: f64) -> String {
    match value {
        value if value < 1e-3 => format!("{} µs", three(value * 1e6)),
        value if value < 1.0 => format!("{} ms", three(value * 1e3)),
        value => format!("{} s", three(value)),
    }
}

/// How long something has been.
pub fn duration(millis: u64) -> String {
    match millis / 1000 {
        all @ 0..60 => format!("{all} s"),
        all @ 60..3_600 => format!("{} min", all / 60),
        all @ 3_600..86_400 => format!("{} h {} min", all / 3_600, all % 3_600 / 60),
        all => format!("{} d {} h", all / 86_400, all % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_long_as_they_must_be() {
        let rates = [0.0, 0.5, 2.25, 9.97, 1234.0, 20_527.0, 1_500_000.0].map(rate);
        assert_eq!(rates, ["0", "0.50", "2.2", "10", "1234", "20.5k", "1.50M"]);
        assert_eq!([31e-6, 0.00389, 1.5, 250.0].map(seconds), ["31.0 µs", "3.89 ms", "1.50 s", "250 s"]);
        assert_eq!([0, 999, 1000, 12 << 30, 5 << 40].map(bytes), ["0 B", "999 B", "0.98 KiB", "12.0 GiB", "5.00 TiB"]);
        let durations = [999, 61_000, 3_661_000, 90_000_000].map(duration);
        assert_eq!(durations, ["0 s", "1 min", "1 h 1 min", "1 d 1 h"]);
    }
}
