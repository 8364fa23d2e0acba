//! Figures as SVG: panels with labelled axes, a line for each variant through its medians, whiskers from least to most.
//!
//! Colours are those of Okabe and Ito, which people with any common colour vision tell apart, and each line has a mark
//! of its own besides. The inks of text and grid occur nowhere else, so a page can change them for a dark background.

use std::f64::consts::{PI, TAU};

use plotters::backend::SVGBackend;
use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{EmptyElement, PathElement, Polygon, Text};
use plotters::style::{Color, FontDesc, FontStyle, IntoFont, RGBColor, TRANSPARENT, TextStyle, WHITE};

use crate::error::BenchError;
use crate::report::{Line, Panel, Point, Report};
use crate::scale::Scale;

/// The ink of text and axes, as it stands in the SVG.
pub const TEXT_INK: &str = "#202124";
/// The ink of the grid, as it stands in the SVG.
pub const GRID_INK: &str = "#D9DCE0";

const TEXT: RGBColor = RGBColor(0x20, 0x21, 0x24);
const GRID: RGBColor = RGBColor(0xd9, 0xdc, 0xe0);

const PALETTE: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x7f, 0x7f, 0x7f),
    RGBColor(0x8c, 0x51, 0x0a),
];

/// Width and height of one panel, in pixels at its natural size.
const PANEL: (u32, u32) = (480, 360);
/// Panels beside each other.
const ACROSS: usize = 3;
/// Height of the head of a figure, with its title and what it was measured on.
const HEAD: u32 = 58;
/// Size of the legends' font, in the drawing library's measure (0.8 of it in pixels).
const LEGEND: u32 = 15;
/// Width of a character in parts of the font's size, on the safe side.
const CHARACTER: f64 = 0.52;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type DrawingResult = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// The figure of a report: all its panels on white, under a head.
pub fn svg(report: &Report) -> Result<String, BenchError> {
    let panels = &report.findings.panels;
    let across = panels.len().clamp(1, ACROSS);
    let rows = panels.len().div_ceil(across).max(1);
    let size = (PANEL.0 * across as u32, PANEL.1 * rows as u32 + HEAD);
    let mut svg = String::new();
    draw(&mut svg, size, |area| {
        area.fill(&WHITE)?;
        let (head, body) = area.split_vertically(HEAD);
        let fitting = |text: &str, font: f64| fit(text, (f64::from(size.0) - 24.0) / (font * CHARACTER));
        head.draw(&Text::new(fitting(&format!("{}  ({})", report.row, report.paper), 22.0), (12, 12), bold(22)))?;
        head.draw(&Text::new(fitting(&circumstances(report), 15.0), (12, 38), style(15)))?;
        for (panel, area) in panels.iter().zip(body.split_evenly((rows, across))) {
            draw_panel(&area, panel)?;
        }
        Ok(())
    })
    .map_err(|error| BenchError::Figure { row: report.row.clone(), reason: error.to_string() })?;
    Ok(svg)
}

/// One panel by itself, without a background.
pub fn panel_svg(row: &str, panel: &Panel) -> Result<String, BenchError> {
    let mut svg = String::new();
    draw(&mut svg, PANEL, |area| draw_panel(area, panel))
        .map_err(|error| BenchError::Figure { row: row.to_owned(), reason: error.to_string() })?;
    Ok(svg)
}

/// What the numbers belong to, in one line.
pub(crate) fn circumstances(report: &Report) -> String {
    let machine = &report.machine;
    format!(
        "{} rounds{}, medians with least and most; {}, {} {}, {}, load {:.1} before; verbena {}, seed {}",
        report.rounds,
        if report.quick { " (short ones)" } else { "" },
        machine.cpu,
        machine.cores,
        if machine.cores == 1 { "core" } else { "cores" },
        machine.kernel,
        machine.load,
        report.verbena,
        report.seed,
    )
}

fn draw(svg: &mut String, size: (u32, u32), paint: impl FnOnce(&Area) -> DrawingResult) -> DrawingResult {
    let area = SVGBackend::with_string(svg, size).into_drawing_area();
    paint(&area)?;
    area.present()
}

fn draw_panel(area: &Area, panel: &Panel) -> DrawingResult {
    let (title, rest) = area.split_vertically(30);
    title.draw(&Text::new(panel.title.clone(), (14, 10), bold(18)))?;
    let (legend, plot) = rest.split_vertically(legend_height(&panel.series));
    draw_legend(&legend, &panel.series)?;

    let points = || panel.series.iter().flat_map(|line| &line.points);
    let x = Scale::with_ticks_at_values(&panel.x, points().map(|point| point.x));
    let y = Scale::new(&panel.y, points().flat_map(|point| [point.y.median, point.y.min, point.y.max]));
    let mut chart = ChartBuilder::on(&plot)
        .margin(6)
        .margin_right(16)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(TEXT)
        .label_style(style(15))
        .axis_desc_style(style(16))
        .x_desc(&panel.x.label)
        .y_desc(&panel.y.label)
        .draw()?;

    for line in &panel.series {
        let ink = PALETTE[line.style % PALETTE.len()];
        let along: Vec<(f64, f64)> = line.points.iter().map(|point| (point.x, point.y.median)).collect();
        chart.draw_series([PathElement::new(along, ink.stroke_width(2))])?;
        for Point { x, y } in &line.points {
            chart.draw_series([PathElement::new(vec![(*x, y.min), (*x, y.max)], ink.stroke_width(1))])?;
            for end in [y.min, y.max] {
                let cap = PathElement::new(vec![(-3, 0), (3, 0)], ink.stroke_width(1));
                chart.draw_series([EmptyElement::at((*x, end)) + cap])?;
            }
            chart.draw_series([EmptyElement::at((*x, y.median)) + mark(line.style)])?;
        }
    }
    Ok(())
}

/// Where each entry of a legend begins: entries flow from left to right, and on to another line.
fn legend_places(lines: &[Line]) -> Vec<(i32, i32)> {
    const LEFT: i32 = 22;
    let mut at = (LEFT, 8);
    let mut places = Vec::new();
    for line in lines {
        let width = 34 + (line.name.chars().count() as f64 * f64::from(LEGEND) * CHARACTER) as i32;
        if at.0 > LEFT && at.0 + width > PANEL.0 as i32 {
            at = (LEFT, at.1 + 19);
        }
        places.push(at);
        at.0 += width;
    }
    places
}

fn legend_height(lines: &[Line]) -> u32 {
    legend_places(lines).last().map_or(0, |last| last.1 as u32 + 14)
}

fn draw_legend(area: &Area, lines: &[Line]) -> DrawingResult {
    for (line, (x, y)) in lines.iter().zip(legend_places(lines)) {
        let ink = PALETTE[line.style % PALETTE.len()];
        area.draw(&PathElement::new(vec![(x - 8, y), (x + 8, y)], ink.stroke_width(2)))?;
        area.draw(&(EmptyElement::at((x, y)) + mark(line.style)))?;
        area.draw(&Text::new(line.name.clone(), (x + 13, y - 7), style(LEGEND)))?;
    }
    Ok(())
}

/// The mark of a line, around (0, 0): a shape for each style, so that colour is never all that tells two lines apart.
fn mark(style: usize) -> Polygon<(i32, i32)> {
    let ring = |corners: u32, turn: f64| -> Vec<(i32, i32)> {
        let corner = |number: u32| f64::from(number) / f64::from(corners) * TAU + turn;
        (0..corners).map(|number| corner(number).sin_cos()).map(|(sin, cos)| pixel(5.0 * sin, -5.0 * cos)).collect()
    };
    let shape = match style % PALETTE.len() {
        0 => ring(16, 0.0),
        1 => vec![(-4, -4), (4, -4), (4, 4), (-4, 4)],
        2 => ring(3, 0.0),
        3 => ring(4, 0.0),
        4 => ring(3, PI),
        5 => vec![(-5, -2), (5, -2), (5, 2), (-5, 2)],
        6 => vec![(-2, -5), (2, -5), (2, 5), (-2, 5)],
        _ => ring(5, 0.0),
    };
    Polygon::new(shape, PALETTE[style % PALETTE.len()].filled())
}

fn pixel(x: f64, y: f64) -> (i32, i32) {
    (x.round() as i32, y.round() as i32)
}

/// `text`, cut to about `characters`.
fn fit(text: &str, characters: f64) -> String {
    let most = characters as usize;
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

fn style(size: u32) -> TextStyle<'static> {
    font(size).color(&TEXT)
}

fn bold(size: u32) -> TextStyle<'static> {
    font(size).style(FontStyle::Bold).color(&TEXT)
}

fn font(size: u32) -> FontDesc<'static> {
    ("sans-serif", size).into_font()
}

#[cfg(test)]
mod tests {
    use crate::report::test::report;

    use super::*;

    #[test]
    fn a_figure_names_its_axes_and_lines() {
        let svg = svg(&report()).unwrap();
        for text in [
            "fabric.primitives",
            "size (bytes)",
            "latency (us)",
            "variant 0",
            "variant 7",
            "Logarithmic &amp; all",
            "4K",
        ] {
            assert!(svg.contains(text), "{text} is not in the figure");
        }
        // One whisker with two caps for each of 3 points on 8 lines in 2 panels, and the mark.
        assert!(svg.matches("<polygon").count() >= 2 * 8 * 3 + 2 * 8);
        assert!(svg.contains("#0072B2") && svg.contains("#D55E00"));
    }

    #[test]
    fn legends_stay_inside() {
        let places = legend_places(&report().findings.panels[0].series);
        assert_eq!(places.len(), 8);
        assert!(places.iter().all(|(x, _)| *x < PANEL.0 as i32 - 60));
        assert!(places.windows(2).all(|pair| pair[0].1 < pair[1].1 || pair[0].0 + 60 < pair[1].0));
    }
}
