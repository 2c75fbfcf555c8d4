//! Snapshots of whole text reports.

use super::*;
use crate::report::sample_runs;
use linkgauge_model::plan::{Direction, WaitMode};
use linkgauge_model::run::{
    CaseResult, EndEvidence, Evidence, Failure, FailureKind, MessageCounts, Placement, WarningCode,
};

const FULL: ReportOptions = ReportOptions { detail: Detail::Full, ..ReportOptions::PLAIN };

fn render_text(run: &Run, options: ReportOptions) -> String {
    let mut out = Vec::new();
    write(run, &options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn summary_of_one_case() {
    let one = |mut run: Run, case: usize| {
        run.cases = vec![run.cases.swap_remove(case)];
        (run.interrupted, run.title) = (false, None);
        render_text(&run, ReportOptions::default())
    };
    let runs = [
        one(sample_runs::full(), 0),
        one(sample_runs::full(), 2),
        one(sample_runs::full(), 3),
        one(sample_runs::serial_line(), 1),
        one(sample_runs::download(), 0),
        one(sample_runs::minimal(), 0),
    ];
    insta::assert_snapshot!(runs.join("\n"), @r"
    TCP round trip to 127.0.0.1:7100: 13.8 µs median, 23.4 µs p99; no loss. 3 runs ×
      3333 requests of 14 B, 42.1 s
                     min       p50      mean       p90       p99       max        sd
      RTT       13.00 µs  13.82 µs  14.02 µs  14.48 µs  23.44 µs  273.7 µs  5.311 µs
      response  15.20 µs  16.17 µs  16.39 µs  16.93 µs  27.38 µs  321.0 µs  6.220 µs
                █▇    ▅                        ▂  13.00 µs … 273.7 µs (log)
      note      the machine was 40 % busy before the first case. Try: stop what else
                runs, or repeat with --repeat 10
      note      the median is within 20 times the measurement overhead (1.9 µs).
                Try: read it as an upper bound, or pin both ends and busy-poll

    UDP round trip to gauge-2.example:7100: 893 µs median, p99 not reached; 600 of
      10 000 lost (6.00 %), 5 reordered, 2 bytes corrupt; stopped early. 10000
      requests of 14 B, 42.1 s
                     min       p50      mean       p90   p99       max        sd
      RTT       839.7 µs  892.9 µs  906.2 µs  935.4 µs  lost  17.71 ms  353.7 µs
                █▇    ▅                        ▂  839.7 µs … 17.71 ms (log)
      note      the machine was 40 % busy before the first case. Try: stop what else
                runs, or repeat with --repeat 10
      note      the receiving socket dropped 100 replies; the network lost none of
                them. Try: raise the receive buffer: ?receive_buffer=4Mi

    incomplete: part of the plan was not measured

    TCP to 127.0.0.1:7100: upload 310 Mbit/s, download 288 Mbit/s, 0.7 % of the line
      rate; RTT 310 → 330 µs under load (lowest, p50). 64 B messages, 42.1 s
                        rate  transferred  RTT lowest → loaded  loaded p99  of line
      upload    310.0 Mbit/s     387.5 MB         310 → 330 µs    559.6 µs    0.7 %
      download  288.3 Mbit/s     387.5 MB                    –           –        –
                ▇██▇█▇██▇█  279.0 Mbit/s to 341.0 Mbit/s
      note      the machine was 40 % busy before the first case. Try: stop what else
                runs, or repeat with --repeat 10

    serial loop through /dev/ttyUSB0 and 3 ports more: 29.0 kbit/s, 94.4 % of the
      line rate; 31 bytes not returned, 2 bytes inserted, 1 byte corrupt. 8 B
      messages, 42.1 s
                        rate  transferred    loss  of line      line max
      loop      29.01 kbit/s     36.26 kB  0.09 %   94.4 %  30.72 kbit/s
      FAIL      loss = 0 %, measured 0.5 %
      PASS      1 threshold

    TCP download from logger.example:6785 (pakbus): 4.93 kbit/s; chunk 1.20 s
      median, 2.16 s p99. 607 chunks of 991 B, 42.1 s
                        rate  transferred  chunk p50      p99      max  chunks
      download  4.931 kbit/s     600.0 kB    1.203 s  2.162 s  25.22 s     607

    MEM round trip to a: no times; 2 of 3 lost (66.7 %). 3 requests of 1 B, 42.1 s
    ");
}

#[test]
fn summary_of_several_cases() {
    insta::assert_snapshot!(render_text(&sample_runs::full(), ReportOptions::default()), @r"
    A Friday in the lab: 3 latency cases: p50 13.8 µs to 2.22 ms, 600 of 30 000 lost
      (2.00 %); 4 throughput cases: 288 Mbit/s to 41.3 Gbit/s. 42.1 s

    Latency, 14 B messages
      #  endpoint                            p50       p90       p99       max  lost
      1  tcp://127….0.1:7100, CPUs 0,1  13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
           response                     16.17 µs  16.93 µs  27.38 µs  321.0 µs
      3  udp://gauge-2.example:7100     892.9 µs  935.4 µs      lost  17.71 ms   600

    Latency over lines, protocol echo, 1 B messages, 3 ports at once
      #      line       p50      ±       p90       p99       max  lost
      tcp://moxa-5610.example:7001
      2  1.042 ms  2.216 ms  1.2 %  2.320 ms  3.758 ms  43.84 ms     0

    Throughput, both
      #                size          rate  of line      ±  loss  loaded p50
      tcp://127.0.0.1:7100
      4                64 B  310.0 Mbit/s    0.7 %  3.0 %   0 %    329.7 µs
         download            288.3 Mbit/s               –
      5            1.024 kB  4.200 Gbit/s   10.0 %  3.0 %   0 %    329.7 µs
         download            3.906 Gbit/s               –
      6             16.4 kB  28.60 Gbit/s   68.1 %  3.0 %   0 %    329.7 µs
         download            26.60 Gbit/s               –
      7              131 kB  41.30 Gbit/s   98.3 %  3.0 %   0 %    329.7 µs
         download            38.41 Gbit/s               –

      note      the machine was 40 % busy before the first case. Try: stop what else
                runs, or repeat with --repeat 10
      note      cases 1, 2: the median is within 20 times the measurement overhead
                (1.9 µs). Try: read it as an upper bound, or pin both ends and
                busy-poll
      note      case 3: the receiving socket dropped 100 replies; the network lost
                none of them. Try: raise the receive buffer: ?receive_buffer=4Mi

    interrupted: stopped by a signal; the figures cover the time until then
        (incomplete: case 3)
    ");
}

#[test]
fn a_summary_has_the_most_important_notes() {
    let mut run = sample_runs::minimal();
    let codes = ["few_samples", "drift", "corrupt", "cpu_saturated", "host_busy"];
    run.warnings = codes.map(|code| Warning::new(code.into(), format!("{code} text"), "do that")).to_vec();
    let text = render_text(&run, ReportOptions::default());
    insta::assert_snapshot!(text.lines().skip(1).collect::<Vec<_>>().join("\n"), @r"
    note      host_busy text. Try: do that
    note      corrupt text. Try: do that
    note      cpu_saturated text. Try: do that
              2 further notes: --notes
    ");
    // A few round trips have a median, and these notes do not change it.
    run.cases = vec![sample_runs::full().cases[0].clone()];
    run.cases[0].warnings.clear();
    run.warnings.retain(|warning| warning.code == WarningCode::HostBusy);
    assert!(render_text(&run, ReportOptions::default()).contains("host_busy text"));
    run.cases[0].figures.times.latency_ns.as_mut().unwrap().percentiles.retain(|name, _| name == "p50");
    let text = render_text(&run, ReportOptions::default());
    assert!(text.contains("p50") && !text.contains("host_busy text"), "{text}");
}

#[test]
fn download_shows_its_round_trips() {
    insta::assert_snapshot!(render_text(&sample_runs::download(), FULL), @r"
    Over the hill: 2 download cases: 4.93 kbit/s. 42.1 s
      2 cases in 42.10 s, 2026-11-20 10:00 UTC

    Download, protocol pakbus
      #  size         rate     p50     p99     max chunks resent records missing
      tcp://logger.example:6785
      1 991 B 4.931 kbit/s 1.203 s 2.162 s 25.22 s    607      2       –       –
      2 512 B 4.931 kbit/s 1.203 s 2.162 s 25.22 s    607      –  25 000       3

      Times of a download are those of a chunk, from its request to its reply.
      Rates are delivered payload by the receiver's clock, without headers.
    ");
}

#[test]
fn the_headline_of_a_download_counts_the_chunks_of_its_table() {
    let mut run = sample_runs::download();
    run.cases.truncate(1);
    // A request had no reply when the server ended.
    let counts = &mut run.cases[0].figures.counts;
    (counts.sent, counts.lost) = (608, 1);
    let text = render_text(&run, FULL);
    assert!(text.contains("607 chunks of 991 B") && !text.contains("608"), "{text}");
}

#[test]
fn full_run_fits_80_columns() {
    insta::assert_snapshot!(render_text(&sample_runs::full(), FULL), @r"
    A Friday in the lab: 3 latency cases: p50 13.8 µs to 2.22 ms, 600 of 30 000 lost
      (2.00 %); 4 throughput cases: 288 Mbit/s to 41.3 Gbit/s. 42.1 s
      7 cases in 42.10 s on gauge-1, 2026-11-20 10:00 UTC

    Latency, 14 B messages
      #  endpoint                            p50       p90       p99       max  lost
      1  tcp://127….0.1:7100, CPUs 0,1  13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
           response                     16.17 µs  16.93 µs  27.38 µs  321.0 µs
      3  udp://gauge-2.example:7100     892.9 µs  935.4 µs      lost  17.71 ms   600
      1 min 13.00 µs, mean 14.02 µs, sd 5.311 µs; per run: 13.78 µs … 13.91 µs
      3 min 839.7 µs, mean 906.2 µs, sd 353.7 µs

    Latency over lines, protocol echo, 1 B messages, 3 ports at once
      #      line       p50      ±       p90       p99       max  lost
      tcp://moxa-5610.example:7001
      2  1.042 ms  2.216 ms  1.2 %  2.320 ms  3.758 ms  43.84 ms     0
      2 min 2.083 ms, mean 2.246 ms, sd 851.1 µs

    Throughput, both
      #              size         rate of line     ± loss CPU s/GB loaded p50
      tcp://127.0.0.1:7100
      4              64 B 310.0 Mbit/s   0.7 % 3.0 %  0 %    10.65   329.7 µs
        download          288.3 Mbit/s             –
      5          1.024 kB 4.200 Gbit/s  10.0 % 3.0 %  0 %    0.786   329.7 µs
        download          3.906 Gbit/s             –
      6           16.4 kB 28.60 Gbit/s  68.1 % 3.0 %  0 %    0.115   329.7 µs
        download          26.60 Gbit/s             –
      7            131 kB 41.30 Gbit/s  98.3 % 3.0 %  0 %    0.080   329.7 µs
        download          38.41 Gbit/s             –
      fit 4–7: 1.672 µs + size ÷ 5.534 GB/s, half 9.250 kB; last 5.512 GB/s

      1 distribution  █▇    ▅                        ▂  13.00 µs … 273.7 µs (log)
      2 distribution  █▇    ▅                        ▂  2.083 ms … 43.84 ms (log)
      3 distribution  █▇    ▅                        ▂  839.7 µs … 17.71 ms (log)
      4 over time     ▇██▇█▇██▇█  279.0 Mbit/s to 341.0 Mbit/s
      5 over time     ▇██▇█▇██▇█  3.780 Gbit/s to 4.620 Gbit/s
      6 over time     ▇██▇█▇██▇█  25.74 Gbit/s to 31.46 Gbit/s
      7 over time     ▇██▇█▇██▇█  37.17 Gbit/s to 45.43 Gbit/s

      1 RTT           █▅▁▁▁▁▁▁▁▁▁▁
      2 RTT                              ▂█▅▁▁▁▁▁▁▁▁▁▁
      3 RTT                           █▁▁▁▁▁▁▁▁▁▁▁
        13.00 µs to 43.84 ms, log scale: ▂ to p50, █ to p90, ▅ to p99, ▁ to max

      Case 1: missed frames: 2 over 16.7 ms (0.02 %), none over 50 ms.
      Case 2: over 3 ports, p50 from 2.212 ms to 2.245 ms, ratio 1.015 (slowest:
        tcp://moxa-5610.example:7003).
      Latency is the round-trip time, never half of it.
      line: time of the message on the line, one way. No round trip is shorter.
      response: from when the request was due, not from when it was sent.
      Rates are delivered payload by the receiver's clock, without headers.
      fit: time of a message (of a latency: the median) = overhead + size ÷ rate;
        half: the size with half of that rate; last: between the two largest sizes,
        =: share of the line rate. linkgauge explain shows more.
      CPU s/GB: CPU seconds of client and server per delivered gigabyte (1000 MB).
      ±: half of the 95 % interval (its longer side), by the course of the transfer
        and the usual difference between runs or over 3 repetitions or within the
        run.
      lost: too many requests were lost to reach the percentile.

    warning[busy-machine]: the machine was 40 % busy before the first case
      try: stop what else runs, or repeat with --repeat 10

    warning[near-floor]: cases 1, 2: the median is within 20 times the measurement
        overhead (1.9 µs)
      try: read it as an upper bound, or pin both ends and busy-poll

    warning[socket-drops]: case 3: the receiving socket dropped 100 replies; the
        network lost none of them
      try: raise the receive buffer: ?receive_buffer=4Mi

    interrupted: stopped by a signal; the figures cover the time until then
        (incomplete: case 3)
    ");
}

#[test]
fn a_sweep_of_messages() {
    insta::assert_snapshot!(render_text(&sample_runs::message_sizes(), FULL), @r"
    5 throughput cases: 24.8 Mbit/s to 713 Mbit/s. 42.1 s
      5 cases in 42.10 s, 2026-11-20 10:00 UTC

    Throughput, upload
      #     size         rate     ± loss a message messages/s     CPU CPU s/GB
      udp://gauge-2.example:7100
      1     64 B 24.81 Mbit/s 3.0 %  0 %  20.64 µs     48 450 98+63 %    2.100
      2    256 B 90.78 Mbit/s 3.0 %  0 %  22.56 µs     44 326 98+63 %    2.100
      3 1.024 kB 270.9 Mbit/s 3.0 %  0 %  30.24 µs     33 069 98+63 %    2.100
      4 4.096 kB 537.5 Mbit/s 3.0 %  0 %  60.96 µs     16 404 98+63 %    2.100
      5  16.4 kB 713.0 Mbit/s 3.0 %  0 %  183.8 µs      5 440 98+63 %    2.100
      fit 1–5: 20.00 µs + size ÷ 100.0 MB/s, half 2.000 kB; last 100.0 MB/s = 82 %

      Rates are delivered payload by the receiver's clock, without headers.
      a message: time per message, by the receiver's clock.
      CPU: CPU use of client + server.
      fit: time of a message (of a latency: the median) = overhead + size ÷ rate;
        half: the size with half of that rate; last: between the two largest sizes,
        =: share of the line rate. linkgauge explain shows more.
      CPU s/GB: CPU seconds of client and server per delivered gigabyte (1000 MB).
      ±: half of the 95 % interval (its longer side), by the course of the transfer
        and the usual difference between runs.
    ");
}

#[test]
fn serial_lines_and_their_limits() {
    insta::assert_snapshot!(render_text(&sample_runs::serial_line(), FULL), @r"
    Loops through plugs: 2 throughput cases: 7.67 kbit/s to 29.0 kbit/s. 42.1 s
      2 cases in 42.10 s, 2026-11-20 10:00 UTC

    Throughput over lines, loop, 8 B messages
      #  endpoint                                rate      line max  of line    loss
      1  serial:///dev/…yUSB0?baud=9600  7.671 kbit/s  7.680 kbit/s   99.9 %     0 %
      2  serial…d=9600, 4 ports at once  29.01 kbit/s  30.72 kbit/s   94.4 %  0.09 %

      Case 2: over 4 ports, rate from 7.250 kbit/s to 7.671 kbit/s, fairness 0.945
        (slowest: serial:///dev/ttyUSB0?baud=9600).
      Rates are delivered payload by the receiver's clock, without headers.
      line max: the maximum payload rate of the line.

      FAIL      case 2: loss = 0 %, measured 0.5 %
      PASS      1 threshold
    ");
}

#[test]
fn a_file_without_link_and_losses_invents_neither() {
    let text = render_text(&sample_runs::imported(), ReportOptions::default());
    assert!(text.starts_with("round trip to study.log: "), "{text}");
    let sentence = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(sentence.contains("; loss unknown. 1000 received, 42.1 s"), "{text}");
    assert!(!sentence.contains("no loss") && !sentence.contains("TCP"), "{text}");
}

#[test]
fn a_case_without_results_says_why() {
    let refused = "connection refused: no server listens on this port. Start one there, or name another port";
    let silent =
        "none of 3 messages arrived: the server does not reply. Check that it runs, firewalls, and --timeout";
    let runs = [(0, refused), (3, silent)].map(|(sent, reason)| {
        let mut run = sample_runs::minimal();
        let case = &mut run.cases[0];
        case.complete = false;
        case.figures.counts = MessageCounts { sent, lost: sent, ..MessageCounts::default() };
        case.failures = vec![Failure::new(FailureKind::System, format!("{}: {reason}", case.endpoint))];
        let text = format!("not measured as planned: {}", case.failures[0]);
        case.warnings = vec![Warning::new(WarningCode::Incomplete, text, "")];
        render_text(&run, ReportOptions::default())
    });
    insta::assert_snapshot!(runs.join("\n"), @r"
    MEM round trip to a: connection refused: no server listens on this port. Start
      one there, or name another port.

    incomplete: nothing was measured

    MEM round trip to a: none of 3 messages arrived: the server does not reply.
      Check that it runs, firewalls, and --timeout. 3 requests of 1 B, 42.1 s

    incomplete: part of the plan was not measured
    ");
}

#[test]
fn minimal_run() {
    insta::assert_snapshot!(render_text(&sample_runs::minimal(), FULL), @r"
    MEM round trip to a: no times; 2 of 3 lost (66.7 %). 3 requests of 1 B, 42.1 s
      1 case in 42.10 s, 2026-11-20 10:00 UTC

    Latency, 1 B messages
      endpoint  p50  max  lost
      mem://a     –    –     2
    ");
    insta::assert_snapshot!(render_text(&sample_runs::empty(), FULL), @r"
    Nothing was measured.
      0 cases in 42.10 s, 2026-11-20 10:00 UTC

    interrupted: stopped by a signal; the figures cover the time until then
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
    insta::assert_snapshot!(render_text(&run, FULL), @r"
    A Friday in the lab: 3 latency cases: p50 13.8 µs to 2.22 ms, 600 of 30 000 lost
      (2.00 %). 42.1 s
      3 cases in 42.10 s on gauge-1, 2026-11-20 10:00 UTC

    Latency
      #               size       p50      ±       p90       p99       max  lost
      serial:///dev/serial/by-id/usb-FT…USB_UART_A101-if00-port0?baud=9600, CPUs 0,1
      1                1 B  13.82 µs  1.2 %  14.48 µs  23.44 µs  273.7 µs     0
         response           16.17 µs         16.93 µs  27.38 µs  321.0 µs
      serial:///dev/serial/by-id/usb-FTDI_FT…_USB_UART_A1065536-if00-port0?baud=9600
      3            65.5 kB  892.9 µs  1.2 %  935.4 µs      lost  17.71 ms   600
      1 min 13.00 µs, mean 14.02 µs, sd 5.311 µs; per run: 13.78 µs … 13.91 µs
      3 min 839.7 µs, mean 906.2 µs, sd 353.7 µs

    Latency over lines, protocol echo, 1.024 kB messages, 3 ports at once
      #      line       p50      ±       p90       p99       max  lost
      serial:///dev/serial/by-id/usb-FTDI_FT…R_USB_UART_A101024-if00-port0?baud=9600
      2  1.042 ms  2.216 ms  1.2 %  2.320 ms  3.758 ms  43.84 ms     0
      2 min 2.083 ms, mean 2.246 ms, sd 851.1 µs

      1 distribution  █▇    ▅                        ▂  13.00 µs … 273.7 µs (log)
      2 distribution  █▇    ▅                        ▂  2.083 ms … 43.84 ms (log)
      3 distribution  █▇    ▅                        ▂  839.7 µs … 17.71 ms (log)

      1 RTT           █▅▁▁▁▁▁▁▁▁▁▁
      2 RTT                              ▂█▅▁▁▁▁▁▁▁▁▁▁
      3 RTT                           █▁▁▁▁▁▁▁▁▁▁▁
        13.00 µs to 43.84 ms, log scale: ▂ to p50, █ to p90, ▅ to p99, ▁ to max

      Case 1: missed frames: 2 over 16.7 ms (0.02 %), none over 50 ms.
      Case 2: over 3 ports, p50 from 2.212 ms to 2.245 ms, ratio 1.015 (slowest:
        tcp://moxa-5610.example:7003).
      Latency is the round-trip time, never half of it.
      line: time of the message on the line, one way. No round trip is shorter.
      response: from when the request was due, not from when it was sent.
      ±: half of the 95 % interval (its longer side), over 3 repetitions or within
        the run.
      lost: too many requests were lost to reach the percentile.

    warning[busy-machine]: the machine was 40 % busy before the first case
      try: stop what else runs, or repeat with --repeat 10

    warning[near-floor]: cases 1, 2: the median is within 20 times the measurement
        overhead (1.9 µs)
      try: read it as an upper bound, or pin both ends and busy-poll

    warning[socket-drops]: case 3: the receiving socket dropped 100 replies; the
        network lost none of them
      try: raise the receive buffer: ?receive_buffer=4Mi

    interrupted: stopped by a signal; the figures cover the time until then
        (incomplete: case 3)
    ");
    for case in &mut run.cases {
        (case.message_bytes, case.ports, case.protocol) = (1, 1, "echo".to_owned());
        case.placement = Placement::default();
    }
    insta::assert_snapshot!(render_text(&run, FULL).lines().take(5).collect::<Vec<_>>().join("\n"), @r"
    A Friday in the lab: 3 latency cases: p50 13.8 µs to 2.22 ms, 600 of 30 000 lost
      (2.00 %). 42.1 s
      3 cases in 42.10 s on gauge-1, 2026-11-20 10:00 UTC

    Latency, protocol echo, 1 B messages
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
        case.placement = Placement::default();
    }
    run.cases[1].placement.wait = Some(WaitMode::BusyPoll);
    (run.title, run.interrupted) = (Some("demo on gauge-1".to_owned()), false);
    run
}

#[test]
fn a_line_for_each_of_many_links() {
    let mut run = many_links();
    insta::assert_snapshot!(render_text(&run, FULL), @r"
    demo on gauge-1: 6 latency cases: p50 13.8 µs, no loss. 42.1 s
      6 cases in 42.10 s, 2026-11-20 10:00 UTC

    Latency, 14 B messages
      #  endpoint                            p50       p90       p99       max  lost
      1  tcp://gauge-0.example:7100     13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
      2  tcp://ga…mple:7100, busy-poll  13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
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

      1 distribution  █▇    ▅                        ▂  13.00 µs … 273.7 µs (log)
      2 distribution  █▇    ▅                        ▂  13.00 µs … 273.7 µs (log)
      3 distribution  █▇    ▅                        ▂  13.00 µs … 273.7 µs (log)
      4 distribution  █▇    ▅                        ▂  13.00 µs … 273.7 µs (log)
      5 distribution  █▇    ▅                        ▂  13.00 µs … 273.7 µs (log)
      6 distribution  █▇    ▅                        ▂  13.00 µs … 273.7 µs (log)

      1 RTT           █▅▅▅▅▅▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
      2 RTT           █▅▅▅▅▅▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
      3 RTT           █▅▅▅▅▅▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
      4 RTT           █▅▅▅▅▅▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
      5 RTT           █▅▅▅▅▅▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
      6 RTT           █▅▅▅▅▅▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
        13.00 µs to 273.7 µs, log scale: ▂ to p50, █ to p90, ▅ to p99, ▁ to max

      Latency is the round-trip time, never half of it.
      busy-poll: client and server wait by polling.
    ");
    // Names are not shortened if the result would be ambiguous.
    for (index, case) in run.cases.iter_mut().enumerate() {
        case.endpoint = format!("unix:///run/user/1000/gauge/{index}/stream.socket?type=stream");
    }
    let text = render_text(&run, FULL);
    assert!(text.contains("\n  unix:///run/user/1000/gauge/5/stream.socket?type=stream\n"), "{text}");
}

#[test]
fn common_values_are_stated_once() {
    let mut run = many_links();
    run.cases[1].placement = Placement::default();
    (run.cases[4].protocol, run.cases[4].endpoint) = ("echo".to_owned(), "icmp://gauge-4.example".to_owned());
    let text = render_text(&run, FULL);
    insta::assert_snapshot!(text.lines().skip(2).take(8).collect::<Vec<_>>().join("\n"), @r"

    Latency, 14 B messages
      #  endpoint                            p50       p90       p99       max  lost
      1  tcp://gauge-0.example:7100     13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
      2  tcp://gauge-1.example:7100     13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
      3  tcp://gauge-2.example:7100     13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
      4  tcp://gauge-3.example:7100     13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
      5  icmp:/…example, protocol echo  13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
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
    insta::assert_snapshot!(render_text(&run, FULL), @r"
    demo on gauge-1: 6 latency cases: p50 13.8 µs, no loss, 4 cases without a
      result. 42.1 s
      6 cases in 42.10 s, 2026-11-20 10:00 UTC

    Latency, 14 B messages
      #  endpoint                            p50       p90       p99       max  lost
      1  tcp://gauge-0.example:7100     13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
      2  tcp://ga…mple:7100, busy-poll  13.82 µs  14.48 µs  23.44 µs  273.7 µs     0
      1 min 13.00 µs, mean 14.02 µs, sd 5.311 µs; per run: 13.78 µs … 13.91 µs
      2 min 13.00 µs, mean 14.02 µs, sd 5.311 µs; per run: 13.78 µs … 13.91 µs

      1 distribution  █▇    ▅                        ▂  13.00 µs … 273.7 µs (log)
      2 distribution  █▇    ▅                        ▂  13.00 µs … 273.7 µs (log)

      1 RTT           █▅▅▅▅▅▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
      2 RTT           █▅▅▅▅▅▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
        13.00 µs to 273.7 µs, log scale: ▂ to p50, █ to p90, ▅ to p99, ▁ to max

      Latency is the round-trip time, never half of it.
      busy-poll: client and server wait by polling.

    interrupted: stopped by a signal; the figures cover the time until then
        (incomplete: cases 3–6)
    ");
}

#[test]
fn no_line_is_too_long() {
    for width in [40, 60, 80, 132] {
        for run in sample_runs::all_samples() {
            let text = render_text(&run, ReportOptions { detail: Detail::Full, width, ..FULL });
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
        let text = render_text(&sample_runs::hostile(), ReportOptions { colour, ..FULL });
        assert!(!text.contains("\u{1b}[2J"));
    }
    assert!(!render_text(&sample_runs::full(), FULL).contains('\u{1b}'));
}

#[test]
fn ascii_only() {
    let text = render_text(&sample_runs::full(), ReportOptions { unicode: false, ..FULL });
    assert!(text.is_ascii());
    assert!(text.contains("13.") && text.contains(" us") && !text.contains("? "), "{text}");
}

#[test]
fn directions_are_rows_of_one_table() {
    let mut run = sample_runs::full();
    run.warnings.clear();
    run.interrupted = false;
    let case = run.cases[4].clone();
    let direction = |direction, rate: f64| {
        let mut case = CaseResult { direction, ..case.clone() };
        case.figures.delivery.throughput_reverse_bps = None;
        case.figures.delivery.line_rate_percent = None;
        case.figures.delivery.throughput_bps = Some(rate);
        // Each end knows the segments that it sent again.
        case.effective.insert(linkgauge_model::run::RETRANSMITS_FACT.to_owned(), 12.into());
        let mut server = EndEvidence::default();
        server.connections.counters.insert("tcp_retransmitted_segments".to_owned(), 34);
        case.evidence = Some(Evidence { server: Some(server), ..Evidence::default() });
        case
    };
    run.cases = vec![direction(Direction::Send, 93.8e6), direction(Direction::Receive, 471e6)];
    run.title = None;
    for width in [56, 80] {
        let text = render_text(&run, ReportOptions { width, ..ReportOptions::default() });
        assert!(text.contains("RTT lowest → loaded") && text.contains("rate"), "{text}");
    }
    let whole = ReportOptions { width: 40, keeps_answer_whole: true, ..ReportOptions::default() };
    let text = render_text(&run, whole);
    assert!(text.lines().next().unwrap().contains(" of latency"), "{text}");
    let text = render_text(&run, ReportOptions { width: 160, ..ReportOptions::default() });
    let answer = "TCP to 127.0.0.1:7100: upload 93.8 Mbit/s, download 471 Mbit/s; ";
    assert!(text.starts_with(answer) && text.contains(" of latency"), "{text}");
    let cells = |name: &str| {
        let row = text.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let (up, down) = (cells("upload"), cells("download"));
    assert_eq!((up[1].as_str(), up[3].as_str(), down[3].as_str()), ("93.80 Mbit/s", "12", "34"), "{text}");
    assert!(
        up.last().unwrap().contains('▇') && text.lines().all(|line| line.chars().count() <= 160),
        "{text}"
    );
}

#[test]
fn a_long_drain_of_the_queue_is_stated() {
    let mut run = sample_runs::full();
    run.cases.retain(|case| case.workload == "throughput");
    run.cases.truncate(1);
    let first_line = |run: &Run| {
        let whole = ReportOptions { keeps_answer_whole: true, ..ReportOptions::default() };
        render_text(run, whole).lines().find(|line| line.contains("Mbit/s")).unwrap().to_owned()
    };
    let case = &mut run.cases[0];
    case.figures.delivery.drain_ns = Some(999_999_999);
    assert!(!first_line(&run).contains("drained"), "{}", first_line(&run));
    let drained = "; the queue drained for 1.00 s after the last byte was sent";
    let case = &mut run.cases[0];
    case.figures.delivery.drain_ns = Some(1_000_000_000);
    case.figures.counts.received = case.figures.counts.sent;
    assert!(first_line(&run).contains(drained) && !first_line(&run).contains("not empty"));
    let counts = &mut run.cases[0].figures.counts;
    (counts.received, counts.lost) = (counts.sent / 2, 0);
    assert!(first_line(&run).contains(&format!("{drained} and was not empty then")), "{}", first_line(&run));
}
