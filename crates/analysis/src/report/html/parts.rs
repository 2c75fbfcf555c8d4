//! Parts of pages that runs, studies and overlays share: charts, fits, texts.

use minijinja::context;
use minijinja::value::Value;

use crate::explain::size::SizeFit;
use crate::report::chart::{Chart, Panel};
use crate::report::svg::{Axis, DRAWING_SIZE, LegendEntry};
use crate::report::wording::fit_lines;

/// Prevents a line break between a number and its unit.
pub(crate) fn keep_units_together(text: &str) -> String {
    let mut after_digit = false;
    let keep = |c: char| {
        let space = if after_digit && c == ' ' { '\u{a0}' } else { c };
        after_digit = c.is_ascii_digit();
        space
    };
    text.chars().map(keep).collect()
}

/// Prevents a line break inside a date.
pub(crate) fn keep_dates_together(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let is_digit = |index: usize| chars.get(index).is_some_and(char::is_ascii_digit);
    let keep = |(index, c): (usize, &char)| match c {
        '-' if index > 0 && is_digit(index - 1) && is_digit(index + 1) => '\u{2011}',
        c => *c,
    };
    chars.iter().enumerate().map(keep).collect()
}

/// A line for each fit whose cases are among these.
pub(crate) fn fit_texts(fits: &[SizeFit], cases: &[usize]) -> Vec<String> {
    fit_lines(fits, cases).iter().map(|line| keep_units_together(line)).collect()
}

pub(crate) fn chart_contexts(charts: impl IntoIterator<Item = Chart>) -> Vec<Value> {
    let axis = |axis: Axis| context! { label => axis.label, from => format_axis_end(axis.low), to => format_axis_end(axis.high), reads => axis.script_scale };
    let panel = |panel: Panel| context! { label => panel.label, y => axis(panel.y), height => panel.height, svg => Value::from_safe_string(panel.svg) };
    let chart = |chart: Chart| {
        context! {
            title => chart.title, caption => chart.caption, x => axis(chart.x),
            panels => chart.panels.into_iter().map(panel).collect::<Vec<Value>>(),
            legend => legend_contexts(&chart.legend), width => DRAWING_SIZE.0,
        }
    };
    charts.into_iter().map(chart).collect()
}

/// The end of an axis, with full precision.
fn format_axis_end(end: f64) -> String {
    let text = format!("{end:.7e}");
    text.parse::<f64>().map_or(text, |end| end.to_string())
}

fn legend_contexts(legend: &[LegendEntry]) -> Vec<Value> {
    legend
        .iter()
        .map(|entry| {
            context! {
                name => entry.name.clone(), class => entry.class.clone(), line => entry.line, mark => entry.mark,
                drawn => entry.mark_style,
            }
        })
        .collect()
}
