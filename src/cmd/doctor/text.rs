//! The findings for a terminal of 80 columns.

use std::fmt::Write;

use anstyle::{AnsiColor, Style};
use linkgauge::host::check::CheckVerdict;
use linkgauge::host::serial::PortInfo;
use linkgauge::report::{to_ascii, wrap};
use linkgauge::units::format_nanoseconds;

use super::overhead::{LoopbackRoundTrip, MeasurementOverhead};
use super::{DoctorReport, TransportStatus};

const LINE_COLUMNS: usize = 80;
const BOLD: Style = Style::new().bold();

/// With styles; whoever prints it strips them where they are not wanted.
pub fn render(findings: &DoctorReport, unicode: bool) -> String {
    let mut page = TextRenderer { unicode, out: String::new() };
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
    page.push_heading("What linkgauge itself costs here");
    page.push_overhead(&findings.floor);
    page.out.push('\n');
    let (_, style) = verdict_mark(findings.verdict, unicode);
    page.push_paragraph("Verdict: ", "  ", &findings.summary, style);
    page.out
}

struct TextRenderer {
    unicode: bool,
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

    /// Mark, name and what was found; below it what to do.
    fn push_finding(
        &mut self,
        verdict: CheckVerdict,
        name: &str,
        longest: usize,
        text: &str,
        remedy: Option<&str>,
    ) {
        let (mark, style) = verdict_mark(verdict, self.unicode);
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
            None => self.push_finding(CheckVerdict::Good, transport.scheme, longest, transport.summary, None),
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
        let is_free = port.may_open && port.used_by.is_none() && !port.console;
        let verdict = if is_free { CheckVerdict::Good } else { CheckVerdict::Doubtful };
        self.push_finding(verdict, &port.device, longest, &found, port.remedy.as_deref());
    }

    fn push_overhead(&mut self, floor: &MeasurementOverhead) {
        let reading = format!("step {}", format_nanoseconds(floor.clock_step_ns as f64));
        self.push_cost("reading the clock", &format_nanoseconds(floor.clock_read_ns), "", &reading);
        let memory = match floor.memory_exchange_ns {
            0.0 => "not measured".to_owned(),
            nanoseconds => format_nanoseconds(nanoseconds),
        };
        self.push_cost("an exchange in memory", &memory, "", "both ends in one thread");
        for one in &floor.round_trips {
            match (&one.missing, one.p50_ns) {
                (None, Some(p50)) => {
                    let p99 = one.p99_ns.map_or(String::new(), |p99| format_nanoseconds(p99 as f64));
                    self.push_cost(
                        round_trip_label(one),
                        &format_nanoseconds(p50 as f64),
                        &p99,
                        &placement_label(one),
                    );
                }
                (missing, _) => {
                    let why = missing.as_deref().unwrap_or("no exchange was answered");
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
        let line = format!("  {name:24}  {p50:>9}  {p99:12}  {how}");
        let line = if self.unicode { line } else { to_ascii(&line) };
        self.out += line.trim_end();
        self.out.push('\n');
    }

    fn push_paragraph(&mut self, first: &str, rest: &str, text: &str, style: Style) {
        let lines = self.wrap_text(text, first, rest);
        let _ = writeln!(self.out, "{style}{}{style:#}", lines.trim_end());
    }

    /// The mark in `first` stays as it is.
    fn wrap_text(&self, text: &str, first: &str, rest: &str) -> String {
        let lines = wrap(text, LINE_COLUMNS, first, rest);
        if self.unicode { lines } else { to_ascii(&lines) }
    }
}

fn round_trip_label(one: &LoopbackRoundTrip) -> &'static str {
    match (one.wait, one.near_cpu == one.far_cpu && one.near_cpu.is_some()) {
        ("spin", _) => "TCP round trip, spinning",
        (_, true) => "TCP round trip, one CPU",
        (_, false) => "TCP round trip, two CPUs",
    }
}

fn placement_label(one: &LoopbackRoundTrip) -> String {
    match (one.near_cpu, one.far_cpu) {
        (Some(near), Some(far)) if near == far => format!("CPU {near}"),
        (Some(near), Some(far)) => format!("CPUs {near} and {far}"),
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
        let trip = |wait, far_cpu, p50_ns: Option<u64>| LoopbackRoundTrip {
            wait,
            near_cpu: Some(0),
            far_cpu: Some(far_cpu),
            exchanges: 30_119,
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
                    scheme: "can",
                    summary: "TCP over IPv4 or IPv6",
                    available: true,
                    reason: None,
                    remedy: None,
                },
                TransportStatus {
                    scheme: "post",
                    summary: "TIPC",
                    available: false,
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
            floor: MeasurementOverhead {
                clock_read_ns: 28.0,
                clock_step_ns: 20,
                memory_exchange_ns: 1162.0,
                round_trips: vec![
                    trip("block", 0, Some(12_570)),
                    trip("block", 1, Some(49_480)),
                    trip("spin", 1, None),
                ],
            },
            verdict: CheckVerdict::Bad,
            summary:
                "not fit to tell about links (hypervisor): compare figures only with others of this machine"
                    .to_owned(),
        }
    }

    fn render_without_styles(unicode: bool) -> String {
        anstream::adapter::strip_str(&render(&sample_findings(), unicode)).to_string()
    }

    #[test]
    fn report_fits_80_columns() {
        insta::assert_snapshot!(render_without_styles(true), @r"
        This host
          ✓ clock source  tsc
          ! load          other programs keep 50 % of the CPUs busy, which is a long
                          line to have here
              try: see which and stop them: top -o %CPU
          ✗ hypervisor    QEMU, emulated CPU
              try: give it a real CPU

        Transports
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

        What linkgauge itself costs here
          reading the clock             28 ns                step 20 ns
          an exchange in memory      1.162 µs                both ends in one thread
          TCP round trip, one CPU    12.57 µs  p99 25.14 µs  CPU 0
          TCP round trip, two CPUs   49.48 µs  p99 98.96 µs  CPUs 0 and 1
          TCP round trip, spinning: not measured: pinning to CPU 0: Operation not
            permitted (os error 1)

        Verdict: not fit to tell about links (hypervisor): compare figures only with
          others of this machine
        ");
    }

    #[test]
    fn report_in_ascii() {
        let text = render_without_styles(false);
        assert!(text.is_ascii(), "{text}");
        assert!(text.contains("  ?? load") && text.contains("  !! hypervisor") && text.contains("12.57 us"));
        assert!(text.lines().all(|line| line.len() <= LINE_COLUMNS && line.trim_end() == line), "{text}");
    }
}
