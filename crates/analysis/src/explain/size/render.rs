//! The size model as text and tables.

use super::super::FindingBlock;
use super::{Breakpoint, LineComparison, LineSource, MessageCosts, SizeFit, SizeModel};
use linkgauge_model::stats::Interval;
use linkgauge_model::units::{format_byte_rate, format_bytes, format_four_digits, format_nanoseconds};

const ABSENT: &str = "–";

impl SizeModel {
    /// The ranges of overhead and rate.
    pub(super) fn summary(&self) -> Vec<FindingBlock> {
        let costs: Vec<&MessageCosts> = self.fits.iter().filter_map(SizeFit::costs_if_fitting).collect();
        let heading = format!("The size: {} fits {} of {} series", self.form, costs.len(), self.fits.len());
        let overhead = costs.iter().filter_map(|costs| costs.message_ns);
        let rate = costs.iter().filter_map(|costs| costs.rate_bps);
        let found = [
            range_text(overhead, format_nanoseconds).map(|range| format!("overhead {range}")),
            range_text(rate, format_byte_rate).map(|range| format!("rate {range}")),
        ];
        let found: Vec<String> = found.into_iter().flatten().collect();
        let found = (!found.is_empty()).then(|| FindingBlock::Text(format!("{}.", found.join(", "))));
        [FindingBlock::Heading(heading)].into_iter().chain(found).collect()
    }

    pub(super) fn blocks(&self) -> Vec<FindingBlock> {
        let source = if self.published { "published" } else { "measured" };
        let mut blocks = vec![
            FindingBlock::Heading("The size: per-message overhead and per-byte cost".to_owned()),
            FindingBlock::Text(format!(
                "{}, {source} figures by Theil–Sen; the interval of the rate is Sen's (95 %, from five sizes on)",
                self.form
            )),
        ];
        let mut groups: Vec<(&str, Vec<&SizeFit>)> = Vec::new();
        for fit in &self.fits {
            match groups.iter_mut().find(|(group, _)| *group == fit.group) {
                Some((_, fits)) => fits.push(fit),
                None => groups.push((&fit.group, vec![fit])),
            }
        }
        for (group, fits) in groups {
            blocks.push(FindingBlock::Text(group.to_owned()));
            blocks.push(fits_table(&fits));
            blocks.extend(fits.iter().flat_map(|fit| fit.sentences()).map(FindingBlock::Text));
        }
        blocks.push(FindingBlock::Text(
            "half at: the size that gets half of the rate (n½). last two: the slope between the two largest sizes. off: the \
             most that the line is above (+) or below (−) a time."
                .to_owned(),
        ));
        blocks
    }
}

/// Maximum residual in percent of a line that represents its times.
const MAX_RESIDUAL_PERCENT: f64 = 20.0;

fn fits_table(fits: &[&SizeFit]) -> FindingBlock {
    let head = ["", "sizes", "overhead", "rate", "95 %", "half at", "last two", "off"];
    let rows = fits.iter().map(|fit| {
        let costs = fit.costs_if_fitting();
        let interval = costs.and_then(|costs| costs.rate_bps.zip(costs.rate_bps_interval));
        vec![
            fit.case_numbers().map_or(fit.name.clone(), |numbers| format!("{numbers} {}", fit.name)),
            fit.rows.len().to_string(),
            costs.and_then(|costs| costs.message_ns).map_or(ABSENT.to_owned(), format_nanoseconds),
            rate_text(costs.and_then(|costs| costs.rate_bps)),
            interval.map_or(ABSENT.to_owned(), |(rate, interval)| interval_text(rate, interval)),
            costs.map_or(ABSENT.to_owned(), half_size_text),
            rate_text(fit.last_rate_bps),
            signed_percent(fit.max_residual_percent()),
        ]
    });
    FindingBlock::Table { text_columns: 1, header: head.map(str::to_owned).to_vec(), rows: rows.collect() }
}

impl SizeFit {
    /// A summary in one line, for below a table: `21.21 µs + size ÷ 91.64 MB/s, half 1.943 kB; last 89.69 MB/s = 74
    /// %`.
    pub(crate) fn summary_line(&self) -> String {
        let fits = self.costs_if_fitting().is_some();
        let mut line = if fits { self.costs.describe() } else { self.misfit_text() };
        if self.beyond_line && fits {
            line += " (beyond the line)";
        }
        if fits && self.costs.rate_bps.is_some() && self.costs.half_performance_bytes.is_some() {
            line += &format!(", half {}", half_size_text(&self.costs));
        }
        if let Some(last) = self.last_rate_bps {
            line += &format!("; last {}", format_byte_rate(last));
        }
        if let Some(share) = self.last_of_line_percent {
            line += &format!(" = {share:.0} %");
        }
        if self.against_line == Some(LineComparison::Faster) {
            line += ", beyond the line";
        }
        if let Some(broken) = &self.segmented {
            line += &format!("; break at {}", broken.range_text());
        }
        line
    }

    /// The case numbers: `4–7`, or `1, 4 … 13`. `None` for a published table.
    pub(crate) fn case_numbers(&self) -> Option<String> {
        let mut cases: Vec<usize> = self.rows.iter().filter_map(|row| row.sample.case).collect();
        cases.sort_unstable();
        let ([first, second, ..], Some(last)) = (cases.as_slice(), cases.last()) else { return None };
        let in_a_row = last - first + 1 == cases.len();
        Some(if in_a_row { format!("{first}–{last}") } else { format!("{first}, {second} … {last}") })
    }

    /// Overhead and per-byte cost, if the model fits.
    fn costs_if_fitting(&self) -> Option<&MessageCosts> {
        (self.max_residual_percent().abs() <= MAX_RESIDUAL_PERCENT).then_some(&self.costs)
    }

    fn misfit_text(&self) -> String {
        format!("the model does not fit (off by {})", signed_percent(self.max_residual_percent()))
    }

    fn max_residual_percent(&self) -> f64 {
        let off = self.rows.iter().map(|row| row.residual_percent);
        off.fold(0.0, |most, off| if off.abs() > f64::abs(most) { off } else { most })
    }

    /// Remarks on its row.
    fn sentences(&self) -> Vec<String> {
        let mut sentences: Vec<String> = Vec::new();
        if self.costs_if_fitting().is_none() {
            sentences.push(format!("{}: no costs shown.", self.misfit_text()));
        } else if self.costs.rate_bps.is_none() {
            sentences.push("no cost per byte shown: it may be nothing.".to_owned());
        }
        if let Some((limit, share)) = self.line_limit.zip(self.last_of_line_percent) {
            let (line, carries) = (limit.line_by.name(), format_byte_rate(limit.line_limit_bps));
            let verdict = match self.against_line {
                Some(LineComparison::Equal) => "it is the line",
                Some(LineComparison::Faster) => {
                    "faster than the line can be: check the declared rate and the figures"
                }
                _ => "not the line",
            };
            sentences.push(format!("last two {share:.1} % of {line} ({carries}): {verdict}."));
        }
        if self.beyond_line
            && self.costs_if_fitting().is_some()
            && self.against_line != Some(LineComparison::Faster)
        {
            sentences.push("the rate of all sizes is beyond the line: no byte costs so little.".to_owned());
        }
        sentences.extend(self.segmented.as_ref().map(Breakpoint::describe));
        let name = self.case_numbers().map_or(self.name.clone(), |numbers| format!("cases {numbers}"));
        sentences.into_iter().map(|sentence| format!("{name}: {sentence}")).collect()
    }
}

impl MessageCosts {
    /// Description such as `21.21 µs + size ÷ 91.64 MB/s`.
    fn describe(&self) -> String {
        let Some(rate) = self.rate_bps else { return "no cost per byte shown".to_owned() };
        let own = self.message_ns.map_or(String::new(), |own| format!("{} + ", format_nanoseconds(own)));
        format!("{own}size ÷ {}", format_byte_rate(rate))
    }
}

impl Breakpoint {
    /// Range of sizes such as `1024–2048 B`.
    fn range_text(&self) -> String {
        format!("{}–{} B", self.last_below_bytes, self.first_above_bytes)
    }

    fn describe(&self) -> String {
        let there = match self.between.as_slice() {
            [] => String::new(),
            between => format!(" ({} lies there)", between.join(", ")),
        };
        format!(
            "two lines fit clearly better, with a break at {}{there}: below {}, above {}.",
            self.range_text(),
            self.below.describe(),
            self.above.describe()
        )
    }
}

impl LineSource {
    fn name(self) -> &'static str {
        match self {
            LineSource::Declared => "the line as declared",
            LineSource::Line => "the line",
            LineSource::Interface => "the interface",
        }
    }
}

/// Range such as `2.419 µs to 21.21 µs`. `None` without a value.
fn range_text(values: impl Iterator<Item = f64>, format: fn(f64) -> String) -> Option<String> {
    let (low, high) = values
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (value.min(low), value.max(high)));
    let [low_text, high_text] =
        [low, high].map(|value| if value.is_finite() { format(value) } else { String::new() });
    (low <= high).then(|| if low == high { low_text } else { format!("{low_text} to {high_text}") })
}

fn rate_text(rate: Option<f64>) -> String {
    rate.map_or(ABSENT.to_owned(), format_byte_rate)
}

fn half_size_text(costs: &MessageCosts) -> String {
    costs.half_performance_bytes.map_or(ABSENT.to_owned(), |bytes| format_bytes(bytes.round() as u64))
}

/// An interval in the unit that its value is printed in: `89.04–240.0`.
fn interval_text(value: f64, interval: Interval) -> String {
    let printed = format_byte_rate(value);
    let number: f64 = printed.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(value);
    let scaled = |end: f64| format_four_digits(end * number / value);
    format!("{}–{}", scaled(interval.low), scaled(interval.high))
}

/// Formats a percentage with its sign: `+87 %`, `−2 %`.
fn signed_percent(percent: f64) -> String {
    let sign = match percent {
        percent if percent < -0.5 => "−",
        percent if percent >= 0.5 => "+",
        _ => "",
    };
    format!("{sign}{:.0} %", percent.abs())
}
