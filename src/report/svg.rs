//! Draws a line chart as SVG with CSS classes for colours, so that the page's style sheet sets them.
//!
//! `chart` chooses the contents. Values are already scaled: this file has no logarithms.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;

/// Width and usual height in SVG units. The page scales the drawing to its width.
pub const DRAWING_SIZE: (u32, u32) = (720, 290);
/// Margins around the plot area for tick labels and overhang. `page.html` has the same values.
const MARGINS: Margins = Margins { top: 10, right: 40, bottom: 30, left: 104 };

struct Margins {
    top: u32,
    right: u32,
    bottom: u32,
    left: u32,
}
const FONT: &str = "sans-serif";
const FONT_SIZE: i32 = 15;
/// Further series reuse the colours.
pub const COLOUR_COUNT: usize = 8;

/// Placeholders that [`colours_to_classes`] turns into classes. Any distinct colours would work.
const TEXT_PLACEHOLDER: RGBColor = RGBColor(1, 0, 0);
const AXIS_PLACEHOLDER: RGBColor = RGBColor(2, 0, 0);
const GRID_PLACEHOLDER: RGBColor = RGBColor(3, 0, 0);

#[derive(Clone)]
pub struct Axis {
    /// Quantity and scale. The page prints it next to the drawing, where it can wrap.
    pub label: String,
    pub low: f64,
    pub high: f64,
    /// Positions and labels of the grid lines.
    pub ticks: Vec<(f64, String)>,
    /// Scale and unit for the page's script.
    pub script_scale: String,
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

/// The kind of a series, which determines its style.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeriesKind {
    /// Its own colour and dashes.
    Curve,
    /// Measured values, solid, in the colour of the published ones.
    Measured,
    /// Published values, dashed.
    Published,
    /// A theoretical limit.
    Limit,
    /// The time of an event.
    Event,
}

/// An entry of a legend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LegendEntry {
    pub class: String,
    pub name: String,
    pub line: bool,
    /// Number of its point shape.
    pub mark: Option<usize>,
    /// `fill` or `line`.
    pub mark_style: &'static str,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ChartSeries {
    pub label: String,
    pub kind: SeriesKind,
    /// Index of the colour, from 0. `None`: the next free one.
    pub colour: Option<usize>,
    pub points: Vec<(f64, f64)>,
    /// Points marked with a dot.
    pub dots: Vec<(f64, f64)>,
    /// Points marked with a ring.
    pub rings: Vec<(f64, f64)>,
}

impl ChartSeries {
    pub fn curve(label: &str, points: Vec<(f64, f64)>) -> ChartSeries {
        ChartSeries {
            label: label.to_owned(),
            kind: SeriesKind::Curve,
            colour: None,
            points,
            dots: vec![],
            rings: vec![],
        }
    }

    /// The class of each series: `s1`, `s2` … for curves.
    fn classes(series: &[ChartSeries]) -> Vec<String> {
        series.iter().zip(series_colours(series)).map(|(one, colour)| one.kind.css_class(colour)).collect()
    }

    /// The legend of the named series. Several runs may share an entry.
    pub fn legend(series: &[ChartSeries]) -> Vec<LegendEntry> {
        let mut legend: Vec<LegendEntry> = Vec::new();
        for ((one, class), colour) in
            series.iter().zip(ChartSeries::classes(series)).zip(series_colours(series))
        {
            let dotted = !one.dots.is_empty() || !one.rings.is_empty();
            let mark = match one.kind {
                SeriesKind::Limit => None,
                SeriesKind::Event => Some(1),
                _ => Some(colour + 1),
            };
            let drawn = if one.dots.is_empty() { "line" } else { "fill" };
            let entry = LegendEntry {
                name: one.label.clone(),
                line: !one.points.is_empty(),
                mark: mark.filter(|_| dotted),
                mark_style: drawn,
                class,
            };
            if !one.label.is_empty() && !legend.contains(&entry) {
                legend.push(entry);
            }
        }
        legend
    }
}

impl SeriesKind {
    fn css_class(self, colour: usize) -> String {
        match self {
            SeriesKind::Curve => format!("s{}", colour + 1),
            SeriesKind::Measured => format!("m{}", colour + 1),
            SeriesKind::Published => format!("p{}", colour + 1),
            SeriesKind::Limit => "limit".to_owned(),
            SeriesKind::Event => "event".to_owned(),
        }
    }

    /// The placeholder colour of its class.
    fn placeholder_colour(self, colour: usize) -> RGBColor {
        match self {
            SeriesKind::Curve => RGBColor(0, 1 + colour as u8, 0),
            SeriesKind::Measured => RGBColor(0, 1 + colour as u8, 1),
            SeriesKind::Published => RGBColor(0, 1 + colour as u8, 2),
            SeriesKind::Limit => RGBColor(0, 0, 1),
            SeriesKind::Event => RGBColor(0, 0, 2),
        }
    }
}

/// The colour index of each series. Limits and events use none.
fn series_colours(series: &[ChartSeries]) -> impl Iterator<Item = usize> {
    series.iter().scan(0, |next, one| {
        let colour = one.colour.unwrap_or(*next) % COLOUR_COUNT;
        *next += usize::from(!matches!(one.kind, SeriesKind::Limit | SeriesKind::Event));
        Some(colour)
    })
}

/// The contents of `<svg>`; `None` if there is nothing to draw.
pub fn draw_svg(x: &Axis, y: &Axis, series: &[ChartSeries], height: u32) -> Option<String> {
    let finite = |axis: &Axis| axis.low.is_finite() && axis.high.is_finite() && axis.low < axis.high;
    let nothing = |one: &ChartSeries| one.points.is_empty() && one.dots.is_empty() && one.rings.is_empty();
    if !finite(x) || !finite(y) || series.iter().all(nothing) {
        return None;
    }
    let mut svg = String::new();
    paint_chart(&mut svg, x, y, series, height).ok()?;
    let start = svg.find(">\n")? + 2;
    let end = svg.rfind("</svg>")?;
    Some(compact_svg(&colours_to_classes(&svg[start..end])))
}

type PaintResult = Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn paint_chart(svg: &mut String, x: &Axis, y: &Axis, series: &[ChartSeries], height: u32) -> PaintResult {
    let area = SVGBackend::with_string(svg, (DRAWING_SIZE.0, height)).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin_top(MARGINS.top)
        .margin_right(MARGINS.right)
        .x_label_area_size(MARGINS.bottom)
        .y_label_area_size(MARGINS.left)
        .build_cartesian_2d(x.clone(), y.clone())?;
    let text = (FONT, FONT_SIZE).into_font().color(&TEXT_PLACEHOLDER);
    chart
        .configure_mesh()
        .bold_line_style(GRID_PLACEHOLDER)
        .light_line_style(TRANSPARENT)
        .axis_style(AXIS_PLACEHOLDER)
        .set_all_tick_mark_size(0)
        .label_style(text)
        .draw()?;
    for (one, colour) in series.iter().zip(series_colours(series)) {
        let colour = one.kind.placeholder_colour(colour);
        chart.draw_series(LineSeries::new(one.points.iter().copied(), colour.stroke_width(2)))?;
        chart.draw_series(one.dots.iter().map(|dot| Circle::new(*dot, 4, colour.filled())))?;
        chart.draw_series(one.rings.iter().map(|ring| Circle::new(*ring, 5, colour.stroke_width(2))))?;
    }
    area.present()
}

/// Attributes that the style sheet sets by class. Without them a page with hundreds of charts is half as large.
const STYLED_ATTRIBUTES: [(&str, &str); 7] = [
    (" fill=\"none\"", ""),
    (" stroke=\"none\"", ""),
    (" stroke-width=\"1\"", ""),
    (" stroke-width=\"2\"", ""),
    (" opacity=\"1\"", ""),
    (" dy=\"0.5ex\" text-anchor=\"end\" class=\"text-fill\"", " class=\"y-tick\""),
    (" dy=\"0.76em\" text-anchor=\"middle\" class=\"text-fill\"", " class=\"x-tick\""),
];

/// The same drawing in fewer bytes.
fn compact_svg(svg: &str) -> String {
    let mut thin = String::with_capacity(svg.len() / 2);
    let (grid, others): (Vec<&str>, Vec<&str>) = svg.lines().partition(|line| line.contains(GRID_LINE_CLASS));
    let path: String = grid.into_iter().filter_map(path_segment).collect();
    thin += &format!("<path {GRID_LINE_CLASS} d=\"{path}\"/>\n");
    for line in others {
        let mut line = line.to_owned();
        if let Some((before, rest)) = line.split_once(" font-size=\"")
            && let Some((_, after)) = rest.split_once('"')
        {
            line = format!("{before}{after}");
        }
        for (attribute, short) in STYLED_ATTRIBUTES {
            line = line.replace(attribute, short);
        }
        if let Some((before, rest)) = line.split_once(" points=\"")
            && let Some((points, after)) = rest.split_once('"')
        {
            line = format!("{before} points=\"{}\"{after}", simplify_points(points));
        }
        line = mark_symbol(&line).unwrap_or(line);
        thin += &line;
        // The contents of a text element are on a separate line.
        if line.ends_with("/>") || line.ends_with("</text>") {
            thin.push('\n');
        }
    }
    thin
}

/// Replaces the circle of a curve by the symbol of its colour. The page defines the symbols, `mark-1` and on.
fn mark_symbol(line: &str) -> Option<String> {
    let of = |name: &str| line.split_once(&format!(" {name}=\""))?.1.split_once('"').map(|(value, _)| value);
    let class = of("class").filter(|_| line.starts_with("<circle"))?;
    let number: usize = class.strip_prefix(['s', 'm', 'p'])?.split('-').next()?.parse().ok()?;
    let (x, y) = (of("cx")?, of("cy")?);
    Some(format!("<use href=\"#mark-{number}\" x=\"{x}\" y=\"{y}\" class=\"{class}\"/>"))
}

const GRID_LINE_CLASS: &str = "class=\"grid-line\"";

/// A straight line as a part of a path.
fn path_segment(line: &str) -> Option<String> {
    let at = |name: &str| line.split_once(&format!(" {name}=\""))?.1.split_once('"').map(|(value, _)| value);
    Some(format!("M{} {}L{} {}", at("x1")?, at("y1")?, at("x2")?, at("y2")?))
}

/// Maximum distance of the line (two units wide) from an omitted point: the distance from the corner of a step of one
/// unit.
const MAX_DEVIATION: f64 = 0.75;
/// Maximum number of consecutive omitted points, so that the pointer always finds one nearby.
const MAX_OMITTED_POINTS: usize = 40;

/// Removes the points that the line passes exactly or nearly.
fn simplify_points(points: &str) -> String {
    let number = |text: &str| text.parse::<f64>().ok();
    let pair = |pair: &str| pair.split_once(',').and_then(|(x, y)| Some((number(x)?, number(y)?)));
    let mut result: Vec<(f64, f64)> = Vec::new();
    // The points since the last one in the result. The line ends at the last of them.
    let mut since: Vec<(f64, f64)> = Vec::new();
    for point in points.split_whitespace().filter_map(pair) {
        let straight = result.last().is_some_and(|from| {
            since.len() < MAX_OMITTED_POINTS
                && since.iter().all(|one| distance_to_segment(*one, *from, point) <= MAX_DEVIATION)
        });
        if !straight {
            result.extend(since.pop());
            since.clear();
            if result.is_empty() {
                result.push(point);
                continue;
            }
        }
        since.push(point);
    }
    result.extend(since.pop());
    result.iter().map(|(x, y)| format!("{x},{y}")).collect::<Vec<_>>().join(" ")
}

/// Distance of a point from the straight line between two others.
fn distance_to_segment(point: (f64, f64), from: (f64, f64), to: (f64, f64)) -> f64 {
    let minus = |a: (f64, f64), b: (f64, f64)| (a.0 - b.0, a.1 - b.1);
    let (along, out) = (minus(to, from), minus(point, from));
    let length = along.0.powi(2) + along.1.powi(2);
    let share =
        if length > 0.0 { ((out.0 * along.0 + out.1 * along.1) / length).clamp(0.0, 1.0) } else { 0.0 };
    let foot = minus(out, (share * along.0, share * along.1));
    foot.0.hypot(foot.1)
}

/// Turns placeholder colours into classes. Foreign text cannot imitate them, because its quotes are escaped.
fn colours_to_classes(svg: &str) -> String {
    let mut svg = svg.replace(&format!(" font-family=\"{FONT}\""), "");
    let mut class = |colour: RGBColor, name: &str| {
        let hex = format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2);
        svg = svg.replace(&format!("fill=\"{hex}\""), &format!("class=\"{name}-fill\""));
        svg = svg.replace(&format!("stroke=\"{hex}\""), &format!("class=\"{name}-line\""));
    };
    class(TEXT_PLACEHOLDER, "text");
    class(AXIS_PLACEHOLDER, "axis");
    class(GRID_PLACEHOLDER, "grid");
    for kind in [SeriesKind::Limit, SeriesKind::Event] {
        class(kind.placeholder_colour(0), &kind.css_class(0));
    }
    for colour in 0..COLOUR_COUNT {
        for kind in [SeriesKind::Curve, SeriesKind::Measured, SeriesKind::Published] {
            class(kind.placeholder_colour(colour), &kind.css_class(colour));
        }
    }
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(high: f64) -> Axis {
        Axis {
            label: String::new(),
            low: 0.0,
            high,
            ticks: vec![(0.0, "<x> & \"y\"".to_owned())],
            script_scale: String::new(),
        }
    }

    #[test]
    fn every_colour_is_a_class() {
        let line = |kind| ChartSeries {
            kind,
            dots: vec![(1.0, 1.0)],
            ..ChartSeries::curve("a", vec![(0.0, 0.0), (1.0, 1.0)])
        };
        let mut series = vec![line(SeriesKind::Limit)];
        series.extend((0..10).map(|_| line(SeriesKind::Curve)));
        series.push(line(SeriesKind::Event));
        let classes = ["limit", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s1", "s2", "event"];
        assert_eq!(ChartSeries::classes(&series), classes);
        let svg = draw_svg(&axis(1.0), &axis(1.0), &series, DRAWING_SIZE.1).unwrap();
        assert!(!svg.replace("\"#mark-", "").contains('#') && !svg.contains("<svg"), "{svg}");
        for class in classes {
            let there = |what: &str| svg.contains(&format!("class=\"{class}-{what}\""));
            assert!(there("line") && there("fill"), "{class} in {svg}");
        }
        assert!(svg.contains("&lt;x&gt; &amp; &quot;y&quot;"), "{svg}");
    }

    #[test]
    fn simplified_line_keeps_its_corners() {
        assert_eq!(simplify_points("1,1 1,1 5,1 9,1 9,4 9,7 3,7 "), "1,1 9,1 9,7 3,7");
        assert_eq!(simplify_points("1,1 2,2 3,3"), "1,1 3,3");
        assert_eq!(simplify_points("1,9 2,9 2,1 2,9 3,9"), "1,9 2,9 2,1 2,9 3,9", "what sticks out stays");
        assert_eq!(simplify_points("0,0 0,1 1,1 1,2 2,2 2,3 3,3"), "0,0 3,3", "steps of a pixel are none");
        assert_eq!((simplify_points("4,4"), simplify_points("")), ("4,4".to_owned(), String::new()));
        let long: String = (0..200).map(|x| format!("{x},7 ")).collect();
        assert_eq!(simplify_points(&long).split(' ').count(), 6);
    }

    #[test]
    fn nothing_to_draw() {
        assert!(
            draw_svg(&axis(1.0), &axis(1.0), &[ChartSeries::curve("", vec![])], DRAWING_SIZE.1).is_none()
        );
        let dot = || [ChartSeries { dots: vec![(0.0, 0.0)], ..ChartSeries::curve("", vec![]) }];
        assert!(draw_svg(&axis(f64::NAN), &axis(1.0), &dot(), DRAWING_SIZE.1).is_none());
        assert!(draw_svg(&axis(0.0), &axis(1.0), &dot(), DRAWING_SIZE.1).is_none());
    }
}
