//! The report on a terminal: one table a workload, then what to know about the figures.
//!
//! Not for detecting the terminal: `Options` says what it can do.

use std::io;

use anstyle::{AnsiColor, Style};

use super::Options;
use super::layout::{self, Line};
use super::paper;
use super::spark::{self, Spark};
use super::table::{Table, is_download, is_latency, tables};
use super::words::{
    FIT_NOTE, case_list, date, fit_lines, host, interval_basis, median, missed_frames, plain, plural,
    printable, shorten, wait, ways, wrap,
};
use crate::explain::{Declared, size};
use crate::run::{CaseResult, Run, Warning};
use crate::units::{print_bit_rate, print_nanoseconds};

/// A narrower terminal gets lines that it must wrap itself.
const NARROWEST: usize = 40;
const INDENT: &str = "  ";
/// A line for each of more cases would bury their table.
const MOST_SPARKS: usize = 8;

/// Stands for the lines below a table that tell its fits.
const FIT: &str = "fit";

const BOLD: Style = Style::new().bold();
const YELLOW: Style = AnsiColor::Yellow.on_default().bold();
const RED: Style = AnsiColor::Red.on_default().bold();

pub fn write(run: &Run, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let text = Text { options: *options, width: options.width.max(NARROWEST), out: String::new() }.run(run);
    let text = if options.unicode { text } else { plain(&text) };
    out.write_all(text.as_bytes())
}

struct Text {
    options: Options,
    width: usize,
    out: String,
}

impl Text {
    fn run(mut self, run: &Run) -> String {
        let title = run.title.as_deref().map_or("linkgauge".to_owned(), printable);
        let on = host(run).filter(|host| !title.ends_with(&format!(" on {host}")));
        let on = on.map_or(String::new(), |host| format!(" on {host}"));
        // An imported run need not know how long it took.
        let took = match run.elapsed_ns {
            0 => String::new(),
            elapsed => format!(" in {}", print_nanoseconds(elapsed as f64)),
        };
        let cases = plural(run.cases.len(), "case");
        self.paragraph(&format!("{title}: {cases}{took}{on}, {}", date(run)), BOLD, "", INDENT);
        let mut shown = Vec::new();
        let fits = if run.paper.is_none() { size::of_run(run, &Declared::default()) } else { Vec::new() };
        if let Some(study) = &run.paper {
            self.out.push('\n');
            for (line, kind) in paper::lines(run, study, self.width) {
                self.line(&line, if kind == Line::Header { BOLD } else { Style::new() });
            }
        }
        // A study's own tables say it all; a hundred cases more would bury them.
        for table in tables(run).into_iter().filter(|_| run.paper.is_none()) {
            self.out.push('\n');
            let cases: Vec<usize> = table.rows.iter().map(|row| row.case).collect();
            shown.extend(self.table(table, run.cases.len() > 1));
            for line in fit_lines(&fits, &cases) {
                self.paragraph(&line, Style::new(), INDENT, "    ");
                shown.push(FIT);
            }
        }
        if run.paper.is_none() && run.cases.len() <= MOST_SPARKS {
            self.sparks(run);
        }
        self.notes(run, &shown);
        self.thresholds(run);
        self.warnings(run);
        self.status(run);
        self.out
    }

    /// Returns the titles of the columns that found room.
    fn table(&mut self, mut table: Table, numbered: bool) -> Vec<&'static str> {
        let round_trips = if table.workload == "latency" { " (round trips)" } else { "" };
        let what = table.title() + round_trips;
        let heading = [vec![what], table.condense()].concat().join(", ");
        let fitted = layout::fit(&mut table, self.width - INDENT.len(), numbered);
        let unless_said = match fitted.unless_said.as_slice() {
            [] => String::new(),
            most => format!("; unless said: {}", most.join(", ")),
        };
        self.paragraph(&printable(&(heading + &unless_said)), BOLD, "", INDENT);
        for (line, kind) in fitted.lines {
            let style = if kind == Line::Header { BOLD } else { Style::new() };
            self.line(&format!("{INDENT}{line}"), style);
        }
        table.columns.iter().map(|column| column.title).collect()
    }

    /// Every case in a line: how its times are spread, how its rate went; then its percentiles on the scale of all.
    fn sparks(&mut self, run: &Run) {
        let sparks: Vec<(usize, Spark)> = run
            .cases
            .iter()
            .enumerate()
            .filter_map(|(index, case)| Some((index + 1, spark::of_case(case)?)))
            .collect();
        if !sparks.is_empty() {
            self.out.push('\n');
        }
        for (number, spark) in sparks {
            let number = if run.cases.len() > 1 { format!("{number} ") } else { String::new() };
            let chart = format!("{INDENT}{number}{:9}  {}", spark.what, spark.signs);
            let whole = format!("{chart}  {}", spark.ends);
            let fits = whole.chars().count() <= self.width;
            self.line(if fits { &whole } else { chart.trim_end() }, Style::new());
        }
        let Some(bars) = spark::bars(&run.cases) else { return };
        self.out.push('\n');
        for (index, bar) in bars.bars {
            self.line(&format!("{INDENT}{} {:9}  {bar}", index + 1, "times"), Style::new());
        }
        self.paragraph(&bars.scale, Style::new(), "    ", "    ");
    }

    /// What one must know to read the columns that are there.
    fn notes(&mut self, run: &Run, shown: &[&str]) {
        let mut notes: Vec<String> = Vec::new();
        let told = if run.paper.is_none() { run.cases.as_slice() } else { &[] };
        for (index, case) in told.iter().enumerate() {
            let name = if run.cases.len() > 1 { format!("Case {}: ", index + 1) } else { String::new() };
            let missed = missed_frames(&case.figures).filter(|_| is_latency(case));
            let missed = missed.map(|missed| format!("missed frames: {missed}."));
            let told = spread(case).into_iter().chain(ways(case)).chain(missed);
            notes.extend(told.map(|note| format!("{name}{note}")));
        }
        let any = |wanted: &dyn Fn(&CaseResult) -> bool| run.cases.iter().any(wanted);
        if any(&|case| !is_download(case) && case.figures.latency_ns.is_some() || case.under_load.is_some()) {
            notes.push("A latency is a whole round trip, never half of one.".to_owned());
        }
        if any(&is_download) {
            notes.push(
                "Of a download the times are those of a piece, from its request to its answer.".to_owned(),
            );
        }
        if shown.contains(&"line") {
            notes.push(
                "line: what the message takes on the line, one way: no round trip is shorter.".to_owned(),
            );
        }
        if any(&|case| wait(case) == "spin") {
            notes.push(
                "spin: both ends keep asking for the message instead of being woken for it.".to_owned(),
            );
        }
        if any(&|case| is_latency(case) && case.figures.response_ns.is_some()) {
            notes.push(
                "response: counted from when the message was due, not from when it was sent.".to_owned(),
            );
        }
        if any(&|case| case.figures.throughput_bps.is_some()) {
            notes.push("A rate is delivered payload by the receiver's clock, without headers.".to_owned());
        }
        if shown.contains(&"limit") {
            notes.push("limit: the payload that the line can carry with its framing.".to_owned());
        }
        if shown.contains(&"a message") {
            notes.push("a message: the time from one to the next, by the receiver's clock.".to_owned());
        }
        if shown.contains(&"CPU") {
            notes.push("CPU: share of the time that the threads of the near + far end used.".to_owned());
        }
        if shown.contains(&FIT) {
            notes.push(FIT_NOTE.to_owned());
        }
        if shown.contains(&"CPU s/GB") {
            notes.push("CPU s/GB: CPU seconds of both ends for a delivered gigabyte (1000 MB).".to_owned());
        }
        let mut bases: Vec<String> =
            run.cases.iter().filter(|case| !case.figures.intervals.is_empty()).map(interval_basis).collect();
        bases.sort();
        bases.dedup();
        if !bases.is_empty() && shown.contains(&"±") {
            notes.push(format!("±: the 95 % interval, its longer side, {}.", bases.join(" or ")));
        }
        let not_reached = |case: &CaseResult| {
            let latency = case.figures.latency_ns.iter().chain(&case.figures.response_ns);
            latency.flat_map(|distribution| distribution.percentiles.values()).any(Option::is_none)
        };
        if any(&not_reached) {
            notes.push("lost: so many were lost that the percentile was not reached.".to_owned());
        }
        if !notes.is_empty() {
            self.out.push('\n');
        }
        for note in notes {
            self.paragraph(&printable(&note), Style::new(), INDENT, "    ");
        }
    }

    /// Those that were not kept one by one, the others by their number.
    fn thresholds(&mut self, run: &Run) {
        let all = run
            .cases
            .iter()
            .zip(1..)
            .flat_map(|(case, number)| case.thresholds.iter().map(move |one| (one, number)));
        let (kept, missed): (Vec<_>, Vec<_>) = all.partition(|(judged, _)| judged.kept);
        if kept.len() + missed.len() > 0 {
            self.out.push('\n');
        }
        for (judged, number) in missed {
            let case = if run.cases.len() > 1 { format!("case {number}: ") } else { String::new() };
            let text = format!("{case}{}, measured {}", judged.threshold, judged.measured);
            self.labelled("not kept:", &printable(&text), RED);
        }
        if !kept.is_empty() {
            self.labelled("kept:", &plural(kept.len(), "threshold"), BOLD);
        }
    }

    /// Each code once, with the cases it concerns.
    fn warnings(&mut self, run: &Run) {
        let mut groups: Vec<(&Warning, Vec<usize>, bool)> = Vec::new();
        for (case, warning) in run.all_warnings() {
            let numbers = case.map(|index| index + 1);
            // What concerns the run as a whole has no number to be told apart by.
            let alike = |first: &Warning| match case {
                Some(_) => first.code == warning.code,
                None => first == warning,
            };
            match groups.iter_mut().find(|(first, ..)| alike(first)) {
                Some((first, cases, differ)) => {
                    *differ |= first.text != warning.text;
                    cases.extend(numbers);
                }
                None => groups.push((warning, numbers.into_iter().collect(), false)),
            }
        }
        for (warning, cases, differ) in groups {
            let of = match (cases.is_empty() || run.cases.len() == 1, differ) {
                (true, _) => String::new(),
                (false, false) => format!("{}: ", case_list(&cases)),
                (false, true) => format!("{}, first of them: ", case_list(&cases)),
            };
            let label = format!("warning[{}]:", printable(&warning.code));
            self.out.push('\n');
            self.labelled(&label, &format!("{of}{}", printable(&warning.text)), YELLOW);
            if !warning.remedy.is_empty() {
                self.labelled("  try:", &printable(&warning.remedy), BOLD);
            }
        }
    }

    fn status(&mut self, run: &Run) {
        if run.complete() {
            return;
        }
        let missing: Vec<usize> = run
            .cases
            .iter()
            .enumerate()
            .filter(|(_, case)| !case.complete)
            .map(|(index, _)| index + 1)
            .collect();
        let (label, mut text) = if run.interrupted {
            ("interrupted:", "stopped by a signal; the figures are of what was measured by then".to_owned())
        } else {
            ("incomplete:", "not everything that was planned was measured".to_owned())
        };
        if !missing.is_empty() && run.cases.len() > 1 {
            text += &format!(" (not whole: {})", case_list(&missing));
        }
        self.out.push('\n');
        self.labelled(label, &text, RED);
    }

    fn line(&mut self, text: &str, style: Style) {
        self.out += &self.styled(text, style);
        self.out.push('\n');
    }

    fn paragraph(&mut self, text: &str, style: Style, first: &str, rest: &str) {
        for line in wrap(text, self.width, first, rest).lines() {
            self.line(line, style);
        }
    }

    /// A paragraph whose first words stand out.
    fn labelled(&mut self, label: &str, text: &str, style: Style) {
        let (indent, words) = label.split_at(label.len() - label.trim_start().len());
        let wrapped = wrap(&format!("{words} {text}"), self.width, indent, "    ");
        let coloured = self.styled(label, style);
        self.out += &match wrapped.strip_prefix(label) {
            Some(rest) => coloured + rest,
            None => wrapped,
        };
    }

    fn styled(&self, text: &str, style: Style) -> String {
        if self.options.colour { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

/// How far the ports of a case lie apart.
fn spread(case: &CaseResult) -> Option<String> {
    let value = |part: &crate::run::Part| match is_latency(case) {
        true => median(part.figures.latency_ns.as_ref()).map(|value| value as f64),
        false => part.figures.throughput_bps,
    };
    let mut ports: Vec<(f64, &str)> =
        case.per_port.iter().filter_map(|part| Some((value(part)?, part.endpoint.as_str()))).collect();
    ports.sort_by(|a, b| a.0.total_cmp(&b.0));
    let [(low, low_port), .., (high, high_port)] = ports[..] else { return None };
    let (what, print, slow): (_, fn(f64) -> String, _) = match is_latency(case) {
        true => ("p50", print_nanoseconds, high_port),
        false => ("rate", print_bit_rate, low_port),
    };
    let unanswered = case.per_port.len() - ports.len();
    let unanswered = if unanswered > 0 { format!("; {unanswered} without one") } else { String::new() };
    let even = match (case.latency_spread, case.fairness) {
        (Some(spread), _) => format!(", a spread of {spread:.3}"),
        (None, Some(fairness)) => format!(", a fairness of {fairness:.3}"),
        (None, None) => String::new(),
    };
    Some(format!(
        "over {} ports, {what} from {} to {}{even} (slowest: {}){unanswered}.",
        case.per_port.len(),
        print(low),
        print(high),
        shorten(&printable(slow), 40),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_run;

    fn text(run: &Run, options: Options) -> String {
        let mut out = Vec::new();
        write(run, &options, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_download_tells_its_round_trips() {
        insta::assert_snapshot!(text(&sample_run::downloaded(), Options::default()), @r"
        Over the hill: 2 cases in 42.10 s, 2026-11-20 10:00 UTC

        Download, peer pakbus
          #  size         rate     p50     p99     max round trips again records missing
          tcp://logger.example:6785
          1 991 B 4.931 kbit/s 1.203 s 2.162 s 25.22 s         607     2       –       –
          2 512 B 4.931 kbit/s 1.203 s 2.162 s 25.22 s         607     –  25 000       3

          Of a download the times are those of a piece, from its request to its answer.
          A rate is delivered payload by the receiver's clock, without headers.
        ");
    }

    #[test]
    fn everything_in_80_columns() {
        insta::assert_snapshot!(text(&sample_run::full(), Options::default()), @r"
        A Friday in the lab: 7 cases in 42.10 s on gauge-1, 2026-11-20 10:00 UTC

        Latency (round trips), peer linkgauge, 14 B messages
          #  endpoint                            p50       p90       p99       max  lost
          1  tcp://127….0.1:7100, CPUs 0,1  13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
               response                     16.17 µs  16.93 µs  27.38 µs  321.0 µs
          3  udp://gauge-2.example:7100     892.9 µs  935.4 µs      lost  17.71 ms   600

        Latency over lines (round trips), peer echo, 1 B messages, 3 ports at once
          #      line       p50      ±       p90       p99       max  lost
          tcp://moxa-5610.example:7001
          2  1.042 ms  2.216 ms  1.2 %  2.320 ms  3.758 ms  43.84 ms     0

        Throughput, peer linkgauge, direction both
          #               size         rate of line     ± loss CPU s/GB loaded p50
          tcp://127.0.0.1:7100
          4               64 B 310.0 Mbit/s   0.7 % 3.0 %  0 %   10.645   329.7 µs
            other way          288.3 Mbit/s             –
          5           1.024 kB 4.200 Gbit/s  10.0 % 3.0 %  0 %    0.786   329.7 µs
            other way          3.906 Gbit/s             –
          6           16.38 kB 28.60 Gbit/s  68.1 % 3.0 %  0 %    0.115   329.7 µs
            other way          26.60 Gbit/s             –
          7           131.1 kB 41.30 Gbit/s  98.3 % 3.0 %  0 %    0.080   329.7 µs
            other way          38.41 Gbit/s             –
          fit 4–7: 1.672 µs + size ÷ 5.534 GB/s, half 9.250 kB; last 5.512 GB/s

          1 spread     █▇    ▅                        ▂  13.00 µs to 273.7 µs, log scale
          2 spread     █▇    ▅                        ▂  2.083 ms to 43.84 ms, log scale
          3 spread     █▇    ▅                        ▂  839.7 µs to 17.71 ms, log scale
          4 over time  ▇██▇█▇██▇█  279.0 Mbit/s to 341.0 Mbit/s
          5 over time  ▇██▇█▇██▇█  3.780 Gbit/s to 4.620 Gbit/s
          6 over time  ▇██▇█▇██▇█  25.74 Gbit/s to 31.46 Gbit/s
          7 over time  ▇██▇█▇██▇█  37.17 Gbit/s to 45.43 Gbit/s

          1 times      █▅▁▁▁▁▁▁▁▁▁▁
          2 times                         ▂█▅▁▁▁▁▁▁▁▁▁▁
          3 times                      █▁▁▁▁▁▁▁▁▁▁▁
            13.00 µs to 43.84 ms, log scale: ▂ to p50, █ to p90, ▅ to p99, ▁ to max

          Case 1: missed frames: 2 over 16.7 ms (0.02 %), none over 50 ms.
          Case 2: over 3 ports, p50 from 2.212 ms to 2.245 ms, a spread of 1.015
            (slowest: tcp://moxa-5610.example:7003).
          A latency is a whole round trip, never half of one.
          line: what the message takes on the line, one way: no round trip is shorter.
          response: counted from when the message was due, not from when it was sent.
          A rate is delivered payload by the receiver's clock, without headers.
          fit: time of a message = its own + size ÷ rate; half: the size that gets half
            of it; last: between the two largest sizes, =: of what the line can carry.
            linkgauge explain tells more.
          CPU s/GB: CPU seconds of both ends for a delivered gigabyte (1000 MB).
          ±: the 95 % interval, its longer side, over 3 repetitions or within the run.
          lost: so many were lost that the percentile was not reached.

        warning[busy-machine]: the machine was 40 % busy before the first case
          try: stop what else runs, or repeat with --repeat 10

        warning[near-floor]: cases 1, 2: the median is within 20 times of what the same
            exchange costs without a link (1.9 µs)
          try: read it as an upper bound, or pin both ends and wait by spinning

        warning[socket-drops]: case 3: 100 answers were dropped by the receiving socket,
            not by the path
          try: raise the receive buffer: ?receive_buffer=4Mi

        interrupted: stopped by a signal; the figures are of what was measured by then
            (not whole: case 3)
        ");
    }

    #[test]
    fn a_sweep_of_messages() {
        insta::assert_snapshot!(text(&sample_run::messages(), Options::default()), @r"
        linkgauge: 5 cases in 42.10 s, 2026-11-20 10:00 UTC

        Throughput, peer linkgauge, direction send
          #     size         rate     ± loss a message messages/s     CPU CPU s/GB
          udp://gauge-2.example:7100
          1     64 B 24.81 Mbit/s 3.0 %  0 %  20.64 µs     48 450 98+63 %    2.100
          2    256 B 90.78 Mbit/s 3.0 %  0 %  22.56 µs     44 326 98+63 %    2.100
          3 1.024 kB 270.9 Mbit/s 3.0 %  0 %  30.24 µs     33 069 98+63 %    2.100
          4 4.096 kB 537.5 Mbit/s 3.0 %  0 %  60.96 µs     16 404 98+63 %    2.100
          5 16.38 kB 713.0 Mbit/s 3.0 %  0 %  183.8 µs      5 440 98+63 %    2.100
          fit 1–5: 20.00 µs + size ÷ 100.0 MB/s, half 2.000 kB; last 100.0 MB/s = 82 %

          A rate is delivered payload by the receiver's clock, without headers.
          a message: the time from one to the next, by the receiver's clock.
          CPU: share of the time that the threads of the near + far end used.
          fit: time of a message = its own + size ÷ rate; half: the size that gets half
            of it; last: between the two largest sizes, =: of what the line can carry.
            linkgauge explain tells more.
          CPU s/GB: CPU seconds of both ends for a delivered gigabyte (1000 MB).
          ±: the 95 % interval, its longer side, within the run.
        ");
    }

    #[test]
    fn lines_and_their_limits() {
        insta::assert_snapshot!(text(&sample_run::line(), Options::default()), @r"
        Loops through plugs: 2 cases in 42.10 s, 2026-11-20 10:00 UTC

        Throughput over lines, peer linkgauge, 8 B messages
          #  endpoint                                rate         limit  of line    loss
          1  serial:///dev/…yUSB0?baud=9600  7.671 kbit/s  7.680 kbit/s   99.9 %     0 %
          2  serial…d=9600, 4 ports at once  29.01 kbit/s  30.72 kbit/s   94.4 %  11.4 %

          Case 2: over 4 ports, rate from 7.250 kbit/s to 7.671 kbit/s, a fairness of
            0.945 (slowest: serial:///dev/ttyUSB0?baud=9600).
          A rate is delivered payload by the receiver's clock, without headers.
          limit: the payload that the line can carry with its framing.

        not kept: case 2: loss = 0 %, measured 0.5 %
        kept: 1 threshold
        ");
    }

    #[test]
    fn almost_nothing() {
        insta::assert_snapshot!(text(&sample_run::minimal(), Options::default()), @r"
        linkgauge: 1 case in 42.10 s, 2026-11-20 10:00 UTC

        Latency (round trips), peer linkgauge, 1 B messages
          endpoint  p50  p90  p99  max  lost
          mem://a     –    –    –    –     2
        ");
        insta::assert_snapshot!(text(&sample_run::empty(), Options::default()), @r"
        linkgauge: 0 cases in 42.10 s, 2026-11-20 10:00 UTC

        interrupted: stopped by a signal; the figures are of what was measured by then
        ");
    }

    #[test]
    fn endpoints_that_do_not_fit() {
        let mut run = sample_run::full();
        run.cases.truncate(3);
        for (case, size) in run.cases.iter_mut().zip([1, 1024, 65_536]) {
            case.endpoint =
                format!("serial:///dev/serial/by-id/usb-FTDI_FT232R_USB_UART_A10{size}-if00-port0?baud=9600");
            case.message_bytes = size;
        }
        insta::assert_snapshot!(text(&run, Options::default()), @r"
        A Friday in the lab: 3 cases in 42.10 s on gauge-1, 2026-11-20 10:00 UTC

        Latency (round trips), peer linkgauge
          #                size       p50      ±       p90       p99       max  lost
          serial:///dev/serial/by-id/usb-FT…USB_UART_A101-if00-port0?baud=9600, CPUs 0,1
          1                 1 B  13.82 µs  1.2 %  14.48 µs  23.44 µs  273.7 µs     0
             response            16.17 µs         16.93 µs  27.38 µs  321.0 µs
          serial:///dev/serial/by-id/usb-FTDI_FT…_USB_UART_A1065536-if00-port0?baud=9600
          3            65.54 kB  892.9 µs  1.2 %  935.4 µs      lost  17.71 ms   600

        Latency over lines (round trips), peer echo, 1.024 kB messages, 3 ports at once
          #      line       p50      ±       p90       p99       max  lost
          serial:///dev/serial/by-id/usb-FTDI_FT…R_USB_UART_A101024-if00-port0?baud=9600
          2  1.042 ms  2.216 ms  1.2 %  2.320 ms  3.758 ms  43.84 ms     0

          1 spread     █▇    ▅                        ▂  13.00 µs to 273.7 µs, log scale
          2 spread     █▇    ▅                        ▂  2.083 ms to 43.84 ms, log scale
          3 spread     █▇    ▅                        ▂  839.7 µs to 17.71 ms, log scale

          1 times      █▅▁▁▁▁▁▁▁▁▁▁
          2 times                         ▂█▅▁▁▁▁▁▁▁▁▁▁
          3 times                      █▁▁▁▁▁▁▁▁▁▁▁
            13.00 µs to 43.84 ms, log scale: ▂ to p50, █ to p90, ▅ to p99, ▁ to max

          Case 1: missed frames: 2 over 16.7 ms (0.02 %), none over 50 ms.
          Case 2: over 3 ports, p50 from 2.212 ms to 2.245 ms, a spread of 1.015
            (slowest: tcp://moxa-5610.example:7003).
          A latency is a whole round trip, never half of one.
          line: what the message takes on the line, one way: no round trip is shorter.
          response: counted from when the message was due, not from when it was sent.
          ±: the 95 % interval, its longer side, over 3 repetitions or within the run.
          lost: so many were lost that the percentile was not reached.

        warning[busy-machine]: the machine was 40 % busy before the first case
          try: stop what else runs, or repeat with --repeat 10

        warning[near-floor]: cases 1, 2: the median is within 20 times of what the same
            exchange costs without a link (1.9 µs)
          try: read it as an upper bound, or pin both ends and wait by spinning

        warning[socket-drops]: case 3: 100 answers were dropped by the receiving socket,
            not by the path
          try: raise the receive buffer: ?receive_buffer=4Mi

        interrupted: stopped by a signal; the figures are of what was measured by then
            (not whole: case 3)
        ");
        for case in &mut run.cases {
            (case.message_bytes, case.ports, case.peer) = (1, 1, "echo".to_owned());
            case.placement.clear();
        }
        insta::assert_snapshot!(text(&run, Options::default()).lines().take(5).collect::<Vec<_>>().join("\n"), @r"
        A Friday in the lab: 3 cases in 42.10 s on gauge-1, 2026-11-20 10:00 UTC

        Latency (round trips), peer echo, 1 B messages
          #                 p50      ±       p90       p99       max  lost
          serial:///dev/serial/by-id/usb-FTDI_FT232R_USB_UART_A101-if00-port0?baud=9600
        ");
    }

    /// Six links with one case each, of which one spins.
    fn many_links() -> Run {
        let mut run = sample_run::full();
        let case = run.cases[0].clone();
        run.cases = (1..=6).map(|_| case.clone()).collect();
        run.warnings.clear();
        for (index, case) in run.cases.iter_mut().enumerate() {
            case.endpoint = format!("tcp://gauge-{index}.example:7100");
            case.figures.response_ns = None;
            case.figures.missed_frames = None;
            case.warnings.clear();
            case.placement.clear();
        }
        run.cases[1].placement.insert("wait".to_owned(), "spin".into());
        (run.title, run.interrupted) = (Some("demo on gauge-1".to_owned()), false);
        run
    }

    #[test]
    fn a_line_for_each_of_many_links() {
        let mut run = many_links();
        insta::assert_snapshot!(text(&run, Options::default()), @r"
        demo on gauge-1: 6 cases in 42.10 s, 2026-11-20 10:00 UTC

        Latency (round trips), peer linkgauge, 14 B messages
          #  endpoint                            p50       p90       p99       max  lost
          1  tcp://gauge-0.example:7100     13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
          2  tcp://gauge…xample:7100, spin  13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
          3  tcp://gauge-2.example:7100     13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
          4  tcp://gauge-3.example:7100     13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
          5  tcp://gauge-4.example:7100     13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
          6  tcp://gauge-5.example:7100     13.82 µs  14.48 µs  23.44 µs  273.7 µs     0

          1 spread     █▇    ▅                        ▂  13.00 µs to 273.7 µs, log scale
          2 spread     █▇    ▅                        ▂  13.00 µs to 273.7 µs, log scale
          3 spread     █▇    ▅                        ▂  13.00 µs to 273.7 µs, log scale
          4 spread     █▇    ▅                        ▂  13.00 µs to 273.7 µs, log scale
          5 spread     █▇    ▅                        ▂  13.00 µs to 273.7 µs, log scale
          6 spread     █▇    ▅                        ▂  13.00 µs to 273.7 µs, log scale

          1 times      █▅▅▅▅▅▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
          2 times      █▅▅▅▅▅▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
          3 times      █▅▅▅▅▅▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
          4 times      █▅▅▅▅▅▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
          5 times      █▅▅▅▅▅▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
          6 times      █▅▅▅▅▅▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
            13.00 µs to 273.7 µs, log scale: ▂ to p50, █ to p90, ▅ to p99, ▁ to max

          A latency is a whole round trip, never half of one.
          spin: both ends keep asking for the message instead of being woken for it.
        ");
        // Where shortened names would be the same, they are not shortened.
        for (index, case) in run.cases.iter_mut().enumerate() {
            case.endpoint = format!("unix:///run/user/1000/gauge/{index}/stream.socket?type=stream");
        }
        let text = text(&run, Options::default());
        assert!(text.contains("\n  unix:///run/user/1000/gauge/5/stream.socket?type=stream\n"), "{text}");
    }

    #[test]
    fn what_nearly_all_have_in_common_is_said_once() {
        let mut run = many_links();
        run.cases[1].placement.clear();
        (run.cases[4].peer, run.cases[4].endpoint) = ("echo".to_owned(), "icmp://gauge-4.example".to_owned());
        let text = text(&run, Options::default());
        insta::assert_snapshot!(text.lines().skip(2).take(8).collect::<Vec<_>>().join("\n"), @r"
        Latency (round trips), 14 B messages; unless said: peer linkgauge
          #  endpoint                            p50       p90       p99       max  lost
          1  tcp://gauge-0.example:7100     13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
          2  tcp://gauge-1.example:7100     13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
          3  tcp://gauge-2.example:7100     13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
          4  tcp://gauge-3.example:7100     13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
          5  icmp://g…4.example, peer echo  13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
          6  tcp://gauge-5.example:7100     13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
        ");
    }

    #[test]
    fn what_was_not_come_to_has_no_row() {
        let mut run = many_links();
        run.interrupted = true;
        for case in &mut run.cases[2..] {
            case.figures = Default::default();
            case.complete = false;
        }
        insta::assert_snapshot!(text(&run, Options::default()), @r"
        demo on gauge-1: 6 cases in 42.10 s, 2026-11-20 10:00 UTC

        Latency (round trips), peer linkgauge, 14 B messages
          #  endpoint                            p50       p90       p99       max  lost
          1  tcp://gauge-0.example:7100     13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
          2  tcp://gauge…xample:7100, spin  13.82 µs  14.48 µs  23.44 µs  273.7 µs     0

          1 spread     █▇    ▅                        ▂  13.00 µs to 273.7 µs, log scale
          2 spread     █▇    ▅                        ▂  13.00 µs to 273.7 µs, log scale

          1 times      █▅▅▅▅▅▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
          2 times      █▅▅▅▅▅▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
            13.00 µs to 273.7 µs, log scale: ▂ to p50, █ to p90, ▅ to p99, ▁ to max

          A latency is a whole round trip, never half of one.
          spin: both ends keep asking for the message instead of being woken for it.

        interrupted: stopped by a signal; the figures are of what was measured by then
            (not whole: cases 3–6)
        ");
    }

    #[test]
    fn no_line_is_too_long() {
        for width in [40, 60, 80, 132] {
            for run in sample_run::all() {
                let text = text(&run, Options { width, ..Options::default() });
                for line in text.lines() {
                    // A table has a least width: at 80 columns and above it must fit.
                    let fits = line.chars().count() <= width.max(80);
                    assert!(fits && !line.ends_with(' '), "{width}: {line:?}");
                }
            }
        }
    }

    #[test]
    fn nothing_reaches_the_terminal_but_text() {
        for colour in [false, true] {
            let text = text(&sample_run::hostile(), Options { colour, ..Options::default() });
            assert!(!text.contains("\u{1b}[2J"));
        }
        assert!(!text(&sample_run::full(), Options::default()).contains('\u{1b}'));
    }

    #[test]
    fn ascii_only() {
        let text = text(&sample_run::full(), Options { unicode: false, ..Options::default() });
        assert!(text.is_ascii());
        assert!(text.contains("13.") && text.contains(" us") && !text.contains("? "), "{text}");
    }
}
