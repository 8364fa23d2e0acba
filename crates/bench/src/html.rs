//! All reports of a run on one page that needs nothing but itself.

use std::fmt::Write;

use crate::error::BenchError;
use crate::figure::{GRID_INK, TEXT_INK, circumstances, panel_svg};
use crate::report::{FabricFound, Measurement, Ratio, Report, Verdict};
use crate::rows::rows;
use crate::scale::number;

/// The page `report.html` for `reports`: readable in a dark room and on a telephone, with no resource from elsewhere.
/// Rows that are not among them are listed as not measured.
pub fn report_html(reports: &[Report]) -> Result<String, BenchError> {
    let mut body = String::new();
    for report in reports {
        body.push_str(&section(report)?);
    }
    let unmeasured: String = rows()
        .iter()
        .filter(|row| !reports.iter().any(|report| report.row == row.name))
        .map(|row| {
            format!(
                "<tr><td><code>{}</code><td>{}<td>not measured in this run\n",
                escaped(row.name),
                escaped(row.paper)
            )
        })
        .collect();
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Verbena: experiments</title>\n\
         <style>\n{}</style>\n</head>\n<body>\n<h1>Verbena: experiments</h1>\n\
         <p>Absolute times belong to the machine. What is compared is the ratio between variants that took turns in one \
         run: the median, and in brackets the least and the most of any round.</p>\n{body}\
         <h2>Not in this report</h2>\n<div class=\"wide\"><table>\n<tr><th>row<th>paper<th>why\n{unmeasured}</table></div>\n\
         </body>\n</html>\n",
        style()
    ))
}

fn style() -> String {
    format!(
        ":root {{ color-scheme: light dark; --ink: {TEXT_INK}; --page: #ffffff; --line: {GRID_INK}; --soft: #f4f5f7; \
         --good: #00664b; --bad: #a33b00; }}\n\
         @media (prefers-color-scheme: dark) {{\n\
         :root {{ --ink: #e8eaed; --page: #16181b; --line: #3a3e44; --soft: #202329; --good: #4fd1a5; --bad: #ff9d5c; }}\n\
         svg [fill=\"{TEXT_INK}\"] {{ fill: var(--ink); }}\n\
         svg [stroke=\"{TEXT_INK}\"] {{ stroke: var(--ink); }}\n\
         svg [stroke=\"{GRID_INK}\"] {{ stroke: var(--line); }}\n\
         svg [fill=\"#0072B2\"] {{ fill: #4aa8e0; }} svg [stroke=\"#0072B2\"] {{ stroke: #4aa8e0; }}\n\
         }}\n\
         body {{ margin: 0 auto; padding: 0 16px 48px; max-width: 1500px; background: var(--page); color: var(--ink); \
         font: 16px/1.45 system-ui, sans-serif; overflow-wrap: anywhere; }}\n\
         h2 {{ margin-top: 2.2em; border-top: 1px solid var(--line); padding-top: .8em; }}\n\
         .figure {{ display: flex; flex-wrap: wrap; gap: 12px; }}\n\
         .figure svg {{ flex: 1 1 340px; max-width: 720px; min-width: 0; width: 100%; height: auto; }}\n\
         .wide {{ overflow-x: auto; overflow-wrap: normal; }}\n\
         table {{ border-collapse: collapse; font-size: 14px; }}\n\
         th, td {{ text-align: left; vertical-align: top; padding: 4px 12px 4px 0; border-bottom: 1px solid var(--line); }}\n\
         td.number {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}\n\
         .holds {{ color: var(--good); }} .fails {{ color: var(--bad); }}\n\
         .small {{ font-size: 14px; }} details {{ margin: .8em 0; }} code {{ font-size: .95em; }}\n"
    )
}

fn section(report: &Report) -> Result<String, BenchError> {
    let findings = &report.findings;
    let mut html = format!(
        "<h2 id=\"{0}\"><code>{0}</code></h2>\n<p>{1}. The paper found: {2}.</p>\n<p class=\"small\">{3}.</p>\n",
        escaped(&report.row),
        escaped(&report.paper),
        escaped(&report.paper_found),
        escaped(&circumstances(report)),
    );
    if !findings.ratios.is_empty() {
        html.push_str("<div class=\"wide\"><table>\n<tr><th>compared<th>under<th>ratio<th>the paper's claim\n");
        findings.ratios.iter().for_each(|ratio| html.push_str(&ratio_row(ratio)));
        html.push_str("</table></div>\n");
    }
    html.push_str("<div class=\"figure\">\n");
    for panel in &findings.panels {
        let svg = panel_svg(&report.row, panel)?;
        html.push_str(&with_title(&svg, &panel.title));
    }
    html.push_str("</div>\n");
    for note in &findings.notes {
        let _ = writeln!(html, "<p class=\"small\">{}</p>", escaped(note));
    }
    html.push_str("<details><summary>Fabrics</summary><div class=\"wide\"><table>\n<tr><th>fabric<th>measured<th>\n");
    findings.fabrics.iter().for_each(|fabric| html.push_str(&fabric_row(fabric)));
    html.push_str(
        "</table></div></details>\n<details><summary>Every measurement</summary><div class=\"wide\"><table>\n",
    );
    html.push_str("<tr><th>variant<th>at<th>quantity<th>median<th>least<th>most<th>unit\n");
    findings.measurements.iter().for_each(|measurement| html.push_str(&measurement_row(measurement)));
    html.push_str("</table></div></details>\n");
    Ok(html)
}

fn ratio_row(ratio: &Ratio) -> String {
    let claim = match &ratio.claim {
        None => String::new(),
        Some(claim) => {
            let (class, word) = match claim.verdict {
                Verdict::Holds => ("holds", "holds"),
                Verdict::DoesNotHold => ("fails", "does not hold here"),
                Verdict::RoundsDisagree => ("open", "rounds disagree: run it longer, or on a quieter machine"),
            };
            let reason = claim.reason.as_ref().map_or(String::new(), |reason| format!(": {}", escaped(reason)));
            format!("{}: <span class=\"{class}\">{word}</span>{reason}", escaped(&claim.text))
        }
    };
    format!(
        "<tr><td>{}<td>{}<td class=\"number\">{}<td>{claim}\n",
        escaped(&ratio.what),
        escaped(&ratio.under),
        ratio.spread,
    )
}

fn fabric_row(fabric: &FabricFound) -> String {
    let capabilities =
        fabric.capabilities.as_ref().map_or(String::new(), |table| format!("<br>{}", escaped(&table.to_string())));
    let measured = if fabric.measured { "yes" } else { "no" };
    format!("<tr><td>{}<td>{measured}<td>{}{capabilities}\n", escaped(&fabric.name), escaped(&fabric.because))
}

fn measurement_row(measurement: &Measurement) -> String {
    let labels: Vec<&str> = measurement.labels.iter().map(|(_, value)| value.as_str()).collect();
    let spread = &measurement.spread;
    format!(
        "<tr><td>{}<td class=\"number\">{}<td>{}<td class=\"number\">{}<td class=\"number\">{}<td class=\"number\">{}<td>{}\n",
        escaped(&labels.join(", ")),
        measurement.x,
        escaped(&measurement.quantity),
        number(spread.median),
        number(spread.min),
        number(spread.max),
        escaped(&measurement.unit),
    )
}

/// The SVG with a name for those who do not see it, and without a fixed size.
fn with_title(svg: &str, title: &str) -> String {
    let (open, rest) = svg.split_once('>').unwrap_or(("<svg", ""));
    let view = open.find("viewBox=").map_or("", |at| &open[at..]);
    format!("<svg role=\"img\" aria-label=\"{}\" {view}>{rest}", escaped(title))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use crate::report::test::report;

    use super::*;

    #[test]
    fn the_page_stands_alone() {
        let html = report_html(&[report()]).unwrap();
        let without_names = html.replace("http://www.w3.org/2000/svg", "");
        for outside in ["http:", "https:", "//", "src=", "<link", "<script", "url(", "@import"] {
            assert!(!without_names.contains(outside), "{outside}");
        }
        assert_eq!(html.matches("<svg").count(), 2);
        assert!(html.contains("prefers-color-scheme: dark") && html.contains("name=\"viewport\""));
        assert!(html.contains("does not hold here</span>: the &lt;agent&gt; executes"));
        assert!(html.contains("2 (1.5 to 3)"));
        for row in rows() {
            assert!(html.contains(&format!("<code>{}</code>", row.name)), "{} is listed", row.name);
        }
    }

    #[test]
    fn inks_are_those_that_the_page_changes() {
        let html = report_html(&[report()]).unwrap();
        for ink in [TEXT_INK, GRID_INK] {
            let drawn = html.split("<body>").nth(1).unwrap();
            assert!(drawn.contains(&format!("\"{ink}\"")), "{ink} is not in the figure");
        }
    }
}
