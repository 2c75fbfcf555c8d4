//! The window model as text and tables.

use std::collections::BTreeMap;

use super::super::FindingBlock;
use super::{AssessedRow, Bottleneck, NOTABLE_RESIDUAL_PERCENT, WindowFit, WindowModel, count_limited_by};
use linkgauge_model::stats::Interval;
use linkgauge_model::units::{format_count, format_nanoseconds};

const ABSENT: &str = "–";

impl WindowModel {
    /// The window and what it limits.
    pub(super) fn summary(&self) -> Vec<FindingBlock> {
        let fit = self.relative_fit();
        let [window, capacity] = [fit.window_bytes, fit.capacity_bps.map(|bps| bps / 8.0)]
            .map(|value| value.map_or("unknown".to_owned(), count_text));
        let heading = match self.limit {
            Bottleneck::ThisModelDoesNotFit => "The window: unknown".to_owned(),
            _ => format!("The window: {window} bytes for each round trip; capacity {capacity} B/s"),
        };
        vec![FindingBlock::Heading(heading), FindingBlock::Text(self.bottleneck_text())]
    }

    pub(super) fn blocks(&self) -> Vec<FindingBlock> {
        let mut blocks = vec![FindingBlock::Heading("The window: bytes per round trip".to_owned())];
        let form = format!("{}, where W is the file's bytes per round trip", self.form);
        blocks.extend([form, self.rows_text()].map(FindingBlock::Text));
        blocks.push(self.fits_table());
        blocks.push(self.rows_table());
        blocks.extend(self.sentences().into_iter().map(FindingBlock::Text));
        blocks
    }

    /// The rows and the source of their figures.
    fn rows_text(&self) -> String {
        let measured = self.rows.iter().filter(|judged| judged.row.round_trip_measured).count();
        let source = match (self.published, &self.stand_in) {
            (true, _) => "published".to_owned(),
            (false, Some(stand_in)) => format!("measured on an {stand_in}, no hardware"),
            (false, None) => "measured".to_owned(),
        };
        let round_trips = match measured {
            0 => "both configured delays".to_owned(),
            all if all == self.rows.len() => "measured by requests to the same URL".to_owned(),
            some => format!("measured by requests in {some} of them, both configured delays in the others"),
        };
        let mut left_out = BTreeMap::<&str, Vec<&str>>::new();
        self.left_out.iter().for_each(|row| left_out.entry(&row.why).or_default().push(&row.name));
        let left_out =
            left_out.iter().map(|(why, names)| format!(" Left out: {} ({why}).", names.join("; ")));
        format!("Rows: {}, {source}. RTT: {round_trips}.{}", self.rows.len(), left_out.collect::<String>())
    }

    fn fits_table(&self) -> FindingBlock {
        let head = ["fit", "weights", "W (95 %), B", "capacity (95 %), B/s"];
        let rows = self.fits.iter().map(|fit| {
            let bits = |interval: Interval| Interval { low: interval.low / 8.0, high: interval.high / 8.0 };
            vec![
                fit.method.to_owned(),
                fit.weights.to_owned(),
                with_interval(fit.window_bytes, fit.window_bytes_interval),
                with_interval(fit.capacity_bps.map(|bps| bps / 8.0), fit.capacity_bps_interval.map(bits)),
            ]
        });
        FindingBlock::Table {
            text_columns: 2,
            header: head.map(str::to_owned).to_vec(),
            rows: rows.collect(),
        }
    }

    fn rows_table(&self) -> FindingBlock {
        let careful = format!("{} give", self.careful_window);
        let head = ["row", "RTT", "B/s", "least", "T–S", "rel.", "limit", "fills", &careful];
        let row = |(index, judged): (usize, &AssessedRow)| {
            let mut cells = vec![
                judged.row.name.clone(),
                time_text(judged.row.round_trip_ns),
                format_count(judged.row.bytes_per_second().round() as u64),
            ];
            cells.extend(self.fits.iter().map(|fit| signed_percent(fit.residuals_percent[index])));
            cells.push(bottleneck_name(judged.limit).to_owned());
            cells.push(judged.filling_window.map_or(ABSENT.to_owned(), |window| window.to_string()));
            cells.push(judged.careful_window_bps.map_or(ABSENT.to_owned(), |bps| count_text(bps / 8.0)));
            cells
        };
        let rows = self.rows.iter().enumerate().map(row).collect();
        FindingBlock::Table { text_columns: 1, header: head.map(str::to_owned).to_vec(), rows }
    }

    fn sentences(&self) -> Vec<String> {
        let link = match self.rows.iter().any(|judged| judged.row.configured_bps.is_some()) {
            true => {
                "fill the link, but at most twice the capacity: the work of the server and the link can only overlap"
            }
            false => "reach the capacity; the link rate is unknown",
        };
        let mut sentences = vec![format!(
            "least, T–S, rel.: rate by that fit, above (+) or below (−) the row's. limit, fills, give: by the relative fit. \
             fills: concurrent requests that {link}."
        )];
        sentences.extend(self.misses_text());
        sentences.extend(self.chunk_text());
        sentences.extend(self.capacity_text());
        sentences.push(self.bottleneck_text());
        sentences
    }

    /// The rows with large residuals.
    fn misses_text(&self) -> Option<String> {
        if self.limit == Bottleneck::ThisModelDoesNotFit {
            return None;
        }
        let mut weighted = false;
        let mut misses = |(index, judged): (usize, &AssessedRow)| {
            let poor_fits = |fit: &&WindowFit| fit.residuals_percent[index].abs() > NOTABLE_RESIDUAL_PERCENT;
            let poor_fits: Vec<&WindowFit> = self.fits.iter().filter(poor_fits).collect();
            weighted |= poor_fits.iter().any(|fit| fit.method == self.relative_fit().method);
            let by = |fit: &&WindowFit| {
                format!("{} ({})", fit.method, signed_percent(fit.residuals_percent[index]))
            };
            let by: Vec<String> = poor_fits.iter().map(by).collect();
            (!poor_fits.is_empty()).then(|| format!("{} is missed by {}", judged.row.name, by.join(" and ")))
        };
        let misses: Vec<String> = self.rows.iter().enumerate().filter_map(&mut misses).collect();
        let why = if weighted { "" } else { ": unweighted, the slow rows decide" };
        (!misses.is_empty()).then(|| format!("{}{why}.", misses.join("; ")))
    }

    /// The cost of a chunk, by all fits.
    fn chunk_text(&self) -> Option<String> {
        let chunk = self.chunk_bytes.filter(|_| self.limit != Bottleneck::ThisModelDoesNotFit)?;
        let costs: Vec<f64> =
            self.fits.iter().filter_map(|fit| Some(f64::from(chunk) / fit.window_bytes?)).collect();
        let printed = |cost: Option<f64>| cost.map(|cost| format!("{cost:.2}"));
        let least = printed(costs.iter().copied().reduce(f64::min))?;
        let most = printed(costs.iter().copied().reduce(f64::max))?;
        let cost = if least == most { least } else { format!("{least}–{most}") };
        Some(format!("A chunk of {chunk} bytes costs {cost} round trips."))
    }

    /// The fitted capacity beside the configured link rate.
    fn capacity_text(&self) -> Option<String> {
        let mut configured: Vec<f64> =
            self.rows.iter().filter_map(|judged| judged.row.configured_bps).collect();
        configured.sort_unstable_by(f64::total_cmp);
        configured.dedup();
        let configured: Vec<String> = configured.iter().map(|bps| count_text(bps / 8.0)).collect();
        if configured.is_empty() || self.limit == Bottleneck::ThisModelDoesNotFit {
            return None;
        }
        let capacity = match self.relative_fit().capacity_bps {
            Some(bps) => count_text(bps / 8.0),
            None => "above what these rows show".to_owned(),
        };
        let configured = configured.join(" and ");
        Some(format!("Capacity {capacity} B/s; the link from the server is set to {configured} B/s."))
    }

    fn bottleneck_text(&self) -> String {
        let (all, by) = (self.rows.len(), count_limited_by(&self.rows, self.limit));
        match self.limit {
            Bottleneck::Window => format!(
                "Bottleneck: the window, in {by} of {all} rows: most of the time is spent waiting for replies."
            ),
            Bottleneck::Rate => format!(
                "Bottleneck: the rate, in {by} of {all} rows: the bytes take most of the time, a larger window gains little."
            ),
            Bottleneck::ThisModelDoesNotFit => format!(
                "Bottleneck: unknown, because this model does not fit. Rates by the relative fit are off by {:.0} % (root mean \
                 square), so its W means nothing.",
                self.relative_fit().rms_residual_percent()
            ),
        }
    }
}

fn time_text(nanoseconds: f64) -> String {
    if nanoseconds == 0.0 { "0 s".to_owned() } else { format_nanoseconds(nanoseconds) }
}

fn bottleneck_name(limit: Bottleneck) -> &'static str {
    match limit {
        Bottleneck::Window => "window",
        Bottleneck::Rate => "rate",
        Bottleneck::ThisModelDoesNotFit => ABSENT,
    }
}

fn count_text(value: f64) -> String {
    format_count(value.round() as u64)
}

fn with_interval(value: Option<f64>, interval: Option<Interval>) -> String {
    match (value, interval) {
        (None, _) => ABSENT.to_owned(),
        (Some(value), None) => count_text(value),
        (Some(value), Some(interval)) => {
            format!("{} ({}–{})", count_text(value), count_text(interval.low), count_text(interval.high))
        }
    }
}

/// Formats a percentage with its sign: `+87 %`, `−2 %`.
fn signed_percent(percent: f64) -> String {
    let sign = if percent < -0.5 {
        "−"
    } else if percent >= 0.5 {
        "+"
    } else {
        ""
    };
    format!("{sign}{:.0} %", percent.abs())
}
