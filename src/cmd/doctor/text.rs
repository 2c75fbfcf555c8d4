//! The findings as text.

use std::fmt::Write;

use anstyle::{AnsiColor, Style};
use linkgauge::host::check::{Check, CheckVerdict};
use linkgauge::host::serial::PortInfo;
use linkgauge::report::{ReportOptions, to_ascii, wrap};
use linkgauge::units::{format_nanoseconds, format_plural};

use super::overhead::{LoopbackRoundTrip, MeasurementOverhead};
use super::{DoctorReport, TransportStatus};

const BOLD: Style = Style::new().bold();

/// The verdict, the problems and the overhead. The caller removes the styles if necessary.
pub fn render_summary(findings: &DoctorReport, options: &ReportOptions) -> String {
    let mut page = TextRenderer { options: *options, out: String::new() };
    page.push_verdict(findings);
    let problems = findings.checks.iter().filter(|check| check.verdict != CheckVerdict::Good);
    let mut passed = findings.checks.len();
    for (check, number) in problems.zip(1..) {
        page.push_problem(number, check);
        passed -= 1;
    }
    page.push_paragraph("  overhead  ", "            ", &overhead_text(&findings.overhead), Style::new());
    let mut rest = format!("{} passed", format_plural(passed as u64, "check"));
    let missing: Vec<&str> = findings
        .transports
        .iter()
        .filter(|transport| !transport.available)
        .map(|transport| transport.scheme)
        .collect();
    if !missing.is_empty() {
        rest += &format!(
            "; {} unavailable ({})",
            format_plural(missing.len() as u64, "transport"),
            missing.join(", ")
        );
    }
    let busy = findings.serial_ports.iter().filter(|port| !is_free(port)).count();
    if busy > 0 {
        rest += &format!("; {} in use or not accessible", format_plural(busy as u64, "serial port"));
    }
    page.push_paragraph("", "  ", &format!("{rest}. Details: linkgauge doctor --all"), Style::new());
    page.out
}

/// All findings. The caller removes the styles if necessary.
pub fn render_all(findings: &DoctorReport, options: &ReportOptions) -> String {
    let mut page = TextRenderer { options: *options, out: String::new() };
    page.push_verdict(findings);
    page.push_heading("This host");
    let longest = findings.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for check in &findings.checks {
        page.push_finding(check.verdict, check.name, longest, &check.finding, check.remedy.as_deref());
    }
    page.push_heading("Transports");
    let longest = findings.transports.iter().map(|transport| transport.scheme.len()).max().unwrap_or(0);
    for transport in &findings.transports {
        page.push_transport(transport, longest);
    }
    page.push_heading("Serial ports");
    let longest = findings.serial_ports.iter().map(|port| port.device.len()).max().unwrap_or(0);
    for port in &findings.serial_ports {
        page.push_port(port, longest);
    }
    if findings.serial_ports.is_empty() {
        page.out += "  none\n";
    }
    page.push_heading("Measurement overhead");
    page.push_overhead(&findings.overhead);
    page.out
}

/// True if this user may open the port and no other program uses it.
fn is_free(port: &PortInfo) -> bool {
    port.may_open && port.used_by.is_none() && !port.console
}

/// The overhead in one line.
fn overhead_text(overhead: &MeasurementOverhead) -> String {
    let mut parts = vec![format!("clock {}", format_nanoseconds(overhead.clock_read_ns))];
    if overhead.memory_round_trip_ns > 0.0 {
        parts.push(format!("round trip in memory {}", format_nanoseconds(overhead.memory_round_trip_ns)));
    }
    let measured = overhead.round_trips.iter().filter_map(|one| {
        Some(format!("{} ({})", format_nanoseconds(one.p50_ns? as f64), round_trip_variant(one)))
    });
    let measured: Vec<String> = measured.collect();
    if !measured.is_empty() {
        parts.push(format!("TCP round trip {}", measured.join(", ")));
    }
    parts.join(", ")
}

struct TextRenderer {
    options: ReportOptions,
    out: String,
}

fn verdict_mark(verdict: CheckVerdict, unicode: bool) -> (&'static str, Style) {
    let style = |colour: AnsiColor| colour.on_default().bold();
    match (verdict, unicode) {
        (CheckVerdict::Good, true) => ("✓", style(AnsiColor::Green)),
        (CheckVerdict::Good, false) => ("ok", style(AnsiColor::Green)),
        (CheckVerdict::Doubtful, true) => ("!", style(AnsiColor::Yellow)),
        (CheckVerdict::Doubtful, false) => ("??", style(AnsiColor::Yellow)),
        (CheckVerdict::Bad, true) => ("✗", style(AnsiColor::Red)),
        (CheckVerdict::Bad, false) => ("!!", style(AnsiColor::Red)),
    }
}

impl TextRenderer {
    fn push_heading(&mut self, text: &str) {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        let _ = writeln!(self.out, "{BOLD}{text}{BOLD:#}");
    }

    fn push_verdict(&mut self, findings: &DoctorReport) {
        let (_, style) = verdict_mark(findings.verdict, self.options.unicode);
        self.push_paragraph("", "  ", &findings.summary, style);
    }

    /// Number, name, finding and remedy.
    fn push_problem(&mut self, number: usize, check: &Check) {
        let remedy = check.remedy.as_ref().map_or(String::new(), |remedy| format!(". Try: {remedy}"));
        let text = format!("{}: {}{remedy}", check.name, check.finding.trim_end_matches('.'));
        self.push_paragraph(&format!("  {number}. "), "     ", &text, Style::new());
    }

    /// Mark, name and finding. The remedy stands below.
    fn push_finding(
        &mut self,
        verdict: CheckVerdict,
        name: &str,
        longest: usize,
        text: &str,
        remedy: Option<&str>,
    ) {
        let (mark, style) = verdict_mark(verdict, self.options.unicode);
        let indent = 2 + mark.chars().count() + 1;
        let first = format!("  {mark} {name:longest$}  ");
        let rest = " ".repeat(first.chars().count());
        let lines = self.wrap_text(text, &first, &rest);
        self.out += &lines.replacen(mark, &format!("{style}{mark}{style:#}"), 1);
        if let Some(remedy) = remedy {
            let indent = " ".repeat(indent + 2);
            let lines = self.wrap_text(remedy, &format!("{indent}try: "), &format!("{indent}     "));
            self.out += &lines;
        }
    }

    fn push_transport(&mut self, transport: &TransportStatus, longest: usize) {
        match &transport.reason {
            None => {
                let threads =
                    if transport.shares_threads { "" } else { "; each flow has a thread of its own" };
                let text = format!("{}{threads}", transport.summary);
                self.push_finding(CheckVerdict::Good, transport.scheme, longest, &text, None);
            }
            Some(reason) => {
                let text = match transport.available {
                    true => format!("{}: {reason}", transport.summary),
                    false => format!("not available: {reason}"),
                };
                self.push_finding(
                    CheckVerdict::Doubtful,
                    transport.scheme,
                    longest,
                    &text,
                    transport.remedy.as_deref(),
                );
            }
        }
    }

    fn push_port(&mut self, port: &PortInfo, longest: usize) {
        let hardware = &port.hardware;
        let found = [
            hardware.usb_adapter.clone(),
            hardware.driver.as_ref().map(|driver| format!("driver {driver}")),
            hardware.receive_trigger_bytes.map(|bytes| format!("interrupts after {bytes} bytes")),
            hardware.usb_latency_timer_ms.map(|milliseconds| format!("latency timer {milliseconds} ms")),
            port.group.as_ref().map(|group| format!("group {group}")),
            port.console.then(|| "the kernel's console".to_owned()),
            port.used_by.as_ref().map(|user| format!("in use ({user})")),
            (!port.may_open).then(|| "this user may not open it".to_owned()),
        ];
        let found = found.into_iter().flatten().collect::<Vec<_>>().join(", ");
        let verdict = if is_free(port) { CheckVerdict::Good } else { CheckVerdict::Doubtful };
        self.push_finding(verdict, &port.device, longest, &found, port.remedy.as_deref());
    }

    fn push_overhead(&mut self, overhead: &MeasurementOverhead) {
        let reading = format!("step {}", format_nanoseconds(overhead.clock_step_ns as f64));
        self.push_cost("reading the clock", &format_nanoseconds(overhead.clock_read_ns), "", &reading);
        let memory = match overhead.memory_round_trip_ns {
            0.0 => "not measured".to_owned(),
            nanoseconds => format_nanoseconds(nanoseconds),
        };
        self.push_cost("round trip in memory", &memory, "", "one thread");
        for one in &overhead.round_trips {
            match (&one.missing, one.p50_ns) {
                (None, Some(p50)) => {
                    let p99 = one.p99_ns.map_or(String::new(), |p99| format_nanoseconds(p99 as f64));
                    self.push_cost(
                        &round_trip_label(one),
                        &format_nanoseconds(p50 as f64),
                        &p99,
                        &placement_label(one),
                    );
                }
                (missing, _) => {
                    let why = missing.as_deref().unwrap_or("no reply arrived");
                    self.push_paragraph(
                        "  ",
                        "    ",
                        &format!("{}: not measured: {why}", round_trip_label(one)),
                        Style::new(),
                    );
                }
            }
        }
    }

    fn push_cost(&mut self, name: &str, p50: &str, p99: &str, how: &str) {
        let p99 = if p99.is_empty() { String::new() } else { format!("p99 {p99}") };
        let line = format!("  {name:25}  {p50:>9}  {p99:12}  {how}");
        let line = if self.options.unicode { line } else { to_ascii(&line) };
        self.out += line.trim_end();
        self.out.push('\n');
    }

    fn push_paragraph(&mut self, first: &str, rest: &str, text: &str, style: Style) {
        let lines = self.wrap_text(text, first, rest);
        let _ = writeln!(self.out, "{style}{}{style:#}", lines.trim_end());
    }

    /// The mark in `first` is not converted.
    fn wrap_text(&self, text: &str, first: &str, rest: &str) -> String {
        let lines = wrap(text, self.options.width, first, rest);
        if self.options.unicode { lines } else { to_ascii(&lines) }
    }
}

fn round_trip_label(one: &LoopbackRoundTrip) -> String {
    format!("TCP round trip, {}", round_trip_variant(one))
}

fn round_trip_variant(one: &LoopbackRoundTrip) -> &'static str {
    match (one.wait, one.client_cpu == one.server_cpu && one.client_cpu.is_some()) {
        ("busy_poll", _) => "busy-poll",
        (_, true) => "one CPU",
        (_, false) => "two CPUs",
    }
}

fn placement_label(one: &LoopbackRoundTrip) -> String {
    match (one.client_cpu, one.server_cpu) {
        (Some(client), Some(server)) if client == server => format!("CPU {client}"),
        (Some(client), Some(server)) => format!("CPUs {client} and {server}"),
        _ => "any CPU".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use linkgauge::host::check::Check;
    use linkgauge::host::serial::PortHardware;

    use super::*;

    fn sample_findings() -> DoctorReport {
        let check = |name, verdict, finding: &str, remedy: Option<&str>| Check {
            name,
            verdict,
            finding: finding.to_owned(),
            remedy: remedy.map(str::to_owned),
        };
        let trip = |wait, server_cpu, p50_ns: Option<u64>| LoopbackRoundTrip {
            wait,
            client_cpu: Some(0),
            server_cpu: Some(server_cpu),
            count: 30_119,
            p50_ns,
            p99_ns: p50_ns.map(|p50| p50 * 2),
            missing: p50_ns
                .is_none()
                .then(|| "pinning to CPU 0: Operation not permitted (os error 1)".to_owned()),
        };
        DoctorReport {
            schema: "linkgauge.doctor.v1",
            checks: vec![
                check("clock source", CheckVerdict::Good, "tsc", None),
                check(
                    "load",
                    CheckVerdict::Doubtful,
                    "other programs keep 50 % of the CPUs busy, which is a long line to have here",
                    Some("see which and stop them: top -o %CPU"),
                ),
                check("hypervisor", CheckVerdict::Bad, "QEMU, emulated CPU", Some("give it a real CPU")),
            ],
            transports: vec![
                TransportStatus {
                    scheme: "box",
                    summary: "a link inside this process",
                    available: true,
                    shares_threads: false,
                    reason: None,
                    remedy: None,
                },
                TransportStatus {
                    scheme: "can",
                    summary: "TCP over IPv4 or IPv6",
                    available: true,
                    shares_threads: true,
                    reason: None,
                    remedy: None,
                },
                TransportStatus {
                    scheme: "post",
                    summary: "TIPC",
                    available: false,
                    shares_threads: true,
                    reason: Some("Address family not supported by protocol".to_owned()),
                    remedy: Some("sudo modprobe tipc".to_owned()),
                },
            ],
            serial_ports: vec![
                PortInfo {
                    device: "/dev/ttyS0".to_owned(),
                    hardware: PortHardware {
                        driver: Some("serial8250".to_owned()),
                        receive_trigger_bytes: Some(8),
                        ..PortHardware::default()
                    },
                    console: true,
                    group: Some("dialout".to_owned()),
                    may_open: false,
                    remedy: Some("sudo usermod -aG dialout $USER".to_owned()),
                    used_by: Some("getty, process 90".to_owned()),
                },
                PortInfo {
                    device: "/dev/ttyUSB0".to_owned(),
                    hardware: PortHardware {
                        driver: Some("ftdi_sio".to_owned()),
                        usb_adapter: Some("FTDI FT232R USB UART (0403:6001)".to_owned()),
                        usb_latency_timer_ms: Some(16),
                        receive_trigger_bytes: None,
                    },
                    console: false,
                    group: Some("dialout".to_owned()),
                    may_open: true,
                    remedy: None,
                    used_by: None,
                },
            ],
            overhead: MeasurementOverhead {
                clock_read_ns: 28.0,
                clock_step_ns: 20,
                memory_round_trip_ns: 1162.0,
                round_trips: vec![
                    trip("block", 0, Some(12_570)),
                    trip("block", 1, Some(49_480)),
                    trip("busy_poll", 1, None),
                ],
            },
            verdict: CheckVerdict::Bad,
            summary: "Not suitable for absolute figures: 1 finding (hypervisor).".to_owned(),
        }
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn report_fits_80_columns() {
        insta::assert_snapshot!(plain(&render_all(&sample_findings(), &ReportOptions::default())), @r"
        Not suitable for absolute figures: 1 finding (hypervisor).

        This host
          ✓ clock source  tsc
          ! load          other programs keep 50 % of the CPUs busy, which is a long
                          line to have here
              try: see which and stop them: top -o %CPU
          ✗ hypervisor    QEMU, emulated CPU
              try: give it a real CPU

        Transports
          ✓ box   a link inside this process; each flow has a thread of its own
          ✓ can   TCP over IPv4 or IPv6
          ! post  not available: Address family not supported by protocol
              try: sudo modprobe tipc

        Serial ports
          ! /dev/ttyS0    driver serial8250, interrupts after 8 bytes, group dialout,
                          the kernel's console, in use (getty, process 90), this user
                          may not open it
              try: sudo usermod -aG dialout $USER
          ✓ /dev/ttyUSB0  FTDI FT232R USB UART (0403:6001), driver ftdi_sio, latency
                          timer 16 ms, group dialout

        Measurement overhead
          reading the clock              28 ns                step 20 ns
          round trip in memory        1.162 µs                one thread
          TCP round trip, one CPU     12.57 µs  p99 25.14 µs  CPU 0
          TCP round trip, two CPUs    49.48 µs  p99 98.96 µs  CPUs 0 and 1
          TCP round trip, busy-poll: not measured: pinning to CPU 0: Operation not
            permitted (os error 1)
        ");
    }

    #[test]
    fn summary_has_the_problems_only() {
        insta::assert_snapshot!(plain(&render_summary(&sample_findings(), &ReportOptions::default())), @r"
        Not suitable for absolute figures: 1 finding (hypervisor).
          1. load: other programs keep 50 % of the CPUs busy, which is a long line to
             have here. Try: see which and stop them: top -o %CPU
          2. hypervisor: QEMU, emulated CPU. Try: give it a real CPU
          overhead  clock 28 ns, round trip in memory 1.162 µs, TCP round trip 12.57 µs
                    (one CPU), 49.48 µs (two CPUs)
        1 check passed; 1 transport unavailable (post); 1 serial port in use or not
          accessible. Details: linkgauge doctor --all
        ");
    }

    #[test]
    fn report_in_ascii() {
        let options = ReportOptions { unicode: false, ..ReportOptions::default() };
        let text = plain(&render_all(&sample_findings(), &options));
        assert!(text.is_ascii(), "{text}");
        assert!(text.contains("  ?? load") && text.contains("  !! hypervisor") && text.contains("12.57 us"));
        assert!(text.lines().all(|line| line.len() <= options.width && line.trim_end() == line), "{text}");
        assert!(plain(&render_summary(&sample_findings(), &options)).is_ascii());
    }
}
