//! Warnings and failures of a run, with kinds that a program can match on.

use serde::{Deserialize, Serialize};

/// Declares the codes once: the variants, their names in documents, and the list of all.
macro_rules! warning_codes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// The kind of a warning. In documents it is a short name.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(from = "String", into = "String")]
        pub enum WarningCode {
            $($(#[$doc])* $variant,)*
            /// A code of another version.
            Other(Box<str>),
        }

        impl WarningCode {
            /// All codes of this version.
            pub const ALL: &[WarningCode] = &[$(WarningCode::$variant),*];

            /// The name in documents.
            pub fn name(&self) -> &str {
                match self {
                    $(WarningCode::$variant => $name,)*
                    WarningCode::Other(name) => name,
                }
            }
        }

        impl From<&str> for WarningCode {
            fn from(name: &str) -> WarningCode {
                match name {
                    $($name => WarningCode::$variant,)*
                    other => WarningCode::Other(other.into()),
                }
            }
        }
    };
}

warning_codes! {
    /// The median is close to the measurement overhead.
    NearOverhead = "near_overhead",
    /// The first round trips were slower than the rest.
    SlowStart = "slow_start",
    /// The latency changed during the run.
    Drift = "drift",
    /// The repetitions fall into separate groups.
    Groups = "groups",
    /// The interval is wider than requested.
    TooWide = "too_wide",
    /// Other programs used the CPUs of this host.
    HostBusy = "host_busy",
    /// The threads of one end limited the rate.
    CpuSaturated = "cpu_saturated",
    /// The default rate took effect, because no rate was requested.
    DefaultRate = "default_rate",
    /// The interface delays interrupts.
    InterruptsCoalesced = "interrupts_coalesced",
    /// The sender was not the limit.
    SenderNotBusy = "sender_not_busy",
    /// Both ends busy-poll on one CPU.
    BusyPollOnOneCpu = "busy_poll_on_one_cpu",
    /// Content arrived changed.
    Corrupt = "corrupt",
    /// Messages arrived more than once.
    Duplicate = "duplicate",
    /// Replies arrived before their request was sent.
    Early = "early",
    /// The remote's clock was set during the run.
    RemoteClockSet = "remote_clock_set",
    /// The clock of the remote is too coarse or too fast for one-way delays.
    RemoteClockUnsuitable = "remote_clock_unsuitable",
    /// The statements of the hosts about their clocks contradict the round trips.
    ClocksDisagree = "clocks_disagree",
    /// A loop returned fewer or other bytes than were sent.
    LostBytes = "lost_bytes",
    /// The figure is better than the line allows.
    BeyondLine = "beyond_line",
    /// The serial port counted errors.
    LineErrors = "line_errors",
    /// The receiver's socket dropped packets.
    ReceiverSocketDrops = "receiver_socket_drops",
    /// The network changed the traffic class of messages.
    MarksChanged = "marks_changed",
    /// The path carries smaller packets than the network of this host, and messages exceed them.
    Divided = "divided",
    /// The kernel stamped too few messages.
    Unstamped = "unstamped",
    /// The connections of the load moved nothing for a while.
    LoadStalled = "load_stalled",
    /// Messages left late.
    MissedSends = "missed_sends",
    /// The server allowed less than was requested.
    ServerLimit = "server_limit",
    /// The serial port uses another character format than requested.
    LineNotGranted = "line_not_granted",
    /// A USB serial adapter delays received bytes.
    UsbLatencyTimer = "usb_latency_timer",
    /// The wireless interface sleeps between messages.
    WifiPowerSave = "wifi_power_save",
    /// The wireless interface uses a crowded band.
    WifiBand24Ghz = "wifi_band_2_4_ghz",
    /// The radio signal is weak.
    WeakSignal = "weak_signal",
    /// The imported latencies are sorted by value.
    Sorted = "sorted",
    /// The server sent no receive report.
    Unconfirmed = "unconfirmed",
    /// The server's report contradicts what the client measured.
    ImplausibleReport = "implausible_report",
    /// Figures of the case contradict each other.
    Contradiction = "contradiction",
    /// A percentile needs more samples.
    FewSamples = "few_samples",
    /// Records are missing, repeated or out of order.
    RecordNumbers = "record_numbers",
    /// The server accepted fewer concurrent requests.
    WindowReduced = "window_reduced",
    /// Requests of a download were repeated.
    RequestsRepeated = "asked_again",
    /// The link of a download was opened again.
    Reconnected = "reconnected",
    /// Replies of the device were exceptions.
    Exceptions = "exceptions",
    /// The remote is the lab's logger.
    Emulated = "emulated",
    /// The case was not measured as planned.
    Incomplete = "incomplete",
    /// The file of raw samples lacks samples.
    RawIncomplete = "raw_incomplete",
    /// All links end in this machine.
    InsideThisMachine = "inside_this_machine",
    /// The figure is unusual for this case on this host.
    Unusual = "unusual",
    /// A transport was left out.
    Unavailable = "unavailable",
    /// The clock costs a system call.
    SlowClock = "slow_clock",
    /// The CPU is emulated in software.
    EmulatedCpu = "emulated_cpu",
    /// The compared runs used different methods.
    DifferentMethods = "different_methods",
    /// The compared runs are from different machines.
    DifferentMachines = "different_machines",
    /// Two runs took different paths.
    PathChanged = "path_changed",
    /// Another program measured the run.
    Imported = "imported",
    /// The real value of some imported times is not known, only an upper limit.
    UpperBound = "upper_bound",
    /// The imported file does not contain the losses.
    LossesUnknown = "losses_unknown",
    /// Lines of the imported file were not read.
    SkippedText = "skipped_text",
    /// The measurement was stopped before its end.
    Interrupted = "interrupted",
}

impl From<String> for WarningCode {
    fn from(name: String) -> WarningCode {
        name.as_str().into()
    }
}

impl From<WarningCode> for String {
    fn from(code: WarningCode) -> String {
        code.name().to_owned()
    }
}

impl std::fmt::Display for WarningCode {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// A reason to doubt a figure, and its remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// The kind.
    pub code: WarningCode,
    /// Description of the observation.
    pub text: String,
    /// Advice on what to do about it.
    pub remedy: String,
}

impl Warning {
    /// A warning with this code, text and remedy.
    pub fn new(code: WarningCode, text: impl Into<String>, remedy: impl Into<String>) -> Warning {
        Warning { code, text: text.into(), remedy: remedy.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_as_they_are_written() {
        for code in WarningCode::ALL {
            let json = serde_json::to_string(code).unwrap();
            assert_eq!(json, format!("\"{}\"", code.name()));
            assert_eq!(serde_json::from_str::<WarningCode>(&json).unwrap(), *code);
        }
        let newer: WarningCode = serde_json::from_str("\"of_another_version\"").unwrap();
        assert_eq!(newer, WarningCode::Other("of_another_version".into()));
        assert_eq!(newer.name(), "of_another_version");
    }
}
