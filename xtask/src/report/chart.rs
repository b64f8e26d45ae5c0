//! Charts as SVG: lines over size, dots by row, bars in order. Colours change with the reader's scheme.

use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

/// Colours of the paper, its text, lines and grid: in light, and in dark.
const SCHEME: [[&str; 2]; 4] = [
    ["#FFFFFF", "#0D1117"],
    ["#1F2328", "#E6EDF3"],
    ["#57606A", "#9198A1"],
    ["#D8DEE4", "#30363D"],
];
const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xff);
const TEXT: RGBColor = RGBColor(0x1f, 0x23, 0x28);
const LINE: RGBColor = RGBColor(0x57, 0x60, 0x6a);
const GRID: RGBColor = RGBColor(0xd8, 0xde, 0xe4);

/// Colours of series, distinct on white and on black.
const SERIES: [RGBColor; 7] = [
    RGBColor(0x2f, 0x81, 0xf7),
    RGBColor(0xd2, 0x6a, 0x1e),
    RGBColor(0x2d, 0xa4, 0x4e),
    RGBColor(0xa3, 0x71, 0xf7),
    RGBColor(0xe5, 0x53, 0x4b),
    RGBColor(0x9a, 0x86, 0x00),
    RGBColor(0x8c, 0x95, 0x9f),
];

const WIDTH: u32 = 880;

/// Values under one name.
pub(crate) struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// True if the points are joined; those of others' publications are separate crosses.
    pub joined: bool,
}

/// Both axes logarithmic.
pub(crate) struct Lines<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
    pub series: &'a [Series],
}

/// Both axes linear, the second from 0.
pub(crate) struct Curves<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
    pub series: &'a [Series],
}

/// A row of dots for every name, on one logarithmic axis. Points are (row, value).
pub(crate) struct Dots<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub rows: &'a [String],
    pub series: &'a [Series],
}

/// A bar for every value, in order, coloured by kind.
pub(crate) struct Bars<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
    /// Kind and value.
    pub bars: &'a [(String, f64)],
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Runs a drawing and writes it.
fn save(path: &Path, height: u32, draw: impl Fn(&Area<'_>) -> Result<()>) -> Result<()> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        area.fill(&PAPER).map_err(failed)?;
        draw(&area)?;
        area.present().map_err(failed)?;
    }
    fs::write(path, adapt(&svg))?;
    Ok(())
}

/// Adds a style by which the colours of [`SCHEME`] follow the reader's.
fn adapt(svg: &str) -> String {
    let mut rules = String::new();
    for [light, dark] in SCHEME {
        for what in ["fill", "stroke"] {
            rules += &format!("[{what}=\"{light}\"]{{{what}:{dark}}}");
        }
    }
    let style = format!("<style>@media(prefers-color-scheme:dark){{{rules}}}</style>");
    match svg.find("<svg").and_then(|start| Some(start + svg[start..].find('>')? + 1)) {
        Some(end) => format!("{}\n{style}{}", &svg[..end], &svg[end..]),
        None => svg.to_owned(),
    }
}

fn failed<E: std::error::Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> anyhow::Error {
    anyhow!("cannot draw: {error}")
}

fn text(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&TEXT)
}

/// The range of values, from a power of ten to one, so that both ends carry a number.
fn decades(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (low, high) = values.fold((f64::MAX, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
    // A hair beyond the powers, so that rounding does not take their numbers away.
    let floor = 10f64.powf((low * 0.9).log10().floor()) * 0.9999;
    let ceiling = 10f64.powf((high * 1.1).log10().ceil()) * 1.0001;
    floor..ceiling
}

fn colour(series: usize) -> RGBColor {
    SERIES[series % SERIES.len()]
}

/// Draws the title and the legend, a line for each series, and returns the area below them.
fn head<'a>(area: &Area<'a>, title: &str, series: &[Series]) -> Result<Area<'a>> {
    area.draw(&Text::new(title.to_owned(), (16, 12), text(20))).map_err(failed)?;
    let mut at = 44;
    for (number, each) in series.iter().enumerate() {
        mark(area, (24, at + 6), number, each.joined)?;
        area.draw(&Text::new(each.name.clone(), (40, at), text(14))).map_err(failed)?;
        at += 20;
    }
    Ok(area.clone().margin(at + 4, 8, 8, 24))
}

/// A filled dot for our measurements, a cross for others' publications.
fn mark(area: &Area<'_>, at: (i32, i32), series: usize, joined: bool) -> Result<()> {
    let style = colour(series);
    if joined {
        area.draw(&Circle::new(at, 5, style.filled())).map_err(failed)
    } else {
        area.draw(&Cross::new(at, 5, style.stroke_width(2))).map_err(failed)
    }
}

impl Lines<'_> {
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        save(path, 480 + 20 * self.series.len() as u32, |area| self.draw(area))
    }

    fn draw(&self, area: &Area<'_>) -> Result<()> {
        let plot = head(area, self.title, self.series)?;
        let points = || self.series.iter().flat_map(|series| &series.points);
        let xs = decades(points().map(|point| point.0));
        let ys = decades(points().map(|point| point.1));
        let mut chart = ChartBuilder::on(&plot)
            .x_label_area_size(48)
            .y_label_area_size(76)
            .build_cartesian_2d(xs.log_scale(), ys.log_scale())
            .map_err(failed)?;
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(self.y)
            .axis_style(LINE)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .label_style(text(13))
            .axis_desc_style(text(14))
            .x_label_formatter(&|value| number(*value))
            .y_label_formatter(&|value| number(*value))
            .draw()
            .map_err(failed)?;
        for (i, series) in self.series.iter().enumerate() {
            let style = colour(i);
            if series.joined {
                let line = LineSeries::new(series.points.iter().copied(), style.stroke_width(2));
                chart.draw_series(line).map_err(failed)?;
                let dots = series.points.iter().map(|&at| Circle::new(at, 4, style.filled()));
                chart.draw_series(dots).map_err(failed)?;
            } else {
                let marks =
                    series.points.iter().map(|&at| Cross::new(at, 6, style.stroke_width(2)));
                chart.draw_series(marks).map_err(failed)?;
            }
        }
        Ok(())
    }
}

impl Curves<'_> {
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        save(path, 480 + 20 * self.series.len() as u32, |area| self.draw(area))
    }

    fn draw(&self, area: &Area<'_>) -> Result<()> {
        let plot = head(area, self.title, self.series)?;
        let points = || self.series.iter().flat_map(|series| &series.points);
        let right = points().map(|point| point.0).fold(0.0, f64::max);
        let top = points().map(|point| point.1).fold(0.0, f64::max);
        let mut chart = ChartBuilder::on(&plot)
            .x_label_area_size(48)
            .y_label_area_size(76)
            .build_cartesian_2d(0.0..right.max(1.0), 0.0..(1.05 * top).max(1e-3))
            .map_err(failed)?;
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(self.y)
            .axis_style(LINE)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .label_style(text(13))
            .axis_desc_style(text(14))
            .x_label_formatter(&|value| number(*value))
            .y_label_formatter(&|value| number(*value))
            .draw()
            .map_err(failed)?;
        for (i, series) in self.series.iter().enumerate() {
            let style = colour(i).stroke_width(2);
            let line = LineSeries::new(series.points.iter().copied(), style);
            chart.draw_series(line).map_err(failed)?;
        }
        Ok(())
    }
}

impl Dots<'_> {
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let height = 130 + 30 * self.rows.len() + 20 * self.series.len();
        save(path, height as u32, |area| self.draw(area))
    }

    fn draw(&self, area: &Area<'_>) -> Result<()> {
        let plot = head(area, self.title, self.series)?;
        let points = || self.series.iter().flat_map(|series| &series.points);
        let xs = decades(points().map(|point| point.1));
        let rows = self.rows.len();
        // Row 0 is at the top.
        let place = |row: f64| rows as f64 - 0.5 - row;
        let mut chart = ChartBuilder::on(&plot)
            .x_label_area_size(48)
            .y_label_area_size(220)
            .build_cartesian_2d(xs.clone().log_scale(), 0.0..rows as f64)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .x_desc(self.x)
            .axis_style(LINE)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .disable_y_mesh()
            .y_labels(0)
            .label_style(text(13))
            .axis_desc_style(text(14))
            .x_label_formatter(&|value| number(*value))
            .draw()
            .map_err(failed)?;
        for (row, name) in self.rows.iter().enumerate() {
            let y = place(row as f64);
            let line = PathElement::new(vec![(xs.start, y), (xs.end, y)], GRID);
            chart.draw_series([line]).map_err(failed)?;
            let (_, at) = chart.backend_coord(&(xs.start, y));
            area.draw(&Text::new(name.clone(), (24, at - 5), text(13))).map_err(failed)?;
        }
        for (i, series) in self.series.iter().enumerate() {
            let style = colour(i);
            let points = series.points.iter().map(|&(row, value)| (value, place(row)));
            if series.joined {
                let dots = points.map(|at| Circle::new(at, 5, style.filled()));
                chart.draw_series(dots).map_err(failed)?;
            } else {
                let marks = points.map(|at| Cross::new(at, 5, style.stroke_width(2)));
                chart.draw_series(marks).map_err(failed)?;
            }
        }
        Ok(())
    }
}

impl Bars<'_> {
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let kinds = self.kinds();
        save(path, 360 + 20 * kinds.len() as u32, |area| self.draw(area, &kinds))
    }

    /// Each kind once, the largest sum first.
    fn kinds(&self) -> Vec<(String, f64)> {
        let mut kinds: Vec<(String, f64)> = Vec::new();
        for (kind, value) in self.bars {
            match kinds.iter_mut().find(|(known, _)| known == kind) {
                Some((_, sum)) => *sum += value,
                None => kinds.push((kind.clone(), *value)),
            }
        }
        kinds.sort_by(|a, b| b.1.total_cmp(&a.1));
        kinds
    }

    fn draw(&self, area: &Area<'_>, kinds: &[(String, f64)]) -> Result<()> {
        let all: f64 = kinds.iter().map(|kind| kind.1).sum();
        let series: Vec<Series> = kinds
            .iter()
            .map(|(kind, sum)| Series {
                name: format!("{kind}: {:.0} %", 100.0 * sum / all),
                points: Vec::new(),
                joined: true,
            })
            .collect();
        let plot = head(area, self.title, &series)?;
        let top = self.bars.iter().map(|bar| bar.1).fold(0.0, f64::max) * 1.05;
        let mut chart = ChartBuilder::on(&plot)
            .x_label_area_size(48)
            .y_label_area_size(76)
            .build_cartesian_2d(0.0..self.bars.len() as f64, 0.0..top)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(self.y)
            .axis_style(LINE)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .disable_x_mesh()
            .label_style(text(13))
            .axis_desc_style(text(14))
            .x_label_formatter(&|value| number(*value))
            .y_label_formatter(&|value| number(*value))
            .draw()
            .map_err(failed)?;
        let kind_of = |kind: &String| kinds.iter().position(|known| known.0 == *kind).unwrap_or(0);
        let bars = self.bars.iter().enumerate().map(|(i, (kind, value))| {
            let (left, right) = (i as f64 + 0.1, i as f64 + 0.9);
            Rectangle::new([(left, 0.0), (right, *value)], colour(kind_of(kind)).filled())
        });
        chart.draw_series(bars).map_err(failed)?;
        Ok(())
    }
}

/// A short form of a value on an axis.
fn number(value: f64) -> String {
    let (size, unit) = match value.abs() {
        v if v >= 0.999e9 => (1e9, " G"),
        v if v >= 0.999e6 => (1e6, " M"),
        v if v >= 0.999e4 => (1e3, " k"),
        _ => (1.0, ""),
    };
    let scaled = value / size;
    // As many digits as it takes, without noise from the last bits.
    let text = format!("{scaled:.6}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_run_between_powers_of_ten_around_the_values() {
        let range = decades([0.02, 3.0].into_iter());
        assert!((range.start - 0.01).abs() < 1e-5 && (range.end - 10.0).abs() < 1e-2);
    }

    #[test]
    fn numbers_on_axes_are_short() {
        let texts = [0.001, 0.5, 1.0, 1000.0, 20_000.0, 1e6, 2.5e9].map(number);
        assert_eq!(texts, ["0.001", "0.5", "1", "1000", "20 k", "1 M", "2.5 G"]);
    }

    #[test]
    fn colours_of_the_scheme_follow_the_reader() {
        let svg = adapt("<svg width=\"8\"><rect fill=\"#FFFFFF\"/></svg>");
        assert!(svg.starts_with("<svg width=\"8\">\n<style>@media(prefers-color-scheme:dark)"));
        assert!(svg.contains("[fill=\"#FFFFFF\"]{fill:#0D1117}"));
    }
}
