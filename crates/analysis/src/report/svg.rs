//! Draws a line chart as SVG with CSS classes for colours, so that the page's style sheet sets them.
//!
//! `chart` chooses the contents. Values are already scaled: this file has no logarithms. The page's script reads the
//! values back from the coordinates, so these have more digits than a screen shows.

use std::fmt::Write as _;

/// Width and usual height in SVG units. The page scales the drawing to its width.
pub(crate) const DRAWING_SIZE: (u32, u32) = (720, 290);
/// Margins around the plot area for tick labels and overhang. `page.js` has the same values.
const MARGINS: Margins = Margins { top: 10.0, right: 40.0, bottom: 30.0, left: 104.0 };

struct Margins {
    top: f64,
    right: f64,
    bottom: f64,
    left: f64,
}

/// Number of colours; further series reuse them.
pub(crate) const COLOUR_COUNT: usize = 8;

#[derive(Clone)]
pub(crate) struct Axis {
    /// Quantity and scale. The page prints it next to the drawing, where it can wrap.
    pub(crate) label: String,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Positions and labels of the grid lines.
    pub(crate) ticks: Vec<(f64, String)>,
    /// Scale and unit for the page's script.
    pub(crate) script_scale: String,
}

impl Axis {
    fn share(&self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    fn is_drawable(&self) -> bool {
        self.low.is_finite() && self.high.is_finite() && self.low < self.high
    }
}

/// The kind of a series, which determines its style.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeriesKind {
    /// The own colour and dashes.
    Curve,
    /// Measured values, solid, in the colour of the published ones.
    Measured,
    /// Published values, dashed.
    Published,
    /// A theoretical limit.
    Limit,
    /// The times of events, as ticks at the upper edge.
    Event,
}

/// An entry of a legend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LegendEntry {
    pub(crate) class: String,
    pub name: String,
    pub(crate) line: bool,
    /// Number of the point shape of the series.
    pub(crate) mark: Option<usize>,
    /// Style of the mark: `fill` or `line`.
    pub(crate) mark_style: &'static str,
}

/// A range beside a curve at one position: low and high.
pub(crate) type RangeAt = (f64, f64, f64);

/// A box plot at one position: whiskers, box and the line in the box, lowest value first.
pub(crate) type BoxAt = (f64, [f64; 5]);

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChartSeries {
    pub(crate) label: String,
    pub(crate) kind: SeriesKind,
    /// Index of the colour, from 0. `None`: the next free one.
    pub(crate) colour: Option<usize>,
    pub(crate) points: Vec<(f64, f64)>,
    /// Points marked with a dot.
    pub(crate) dots: Vec<(f64, f64)>,
    /// Points marked with a ring.
    pub(crate) rings: Vec<(f64, f64)>,
    /// A shaded range.
    pub(crate) band: Vec<RangeAt>,
    pub(crate) boxes: Vec<BoxAt>,
}

impl ChartSeries {
    pub(crate) fn curve(label: &str, points: Vec<(f64, f64)>) -> ChartSeries {
        ChartSeries {
            label: label.to_owned(),
            kind: SeriesKind::Curve,
            colour: None,
            points,
            dots: vec![],
            rings: vec![],
            band: vec![],
            boxes: vec![],
        }
    }

    /// Ticks at the upper edge of a chart.
    pub(crate) fn events(label: &str, dots: Vec<(f64, f64)>) -> ChartSeries {
        ChartSeries { kind: SeriesKind::Event, dots, ..ChartSeries::curve(label, vec![]) }
    }

    fn is_empty(&self) -> bool {
        self.points.is_empty() && self.dots.is_empty() && self.rings.is_empty() && self.boxes.is_empty()
    }

    /// All values on the vertical axis.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut f64> {
        let points = self.points.iter_mut().chain(&mut self.dots).chain(&mut self.rings);
        let ranges = self.band.iter_mut().flat_map(|(_, low, high)| [low, high]);
        points
            .map(|point| &mut point.1)
            .chain(ranges)
            .chain(self.boxes.iter_mut().flat_map(|(_, values)| values))
    }

    /// The class of each series: `s1`, `s2` … for curves.
    fn classes(series: &[ChartSeries]) -> Vec<String> {
        series.iter().zip(series_colours(series)).map(|(one, colour)| one.kind.css_class(colour)).collect()
    }

    /// The legend of the named series. Several runs may share an entry.
    pub(crate) fn legend(series: &[ChartSeries]) -> Vec<LegendEntry> {
        let mut legend: Vec<LegendEntry> = Vec::new();
        for ((one, class), colour) in
            series.iter().zip(ChartSeries::classes(series)).zip(series_colours(series))
        {
            let dotted = !one.dots.is_empty() || !one.rings.is_empty();
            let mark = match one.kind {
                SeriesKind::Limit => None,
                SeriesKind::Event => Some(EVENT_MARK),
                _ => Some(colour + 1),
            };
            let is_filled = !one.dots.is_empty() && one.kind != SeriesKind::Event;
            let entry = LegendEntry {
                name: one.label.clone(),
                line: !one.points.is_empty() || !one.boxes.is_empty(),
                mark: mark.filter(|_| dotted),
                mark_style: if is_filled { "fill" } else { "line" },
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
}

/// The colour index of each series. Limits and events use none.
fn series_colours(series: &[ChartSeries]) -> impl Iterator<Item = usize> {
    series.iter().scan(0, |next, one| {
        let colour = one.colour.unwrap_or(*next) % COLOUR_COUNT;
        *next += usize::from(!matches!(one.kind, SeriesKind::Limit | SeriesKind::Event));
        Some(colour)
    })
}

/// Number of the point shape of events. The page defines the shapes, `mark-1` and on.
const EVENT_MARK: usize = COLOUR_COUNT + 1;

/// The contents of `<svg>`; `None` if there is nothing to draw.
pub(crate) fn draw_svg(x: &Axis, y: &Axis, series: &[ChartSeries], height: u32) -> Option<String> {
    if !x.is_drawable() || !y.is_drawable() || series.iter().all(ChartSeries::is_empty) {
        return None;
    }
    let mut drawing = Drawing { x, y, bottom: f64::from(height) - MARGINS.bottom, svg: String::new() };
    drawing.draw_axes();
    for ((one, class), colour) in series.iter().zip(ChartSeries::classes(series)).zip(series_colours(series))
    {
        drawing.draw_series(one, &class, colour);
    }
    Some(drawing.svg)
}

struct Drawing<'a> {
    x: &'a Axis,
    y: &'a Axis,
    /// Bottom of the plot area.
    bottom: f64,
    svg: String,
}

/// The right edge of the plot area.
const RIGHT: f64 = DRAWING_SIZE.0 as f64 - MARGINS.right;

impl Drawing<'_> {
    fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (
            MARGINS.left + self.x.share(x) * (RIGHT - MARGINS.left),
            self.bottom - self.y.share(y) * (self.bottom - MARGINS.top),
        )
    }

    pub fn push(&mut self, line: std::fmt::Arguments) {
        self.svg.write_fmt(line).expect("a string takes everything");
        self.svg.push('\n');
    }

    fn draw_axes(&mut self) {
        let (left, top, right, bottom) = (MARGINS.left, MARGINS.top, RIGHT, self.bottom);
        let (x, y) = (self.x, self.y);
        let at = |axis: &Axis, tick: f64| (axis.low..=axis.high).contains(&tick);
        let mut grid = String::new();
        for (tick, name) in x.ticks.iter().filter(|(tick, _)| at(x, *tick)) {
            let place = digits(self.place((*tick, 0.0)).0);
            grid += &format!("M{place} {top}V{bottom}");
            self.push(format_args!(
                "<text x=\"{place}\" y=\"{bottom}\" class=\"x-tick\">{}</text>",
                escape(name)
            ));
        }
        for (tick, name) in y.ticks.iter().filter(|(tick, _)| at(y, *tick)) {
            let place = digits(self.place((0.0, *tick)).1);
            grid += &format!("M{left} {place}H{right}");
            self.push(format_args!(
                "<text x=\"{left}\" y=\"{place}\" class=\"y-tick\">{}</text>",
                escape(name)
            ));
        }
        self.push(format_args!("<path class=\"grid-line\" d=\"{grid}\"/>"));
        self.push(format_args!("<path class=\"axis-line\" d=\"M{left} {top}V{bottom}H{right}\"/>"));
    }

    fn draw_series(&mut self, one: &ChartSeries, class: &str, colour: usize) {
        let name = escape(&one.label);
        let name = if name.is_empty() { name } else { format!(" data-name=\"{name}\"") };
        self.push(format_args!("<g{name}>"));
        let back = one.band.iter().rev().map(|(x, low, _)| (*x, *low));
        let outline: Vec<(f64, f64)> = one.band.iter().map(|(x, _, high)| (*x, *high)).chain(back).collect();
        self.draw_shape("polygon", &outline, &format!("{class}-band"));
        self.draw_shape("polyline", &one.points, &format!("{class}-line"));
        for (x, values) in &one.boxes {
            self.draw_box(*x, *values, class);
        }
        let mark = if one.kind == SeriesKind::Event { EVENT_MARK } else { colour + 1 };
        let filled = if one.kind == SeriesKind::Event { "line" } else { "fill" };
        for (points, style) in [(&one.dots, filled), (&one.rings, "line")] {
            for point in points {
                let (x, y) = self.place(*point);
                let (x, y) = (digits(x), digits(y));
                self.push(format_args!(
                    "<use href=\"#mark-{mark}\" x=\"{x}\" y=\"{y}\" class=\"{class}-{style}\"/>"
                ));
            }
        }
        self.push(format_args!("</g>"));
    }

    fn draw_shape(&mut self, kind: &str, points: &[(f64, f64)], class: &str) {
        let placed: Vec<(f64, f64)> = points
            .iter()
            .filter(|(x, y)| x.is_finite() && y.is_finite())
            .map(|point| self.place(*point))
            .collect();
        if placed.is_empty() {
            return;
        }
        let points: Vec<String> =
            simplify(&placed).into_iter().map(|(x, y)| format!("{},{}", digits(x), digits(y))).collect();
        self.push(format_args!("<{kind} class=\"{class}\" points=\"{}\"/>", points.join(" ")));
    }

    /// Whiskers with ends, a box, and the line in the box.
    fn draw_box(&mut self, x: f64, [least, low, middle, high, most]: [f64; 5], class: &str) {
        let (left, right) = (x - BOX_HALF_WIDTH, x + BOX_HALF_WIDTH);
        let whiskers = [vec![(x, least), (x, low)], vec![(x, high), (x, most)]];
        let outline = [(left, low), (right, low), (right, high), (left, high)];
        self.draw_shape("polygon", &outline, &format!("{class}-band"));
        for line in whiskers.iter().chain([&vec![(left, middle), (right, middle)]]) {
            self.draw_shape("polyline", line, &format!("{class}-line"));
        }
    }
}

/// Half of the width of a box, in units of the horizontal axis, on which box plots are one apart.
const BOX_HALF_WIDTH: f64 = 0.3;

/// Formats a value with one decimal, so that the script can zoom.
fn digits(value: f64) -> String {
    let text = format!("{value:.1}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Escapes a text for SVG text and for attributes in double quotes.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            c => out.push(c),
        }
    }
    out
}

/// Maximum distance of the line (two units wide) from an omitted point.
const MAX_DEVIATION: f64 = 0.5;
/// Maximum number of consecutive omitted points, so that the pointer always finds one nearby.
const MAX_OMITTED_POINTS: usize = 40;

/// Removes the points that the line passes exactly or nearly.
fn simplify(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut result: Vec<(f64, f64)> = Vec::new();
    // The points since the last one in the result. The line ends at the last of them.
    let mut since: Vec<(f64, f64)> = Vec::new();
    for &point in points {
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
    result
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
            ..ChartSeries::curve("<a> \"b\"", vec![(0.0, 0.0), (1.0, 1.0)])
        };
        let mut series = vec![line(SeriesKind::Limit)];
        series.extend((0..10).map(|_| line(SeriesKind::Curve)));
        series.push(line(SeriesKind::Event));
        let classes = ["limit", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s1", "s2", "event"];
        assert_eq!(ChartSeries::classes(&series), classes);
        let svg = draw_svg(&axis(1.0), &axis(1.0), &series, DRAWING_SIZE.1).unwrap();
        assert!(!svg.replace("\"#mark-", "").contains('#') && !svg.contains("<svg"), "{svg}");
        for class in classes {
            assert!(svg.contains(&format!("class=\"{class}-line\"")), "{class} in {svg}");
        }
        assert!(svg.contains("&lt;x&gt; &amp; &quot;y&quot;"), "{svg}");
        assert!(svg.contains("<g data-name=\"&lt;a&gt; &quot;b&quot;\">"), "{svg}");
    }

    #[test]
    fn points_stand_where_their_values_are() {
        let series = ChartSeries {
            band: vec![(0.0, 0.0, 0.5), (1.0, 0.5, 1.0)],
            boxes: vec![(0.5, [0.0, 0.2, 0.5, 0.8, 1.0])],
            ..ChartSeries::curve("", vec![(0.0, 0.0), (0.25, 1.0), (1.0, 0.5), (f64::NAN, 0.0)])
        };
        let svg = draw_svg(&axis(1.0), &axis(1.0), &[series], DRAWING_SIZE.1).unwrap();
        let shapes: Vec<&str> = svg.lines().filter(|line| line.starts_with("<poly")).collect();
        insta::assert_snapshot!(shapes.join("\n"), @r#"
        <polygon class="s1-band" points="104,135 680,10 680,135 104,260"/>
        <polyline class="s1-line" points="104,260 248,10 680,135"/>
        <polygon class="s1-band" points="219.2,210 564.8,210 564.8,60 219.2,60"/>
        <polyline class="s1-line" points="392,260 392,210"/>
        <polyline class="s1-line" points="392,60 392,10"/>
        <polyline class="s1-line" points="219.2,135 564.8,135"/>
        "#);
    }

    #[test]
    fn simplified_line_keeps_its_corners() {
        let line = |text: &str| {
            let pairs = text.split_whitespace().map(|pair| pair.split_once(',').unwrap());
            let points: Vec<(f64, f64)> =
                pairs.map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap())).collect();
            let points = simplify(&points).into_iter().map(|(x, y)| format!("{x},{y}"));
            points.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line("1,1 1,1 5,1 9,1 9,4 9,7 3,7 "), "1,1 9,1 9,7 3,7");
        assert_eq!(line("1,1 2,2 3,3"), "1,1 3,3");
        assert_eq!(line("1,9 2,9 2,1 2,9 3,9"), "1,9 2,9 2,1 2,9 3,9", "what sticks out stays");
        assert_eq!(line("0,0 0,0.4 0.4,0.4 0.4,0.8 0.8,0.8"), "0,0 0.8,0.8", "small steps are none");
        assert_eq!((line("4,4"), line("")), ("4,4".to_owned(), String::new()));
        let long: String = (0..200).map(|x| format!("{x},7 ")).collect();
        assert_eq!(line(&long).split(' ').count(), 6);
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
