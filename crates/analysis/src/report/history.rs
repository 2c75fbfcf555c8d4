//! The page of a history: a figure of each case over time, with the changes of its level and their dates.

use std::io;

use minijinja::{Value, context};

use super::chart::history::{HistoryChange, HistoryTrend, trend_chart};
use super::html;
use super::wording::plural;

/// Minimum number of runs of a chart.
const MIN_CHART_RUNS: usize = 3;

/// Writes the page of these trends, below a sentence about all of them.
///
/// # Errors
/// If the sink fails.
pub fn write_history(trends: &[HistoryTrend], answer: &str, out: &mut dyn io::Write) -> io::Result<()> {
    html::write_page(&render_page(trends, answer).map_err(io::Error::other)?, out)
}

fn render_page(trends: &[HistoryTrend], answer: &str) -> Result<String, minijinja::Error> {
    let (charted, short): (Vec<&HistoryTrend>, Vec<&HistoryTrend>) =
        trends.iter().partition(|trend| trend.points.len() >= MIN_CHART_RUNS);
    let last = trends.iter().flat_map(|trend| &trend.points).map(|(started, _)| *started).max();
    let metric = trends.first().map_or("Nothing", |trend| trend.metric.as_str());
    html::render_template(
        "history.html",
        context! {
            title => format!("{metric} over time, {}", plural(trends.len(), "case")),
            answer => html::keep_units_together(answer),
            metric,
            least => MIN_CHART_RUNS,
            short => short.into_iter().map(short_trend_context).collect::<Vec<Value>>(),
            tool => concat!("linkgauge ", env!("CARGO_PKG_VERSION")),
            date => last.map(|last| last.strftime("%Y-%m-%d").to_string()),
            trends => charted.into_iter().map(trend_context).collect::<Vec<Value>>(),
        },
    )
}

fn short_trend_context(trend: &HistoryTrend) -> Value {
    let last = trend.points.last();
    context! {
        name => trend.name.clone(),
        runs => trend.points.len(),
        date => last.map(|(started, _)| started.strftime("%Y-%m-%d %H:%M").to_string()),
        last => last.map(|(_, value)| trend.unit.format(*value)),
    }
}

fn trend_context(trend: &HistoryTrend) -> Value {
    let change = |change: &HistoryChange| {
        let date =
            trend.points.get(change.index).map(|(started, _)| started.strftime("%Y-%m-%d %H:%M").to_string());
        context! {
            date, run => change.run.clone(), before => trend.unit.format(change.before), after => trend.unit.format(change.after),
        }
    };
    context! {
        name => trend.name.clone(),
        answer => trend.answer.clone(),
        charts => html::chart_contexts(trend_chart(trend)),
        changes => trend.changes.iter().map(change).collect::<Vec<Value>>(),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use linkgauge_model::metric::MetricUnit;

    fn trend(values: &[f64], changes: Vec<HistoryChange>) -> HistoryTrend {
        let day = |index: i64| Timestamp::from_second(1_795_000_000 + 86_400 * index).unwrap();
        HistoryTrend {
            name: "tcp://<b>gw</b>, latency".to_owned(),
            answer: "p50 of tcp://gw: 20 ms in the last run".to_owned(),
            metric: "p50".to_owned(),
            unit: MetricUnit::Nanoseconds,
            points: (0..).map(day).zip(values.iter().copied()).collect(),
            changes,
        }
    }

    fn page(trends: &[HistoryTrend]) -> String {
        let mut out = Vec::new();
        write_history(trends, "p50 of 1 case: no change.", &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn changes_stand_in_the_chart_and_in_a_table_with_their_dates() {
        let values = [vec![10e6; 12], vec![20e6; 12]].concat();
        let change = HistoryChange { index: 12, run: "20261122T-aa".to_owned(), before: 10e6, after: 20e6 };
        let html = page(&[trend(&values, vec![change])]);
        assert!(html.contains("20261122T-aa") && html.contains("10.00 ms") && html.contains("20.00 ms"));
        assert!(html.contains("2026-11-30 ") && html.matches("11-30").count() >= 2, "the date of the change");
        let lines = |html: &str| html.matches("limit").count();
        assert!(lines(&html) >= lines(&page(&[trend(&values, Vec::new())])) + 2, "a line for each level");
        assert!(html.contains("&lt;b&gt;gw") && !html.contains("<b>gw"), "foreign text is escaped");
    }

    #[test]
    fn short_and_unreached_histories_have_a_page() {
        assert!(page(&[]).contains("Nothing over time"));
        assert!(page(&[trend(&[f64::INFINITY; 3], Vec::new())]).contains("No change of level"));
        let charts = |values: &[f64]| page(&[trend(values, Vec::new())]).matches("<figure>").count();
        assert_eq!([charts(&[1e6, 2e6]), charts(&[1e6, 2e6, 3e6])], [0, 1]);
        let few = page(&[trend(&[1e6, 2e6], Vec::new())]);
        assert!(few.contains("Cases with fewer than 3 runs") && few.contains(">2.000 ms<"), "{few}");
    }
}
