//! The overview of a run over many links: one row per kind of link.

use std::io;

use anstyle::Style;

use super::{BOLD, INDENT, MIN_COLUMNS, TextReport};
use crate::report::wording::to_ascii;
use crate::report::{ReportOptions, overview};
use crate::run::Run;

/// Writes one row per kind of link, below the figures of the first one.
///
/// # Errors
/// If the sink fails.
pub fn write_overview(run: &Run, options: &ReportOptions, out: &mut dyn io::Write) -> io::Result<()> {
    let mut report =
        TextReport { options: *options, width: options.width.max(MIN_COLUMNS), out: String::new() };
    report.push_paragraph(&overview::answer(run), BOLD, "", INDENT);
    let rows = overview::table_rows(run);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    for (index, row) in rows.iter().enumerate() {
        let mut line = format!("{INDENT}{:1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(widths).skip(1) {
            line += &format!("  {cell:>width$}");
        }
        report.push_line(&line, if index == 0 { BOLD } else { Style::new() });
    }
    let text = if options.unicode { report.out } else { to_ascii(&report.out) };
    out.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::WaitMode;
    use crate::report::sample_runs;

    #[test]
    fn one_row_per_kind_of_link() {
        let mut run = sample_runs::full();
        run.cases.extend(sample_runs::serial_line().cases);
        run.cases.extend(sample_runs::download().cases);
        run.cases[1].endpoint = "unix:///run/a?type=dgram".to_owned();
        run.cases[1].placement.wait = Some(WaitMode::BusyPoll);
        let mut out = Vec::new();
        write_overview(&run, &ReportOptions::default(), &mut out).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap(), @r"
        5 links measured in 42.1 s; tcp: 13.8 µs round trip, 41.3 Gbit/s.
          link               RTT p50  RTT p99  busy-poll p50         rate
          tcp                13.8 µs  23.4 µs              –  41.3 Gbit/s
          unix dgram               –        –        2.22 ms            –
          udp                 893 µs        –              –            –
          serial 9600 bit/s        –        –              –  29.0 kbit/s
          tcp pakbus               –        –              –  4.93 kbit/s
        ");
    }
}
