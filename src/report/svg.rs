//! Draws a line chart as SVG whose colours are classes, so that the page's style sheet decides them.
//!
//! Not for choosing what to draw (`chart`). Values come in already scaled: this file knows no logarithm.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;

/// In the SVG's own units; the page scales it to its width.
pub const SIZE: (u32, u32) = (720, 290);
const FONT: &str = "sans-serif";
const FONT_SIZE: i32 = 15;
/// More series than colours: they begin again.
pub const COLOURS: usize = 6;

/// Stand-ins that [`classes`] turns into classes; any colours would do that differ.
const TEXT: RGBColor = RGBColor(1, 0, 0);
const AXIS: RGBColor = RGBColor(2, 0, 0);
const GRID: RGBColor = RGBColor(3, 0, 0);

#[derive(Clone)]
pub struct Axis {
    /// Quantity and scale. The page writes it beside the drawing, where it can wrap.
    pub label: String,
    pub low: f64,
    pub high: f64,
    /// Where a grid line stands and what is written there.
    pub ticks: Vec<(f64, String)>,
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        limit.0 + (f64::from(limit.1 - limit.0) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.iter().map(|(at, _)| *at).collect()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|(at, _)| at == value);
        tick.map(|(_, name)| name.clone()).unwrap_or_default()
    }
}

#[derive(Debug, Default, PartialEq)]
pub struct Series {
    pub label: String,
    pub points: Vec<(f64, f64)>,
    /// Points that are marked with a dot.
    pub dots: Vec<(f64, f64)>,
}

/// What stands inside `<svg>`; `None` when there is nothing to draw.
pub fn draw(x: &Axis, y: &Axis, series: &[Series]) -> Option<String> {
    let finite = |axis: &Axis| axis.low.is_finite() && axis.high.is_finite() && axis.low < axis.high;
    if !finite(x) || !finite(y) || series.iter().all(|one| one.points.is_empty() && one.dots.is_empty()) {
        return None;
    }
    let mut svg = String::new();
    paint(&mut svg, x, y, series).ok()?;
    let start = svg.find(">\n")? + 2;
    let end = svg.rfind("</svg>")?;
    Some(classes(&svg[start..end]))
}

type Painting = Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn paint(svg: &mut String, x: &Axis, y: &Axis, series: &[Series]) -> Painting {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin_top(10)
        .margin_right(40)
        .x_label_area_size(30)
        .y_label_area_size(104)
        .build_cartesian_2d(x.clone(), y.clone())?;
    let text = (FONT, FONT_SIZE).into_font().color(&TEXT);
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(AXIS)
        .label_style(text)
        .draw()?;
    for (index, one) in series.iter().enumerate() {
        let colour = RGBColor(0, 1 + (index % COLOURS) as u8, 0);
        chart.draw_series(LineSeries::new(one.points.iter().copied(), colour.stroke_width(2)))?;
        chart.draw_series(one.dots.iter().map(|dot| Circle::new(*dot, 4, colour.filled())))?;
    }
    area.present()
}

/// Turns the stand-in colours into classes. Text of others cannot pretend: its quotes are escaped.
fn classes(svg: &str) -> String {
    let mut svg = svg.replace(" opacity=\"1\"", "").replace(&format!(" font-family=\"{FONT}\""), "");
    let mut class = |colour: RGBColor, name: &str| {
        let hex = format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2);
        svg = svg.replace(&format!("fill=\"{hex}\""), &format!("class=\"{name}-fill\""));
        svg = svg.replace(&format!("stroke=\"{hex}\""), &format!("class=\"{name}-line\""));
    };
    class(TEXT, "text");
    class(AXIS, "axis");
    class(GRID, "grid");
    for index in 1..=COLOURS {
        class(RGBColor(0, index as u8, 0), &format!("s{index}"));
    }
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(high: f64) -> Axis {
        Axis { label: String::new(), low: 0.0, high, ticks: vec![(0.0, "<x> & \"y\"".to_owned())] }
    }

    #[test]
    fn every_colour_is_a_class() {
        let line = |label: &str| Series {
            label: label.to_owned(),
            points: vec![(0.0, 0.0), (1.0, 1.0)],
            dots: vec![(1.0, 1.0)],
        };
        let series: Vec<Series> = (0..8).map(|_| line("a")).collect();
        let svg = draw(&axis(1.0), &axis(1.0), &series).unwrap();
        assert!(!svg.contains('#') && !svg.contains("<svg"), "{svg}");
        assert!(svg.contains("class=\"s6-line\"") && svg.contains("class=\"s2-fill\""), "{svg}");
        assert!(svg.contains("&lt;x&gt; &amp; &quot;y&quot;"), "{svg}");
    }

    #[test]
    fn nothing_to_draw() {
        assert!(draw(&axis(1.0), &axis(1.0), &[Series::default()]).is_none());
        let dot = || [Series { dots: vec![(0.0, 0.0)], ..Series::default() }];
        assert!(draw(&axis(f64::NAN), &axis(1.0), &dot()).is_none());
        assert!(draw(&axis(0.0), &axis(1.0), &dot()).is_none());
    }
}
