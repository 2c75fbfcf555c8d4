//! The overview of a run over many links: one row per kind of link.

use anstyle::Style;

use super::{BOLD, INDENT, TextReport};
use crate::report::overview;
use linkgauge_model::run::Run;

impl TextReport {
    /// One row per kind of link, below the figures of the first one, and the kinds that were not available.
    pub(crate) fn render_overview(mut self, run: &Run) -> String {
        self.push_paragraph(&overview::answer(run), BOLD, "", INDENT);
        let rows = overview::table_rows(run);
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; 5] = std::array::from_fn(width);
        for (index, row) in rows.iter().enumerate() {
            let mut line = format!("{INDENT}{:1$}", row[0], widths[0]);
            for (cell, width) in row.iter().zip(widths).skip(1) {
                line += &format!("  {cell:>width$}");
            }
            self.push_line(&line, if index == 0 { BOLD } else { Style::new() });
        }
        let skipped = overview::skipped_kinds(run);
        if !skipped.is_empty() {
            let text = format!("skipped: {} (reasons: linkgauge doctor --all)", skipped.join(", "));
            self.push_paragraph(&text, Style::new(), INDENT, "    ");
        }
        self.push_status(run);
        self.out
    }
}

#[cfg(test)]
mod tests {
    use crate::report::{Detail, ReportOptions, sample_runs, text};
    use linkgauge_model::plan::WaitMode;
    use linkgauge_model::run::{Run, Warning, WarningCode};

    fn render(run: &Run, detail: Detail) -> String {
        let mut out = Vec::new();
        text::write(run, &ReportOptions { detail, ..ReportOptions::default() }, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn many_cases_get_one_row_per_kind_of_link() {
        let mut run = sample_runs::full();
        run.interrupted = false;
        run.cases.extend(sample_runs::serial_line().cases);
        run.cases.extend(sample_runs::download().cases);
        run.cases[1].endpoint = "unix:///run/a?type=dgram".to_owned();
        run.cases[1].placement.wait = Some(WaitMode::BusyPoll);
        let lines = |run: &Run| render(run, Detail::Summary).lines().count();
        assert!(lines(&run) > 20, "the tables of few cases are short enough");
        let more = vec![run.cases[0].clone(); 6];
        run.cases.extend(more);
        let skipped = ["sctp: SCTP over IPv4: no module", "sctp: again", "udp://[::1]:0: no address"];
        run.warnings.extend(
            skipped.map(|text| Warning::new(WarningCode::Unavailable, format!("skipped: {text}"), "")),
        );
        insta::assert_snapshot!(render(&run, Detail::Summary), @r"
        5 links measured in 42.1 s; tcp: 13.8 µs round trip, 41.3 Gbit/s.
          link               RTT p50  RTT p99  busy-poll p50         rate
          tcp                13.8 µs  23.4 µs              –  41.3 Gbit/s
          unix dgram               –        –        2.22 ms            –
          udp                 893 µs        –              –            –
          serial 9600 bit/s        –        –              –  29.0 kbit/s
          tcp pakbus               –        –              –  4.93 kbit/s
          skipped: sctp, udp (reasons: linkgauge doctor --all)

        incomplete: part of the plan was not measured (incomplete: case 3)
        ");
        assert!(render(&run, Detail::Full).contains("sctp: SCTP over IPv4: no module"));
    }
}
