//! Snapshots of whole text reports.

use super::*;
use crate::report::sample_runs;

fn render_text(run: &Run, options: ReportOptions) -> String {
    let mut out = Vec::new();
    write(run, &options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn download_shows_its_round_trips() {
    insta::assert_snapshot!(render_text(&sample_runs::download(), ReportOptions::default()), @r"
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
fn full_run_fits_80_columns() {
    insta::assert_snapshot!(render_text(&sample_runs::full(), ReportOptions::default()), @r"
    A Friday in the lab: 7 cases in 42.10 s on gauge-1, 2026-11-20 10:00 UTC

    Latency (round trips), peer linkgauge, 14 B messages
      #  endpoint                            p50       p90       p99       max  lost
      1  tcp://127….0.1:7100, CPUs 0,1  13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
           response                     16.17 µs  16.93 µs  27.38 µs  321.0 µs
      3  udp://gauge-2.example:7100     892.9 µs  935.4 µs      lost  17.71 ms   600
      1 min 13.00 µs, mean 14.02 µs, sd 5.311 µs; per run: 13.78 µs … 13.91 µs
      3 min 839.7 µs, mean 906.2 µs, sd 353.7 µs

    Latency over lines (round trips), peer echo, 1 B messages, 3 ports at once
      #      line       p50      ±       p90       p99       max  lost
      tcp://moxa-5610.example:7001
      2  1.042 ms  2.216 ms  1.2 %  2.320 ms  3.758 ms  43.84 ms     0
      2 min 2.083 ms, mean 2.246 ms, sd 851.1 µs

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
      fit: time of a message (a latency's median) = its own + size ÷ rate; half: the
        size that gets half of it; last: between the two largest sizes, =: of what
        the line can carry. linkgauge explain tells more.
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
    insta::assert_snapshot!(render_text(&sample_runs::message_sizes(), ReportOptions::default()), @r"
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
      fit: time of a message (a latency's median) = its own + size ÷ rate; half: the
        size that gets half of it; last: between the two largest sizes, =: of what
        the line can carry. linkgauge explain tells more.
      CPU s/GB: CPU seconds of both ends for a delivered gigabyte (1000 MB).
      ±: the 95 % interval, its longer side, within the run.
    ");
}

#[test]
fn serial_lines_and_their_limits() {
    insta::assert_snapshot!(render_text(&sample_runs::serial_line(), ReportOptions::default()), @r"
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
fn minimal_run() {
    insta::assert_snapshot!(render_text(&sample_runs::minimal(), ReportOptions::default()), @r"
    linkgauge: 1 case in 42.10 s, 2026-11-20 10:00 UTC

    Latency (round trips), peer linkgauge, 1 B messages
      endpoint  p50  max  lost
      mem://a     –    –     2
    ");
    insta::assert_snapshot!(render_text(&sample_runs::empty(), ReportOptions::default()), @r"
    linkgauge: 0 cases in 42.10 s, 2026-11-20 10:00 UTC

    interrupted: stopped by a signal; the figures are of what was measured by then
    ");
}

#[test]
fn endpoints_that_do_not_fit() {
    let mut run = sample_runs::full();
    run.cases.truncate(3);
    for (case, size) in run.cases.iter_mut().zip([1, 1024, 65_536]) {
        case.endpoint =
            format!("serial:///dev/serial/by-id/usb-FTDI_FT232R_USB_UART_A10{size}-if00-port0?baud=9600");
        case.message_bytes = size;
    }
    insta::assert_snapshot!(render_text(&run, ReportOptions::default()), @r"
    A Friday in the lab: 3 cases in 42.10 s on gauge-1, 2026-11-20 10:00 UTC

    Latency (round trips), peer linkgauge
      #                size       p50      ±       p90       p99       max  lost
      serial:///dev/serial/by-id/usb-FT…USB_UART_A101-if00-port0?baud=9600, CPUs 0,1
      1                 1 B  13.82 µs  1.2 %  14.48 µs  23.44 µs  273.7 µs     0
         response            16.17 µs         16.93 µs  27.38 µs  321.0 µs
      serial:///dev/serial/by-id/usb-FTDI_FT…_USB_UART_A1065536-if00-port0?baud=9600
      3            65.54 kB  892.9 µs  1.2 %  935.4 µs      lost  17.71 ms   600
      1 min 13.00 µs, mean 14.02 µs, sd 5.311 µs; per run: 13.78 µs … 13.91 µs
      3 min 839.7 µs, mean 906.2 µs, sd 353.7 µs

    Latency over lines (round trips), peer echo, 1.024 kB messages, 3 ports at once
      #      line       p50      ±       p90       p99       max  lost
      serial:///dev/serial/by-id/usb-FTDI_FT…R_USB_UART_A101024-if00-port0?baud=9600
      2  1.042 ms  2.216 ms  1.2 %  2.320 ms  3.758 ms  43.84 ms     0
      2 min 2.083 ms, mean 2.246 ms, sd 851.1 µs

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
    insta::assert_snapshot!(render_text(&run, ReportOptions::default()).lines().take(5).collect::<Vec<_>>().join("\n"), @r"
    A Friday in the lab: 3 cases in 42.10 s on gauge-1, 2026-11-20 10:00 UTC

    Latency (round trips), peer echo, 1 B messages
      #                 p50      ±       p90       p99       max  lost
      serial:///dev/serial/by-id/usb-FTDI_FT232R_USB_UART_A101-if00-port0?baud=9600
    ");
}

/// Six links with one case each. One case busy-polls.
fn many_links() -> Run {
    let mut run = sample_runs::full();
    let case = run.cases[0].clone();
    run.cases = (1..=6).map(|_| case.clone()).collect();
    run.warnings.clear();
    for (index, case) in run.cases.iter_mut().enumerate() {
        case.endpoint = format!("tcp://gauge-{index}.example:7100");
        case.figures.times.response_ns = None;
        case.figures.times.missed_frames = None;
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
    insta::assert_snapshot!(render_text(&run, ReportOptions::default()), @r"
    demo on gauge-1: 6 cases in 42.10 s, 2026-11-20 10:00 UTC

    Latency (round trips), peer linkgauge, 14 B messages
      #  endpoint                            p50       p90       p99       max  lost
      1  tcp://gauge-0.example:7100     13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
      2  tcp://gauge…xample:7100, spin  13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
      3  tcp://gauge-2.example:7100     13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
      4  tcp://gauge-3.example:7100     13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
      5  tcp://gauge-4.example:7100     13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
      6  tcp://gauge-5.example:7100     13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
      1 min 13.00 µs, mean 14.02 µs, sd 5.311 µs; per run: 13.78 µs … 13.91 µs
      2 min 13.00 µs, mean 14.02 µs, sd 5.311 µs; per run: 13.78 µs … 13.91 µs
      3 min 13.00 µs, mean 14.02 µs, sd 5.311 µs; per run: 13.78 µs … 13.91 µs
      4 min 13.00 µs, mean 14.02 µs, sd 5.311 µs; per run: 13.78 µs … 13.91 µs
      5 min 13.00 µs, mean 14.02 µs, sd 5.311 µs; per run: 13.78 µs … 13.91 µs
      6 min 13.00 µs, mean 14.02 µs, sd 5.311 µs; per run: 13.78 µs … 13.91 µs

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
    // Names are not shortened if the result would be ambiguous.
    for (index, case) in run.cases.iter_mut().enumerate() {
        case.endpoint = format!("unix:///run/user/1000/gauge/{index}/stream.socket?type=stream");
    }
    let text = render_text(&run, ReportOptions::default());
    assert!(text.contains("\n  unix:///run/user/1000/gauge/5/stream.socket?type=stream\n"), "{text}");
}

#[test]
fn common_values_are_stated_once() {
    let mut run = many_links();
    run.cases[1].placement.clear();
    (run.cases[4].peer, run.cases[4].endpoint) = ("echo".to_owned(), "icmp://gauge-4.example".to_owned());
    let text = render_text(&run, ReportOptions::default());
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
fn unmeasured_cases_have_no_row() {
    let mut run = many_links();
    run.interrupted = true;
    for case in &mut run.cases[2..] {
        case.figures = Default::default();
        case.complete = false;
    }
    insta::assert_snapshot!(render_text(&run, ReportOptions::default()), @r"
    demo on gauge-1: 6 cases in 42.10 s, 2026-11-20 10:00 UTC

    Latency (round trips), peer linkgauge, 14 B messages
      #  endpoint                            p50       p90       p99       max  lost
      1  tcp://gauge-0.example:7100     13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
      2  tcp://gauge…xample:7100, spin  13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
      1 min 13.00 µs, mean 14.02 µs, sd 5.311 µs; per run: 13.78 µs … 13.91 µs
      2 min 13.00 µs, mean 14.02 µs, sd 5.311 µs; per run: 13.78 µs … 13.91 µs

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
        for run in sample_runs::all_samples() {
            let text = render_text(&run, ReportOptions { width, ..ReportOptions::default() });
            for line in text.lines() {
                // A table has a minimum width, so it must fit at 80 columns and above.
                let fits = line.chars().count() <= width.max(80);
                assert!(fits && !line.ends_with(' '), "{width}: {line:?}");
            }
        }
    }
}

#[test]
fn only_text_reaches_the_terminal() {
    for colour in [false, true] {
        let text = render_text(&sample_runs::hostile(), ReportOptions { colour, ..ReportOptions::default() });
        assert!(!text.contains("\u{1b}[2J"));
    }
    assert!(!render_text(&sample_runs::full(), ReportOptions::default()).contains('\u{1b}'));
}

#[test]
fn ascii_only() {
    let text =
        render_text(&sample_runs::full(), ReportOptions { unicode: false, ..ReportOptions::default() });
    assert!(text.is_ascii());
    assert!(text.contains("13.") && text.contains(" us") && !text.contains("? "), "{text}");
}
