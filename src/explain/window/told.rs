//! The window in words and tables.

use std::collections::BTreeMap;

use super::super::Block;
use super::{Fit, Judged, Limit, MISS_PERCENT, Window, limited_by};
use crate::stats::Interval;
use crate::units::{print_count, print_nanoseconds};

const ABSENT: &str = "–";

impl Window {
    pub(super) fn blocks(&self) -> Vec<Block> {
        let mut blocks = vec![Block::Heading("The window: what one round trip buys".to_owned())];
        let form = format!("{}, W being the bytes of the file that a round trip buys", self.form);
        blocks.extend([form, self.about_rows()].map(Block::Text));
        blocks.push(self.fits_table());
        blocks.push(self.rows_table());
        blocks.extend(self.sentences().into_iter().map(Block::Text));
        blocks
    }

    /// Which rows, and where their figures are from.
    fn about_rows(&self) -> String {
        let measured = self.rows.iter().filter(|judged| judged.row.round_trip_measured).count();
        let source = match (self.published, &self.stand_in) {
            (true, _) => "published".to_owned(),
            (false, Some(stand_in)) => format!("measured on an {stand_in}, no hardware"),
            (false, None) => "measured".to_owned(),
        };
        let round_trips = match measured {
            0 => "both configured delays".to_owned(),
            all if all == self.rows.len() => "measured by exchanges at the same place".to_owned(),
            some => format!("measured by exchanges in {some} of them, both configured delays in the others"),
        };
        let mut left_out = BTreeMap::<&str, Vec<&str>>::new();
        self.left_out.iter().for_each(|row| left_out.entry(&row.why).or_default().push(&row.name));
        let left_out =
            left_out.iter().map(|(why, names)| format!(" Left out: {} ({why}).", names.join("; ")));
        format!("Rows: {}, {source}. RTT: {round_trips}.{}", self.rows.len(), left_out.collect::<String>())
    }

    fn fits_table(&self) -> Block {
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
        Block::Table { words: 2, head: head.map(str::to_owned).to_vec(), rows: rows.collect() }
    }

    fn rows_table(&self) -> Block {
        let careful = format!("{} give", self.careful_window);
        let head = ["row", "RTT", "B/s", "least", "T–S", "rel.", "limit", "fills", &careful];
        let row = |(index, judged): (usize, &Judged)| {
            let mut cells = vec![
                judged.row.name.clone(),
                time(judged.row.round_trip_ns),
                print_count(judged.row.rate().round() as u64),
            ];
            cells.extend(self.fits.iter().map(|fit| percent(fit.residuals_percent[index])));
            cells.push(name(judged.limit).to_owned());
            cells.push(judged.filling_window.map_or(ABSENT.to_owned(), |window| window.to_string()));
            cells.push(judged.careful_window_bps.map_or(ABSENT.to_owned(), |bps| bytes(bps / 8.0)));
            cells
        };
        let rows = self.rows.iter().enumerate().map(row).collect();
        Block::Table { words: 1, head: head.map(str::to_owned).to_vec(), rows }
    }

    fn sentences(&self) -> Vec<String> {
        let link = match self.rows.iter().any(|judged| judged.row.configured_bps.is_some()) {
            true => {
                "fill the link, or twice the capacity where that is less: the far end's work and the link cannot overlap more"
            }
            false => "bring the capacity; the link's own rate is not known",
        };
        let mut sentences = vec![format!(
            "least, T–S, rel.: rate by that fit, above (+) or below (−) the row's. limit, fills, give: by the relative fit. \
             fills: requests under way at once that {link}."
        )];
        sentences.extend(self.misses());
        sentences.extend(self.chunk());
        sentences.extend(self.capacity());
        sentences.push(self.verdict());
        sentences
    }

    /// The rows that fits are far off from.
    fn misses(&self) -> Option<String> {
        if self.limit == Limit::ThisModelDoesNotFit {
            return None;
        }
        let mut weighted = false;
        let mut missed = |(index, judged): (usize, &Judged)| {
            let far = |fit: &&Fit| fit.residuals_percent[index].abs() > MISS_PERCENT;
            let far: Vec<&Fit> = self.fits.iter().filter(far).collect();
            weighted |= far.iter().any(|fit| fit.method == self.relative().method);
            let by = |fit: &&Fit| format!("{} ({})", fit.method, percent(fit.residuals_percent[index]));
            let by: Vec<String> = far.iter().map(by).collect();
            (!far.is_empty()).then(|| format!("{} is missed by {}", judged.row.name, by.join(" and ")))
        };
        let missed: Vec<String> = self.rows.iter().enumerate().filter_map(&mut missed).collect();
        let why = if weighted { "" } else { ": unweighted, the slow rows decide" };
        (!missed.is_empty()).then(|| format!("{}{why}.", missed.join("; ")))
    }

    /// What a chunk costs, by all fits.
    fn chunk(&self) -> Option<String> {
        let chunk = self.chunk_bytes.filter(|_| self.limit != Limit::ThisModelDoesNotFit)?;
        let costs: Vec<f64> =
            self.fits.iter().filter_map(|fit| Some(f64::from(chunk) / fit.window_bytes?)).collect();
        let printed = |cost: Option<f64>| cost.map(|cost| format!("{cost:.2}"));
        let least = printed(costs.iter().copied().reduce(f64::min))?;
        let most = printed(costs.iter().copied().reduce(f64::max))?;
        let cost = if least == most { least } else { format!("{least}–{most}") };
        Some(format!("A chunk of {chunk} bytes costs {cost} round trips."))
    }

    /// Capacity beside what the link is set to.
    fn capacity(&self) -> Option<String> {
        let mut configured: Vec<f64> =
            self.rows.iter().filter_map(|judged| judged.row.configured_bps).collect();
        configured.sort_unstable_by(f64::total_cmp);
        configured.dedup();
        let configured: Vec<String> = configured.iter().map(|bps| bytes(bps / 8.0)).collect();
        if configured.is_empty() || self.limit == Limit::ThisModelDoesNotFit {
            return None;
        }
        let capacity = match self.relative().capacity_bps {
            Some(bps) => bytes(bps / 8.0),
            None => "above what these rows show".to_owned(),
        };
        let configured = configured.join(" and ");
        Some(format!("Capacity {capacity} B/s; the link from the far end is set to {configured} B/s."))
    }

    fn verdict(&self) -> String {
        let (all, by) = (self.rows.len(), limited_by(&self.rows, self.limit));
        match self.limit {
            Limit::Window => format!(
                "What limits: the window, in {by} of {all} rows: most of the time goes into waiting for answers."
            ),
            Limit::Rate => format!(
                "What limits: the rate, in {by} of {all} rows: the time goes by the byte, a larger window gains little."
            ),
            Limit::ThisModelDoesNotFit => format!(
                "What limits: this model does not fit. Rates by the relative fit are off by {:.0} % (root mean square), so no \
                 W of it means anything.",
                self.relative().misses_percent()
            ),
        }
    }
}

fn time(nanoseconds: f64) -> String {
    if nanoseconds == 0.0 { "0 s".to_owned() } else { print_nanoseconds(nanoseconds) }
}

fn name(limit: Limit) -> &'static str {
    match limit {
        Limit::Window => "window",
        Limit::Rate => "rate",
        Limit::ThisModelDoesNotFit => ABSENT,
    }
}

fn bytes(value: f64) -> String {
    print_count(value.round() as u64)
}

fn with_interval(value: Option<f64>, interval: Option<Interval>) -> String {
    match (value, interval) {
        (None, _) => ABSENT.to_owned(),
        (Some(value), None) => bytes(value),
        (Some(value), Some(interval)) => {
            format!("{} ({}–{})", bytes(value), bytes(interval.low), bytes(interval.high))
        }
    }
}

/// With its sign: `+87 %`, `−2 %`.
fn percent(percent: f64) -> String {
    let sign = if percent < -0.5 {
        "−"
    } else if percent >= 0.5 {
        "+"
    } else {
        ""
    };
    format!("{sign}{:.0} %", percent.abs())
}
