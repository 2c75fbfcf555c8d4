//! The mechanisms model: what limits each system of a study, named by the parameters of its twin.
//!
//! The parameters stand in one place, the twins of the study (`papers/NAME/twins.toml`): `twin` runs them, and this file
//! says what they mean. A mechanism is seen in published figures, never proved.

use std::cmp::Reverse;

use serde::Serialize;
use serde_json::json;

use super::causes;
use super::{ExplainError, Finding, FindingBlock, Model, ModelInput};
use linkgauge_model::units::{
    BitRate, ByteTime, Share, Span, format_bit_rate, format_nanoseconds, format_plural, trim_zeros,
};
use linkgauge_studies::study::{
    DeviceServerTwin, MessageTwin, RadioTwin, Study, StudyError, Twin, TwinModel,
};
use linkgauge_studies::twin::{TwinReport, TwinSummary};

/// The mechanisms model in the list of models.
pub const MODEL: Model = Model {
    name: "mechanisms",
    summary: "what limits each published system of a study, by the parameters of its twin",
    explain: |input, _| explain(input),
};

/// A reason for the figures of a system.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Mechanism {
    /// The cause in the catalogue.
    cause: &'static str,
    /// The parameters in few words: `polls every 5 ms`.
    #[serde(skip)]
    brief: String,
    /// Description of the effect, with its parameters.
    text: String,
}

/// The mechanisms of one system.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct SystemMechanisms {
    name: String,
    is: String,
    mechanisms: Vec<Mechanism>,
    /// Number of published figures that determined the parameters, and number of those that they predict.
    fitted: usize,
    predicted: usize,
    /// Effects that the mechanisms do not explain.
    not_explained: Vec<String>,
}

fn explain(input: &ModelInput) -> Result<Finding, ExplainError> {
    let lacking = |why: &str| ExplainError::InsufficientData(why.to_owned());
    let study = match input {
        ModelInput::Study(study) => (*study).clone(),
        ModelInput::Run(run) => match &run.study {
            Some(known) => Study::by_name(&known.name)?,
            None => return Err(lacking("the run is not that of a study")),
        },
    };
    let systems = systems(&study)?;
    if systems.is_empty() {
        return Err(lacking("the study has no twins"));
    }
    let figures = json!({ "study": study.name, "systems": systems });
    let (summary, blocks) = (summary(&study, &systems), blocks(&study, &systems));
    Ok(Finding { model: MODEL.name, figures, summary, blocks })
}

fn systems(study: &Study) -> Result<Vec<SystemMechanisms>, StudyError> {
    let figures = study.twin_figures()?;
    let of_twin = |twin: &Twin| -> Result<SystemMechanisms, StudyError> {
        let own: Vec<_> = figures.iter().filter(|figure| figure.twin.name == twin.name).collect();
        let fitted = own.iter().filter(|figure| figure.is_fitted).count();
        let missed = own.iter().filter_map(|figure| {
            Some(format!("table {}, {}, {}: {}", figure.table(), figure.row(), figure.column(), figure.miss?))
        });
        let not_explained = missed.collect();
        Ok(SystemMechanisms {
            name: twin.name.clone(),
            is: twin.is.clone(),
            mechanisms: mechanisms(&twin.model()?),
            fitted,
            predicted: own.len() - fitted,
            not_explained,
        })
    };
    // Twins that only statements of the study are about show no limit of their own.
    let has_figures = |twin: &&Twin| figures.iter().any(|figure| figure.twin.name == twin.name);
    study.twins().iter().filter(has_figures).map(of_twin).collect()
}

fn of(cause: &'static str, brief: String, text: String) -> Mechanism {
    Mechanism { cause, brief, text }
}

fn span(time: Span) -> String {
    format_nanoseconds(time.0.as_secs_f64() * 1e9)
}

fn brief_span(time: Span) -> String {
    trim_zeros(&span(time))
}

fn rate(rate: BitRate) -> String {
    format_bit_rate(rate.0)
}

fn brief_rate(value: BitRate) -> String {
    trim_zeros(&rate(value))
}

fn percent(share: Share) -> String {
    format!("{} %", (1e4 * share.0).round() / 100.0)
}

/// The time of a byte, in ns: less than a microsecond with its digits.
fn byte_time(byte: ByteTime) -> String {
    if byte.0 < 1e3 { format!("{} ns", byte.0) } else { format_nanoseconds(byte.0) }
}

/// Text such as `22.56 µs for each byte: 354.6 kbit/s at most`.
fn byte_cost(whose: &str, byte: ByteTime, scope: &str) -> Mechanism {
    let limit = format_bit_rate(8e9 / byte.0);
    let text = format!("{whose} needs {} for each byte: {limit} {scope}", byte_time(byte));
    of("cpu_saturated", format!("{} per byte", trim_zeros(&byte_time(byte))), text)
}

/// Mechanisms that the parameters of a twin describe.
fn mechanisms(model: &TwinModel) -> Vec<Mechanism> {
    match model {
        TwinModel::Uart { trigger, idle_characters } => vec![of(
            "uart_fifo_timeout",
            format!("after {trigger} characters, or {idle_characters} character times of silence"),
            format!(
                "the UART hands over {trigger} characters at once, or what has arrived after {idle_characters} character times \
                 of silence"
            ),
        )],
        TwinModel::DeviceServer(server) => device_server(server),
        TwinModel::Adapter { silence, length, ceiling } => vec![
            of(
                "device_server_packing",
                format!("sends after {} of silence, or {length} bytes", brief_span(*silence)),
                format!(
                    "the adapter sends after {} of silence on its line, or {length} bytes",
                    span(*silence)
                ),
            ),
            of(
                "link_rate_reached",
                format!("radio {}", brief_rate(*ceiling)),
                format!("its radio carries {}", rate(*ceiling)),
            ),
        ],
        TwinModel::Logger { chunk, chunk_time, .. } => vec![
            of(
                "stop_and_wait",
                format!("{chunk} bytes per round trip"),
                format!("{chunk} bytes for each round trip, and then the next request"),
            ),
            of(
                "server_time",
                format!("{} per request", brief_span(*chunk_time)),
                format!("the logger needs {} for each request", span(*chunk_time)),
            ),
        ],
        TwinModel::Radio(radio) => radio_link(radio),
        TwinModel::Frames { base, frame, spike, spike_share } => {
            radio_frames([*base, *frame, *spike], *spike_share)
        }
        TwinModel::Messages(messages) => nodes(messages),
        TwinModel::Board { line, send_byte, receive_call } => board(*line, *send_byte, *receive_call),
    }
}

fn radio_frames([base, frame, spike]: [Span; 3], spike_share: Share) -> Vec<Mechanism> {
    let share = percent(spike_share);
    vec![
        shortest(base),
        of(
            "radio_slot",
            format!("frames of {}", brief_span(frame)),
            format!("frames of {}: each direction misses one with a probability of one half", span(frame)),
        ),
        of(
            "radio_slot",
            format!("{share} wait {} for another turn", brief_span(spike)),
            format!("{share} of the round trips wait for another turn, {} later", span(spike)),
        ),
    ]
}

/// The shortest round trip of a link.
fn shortest(base: Span) -> Mechanism {
    of(
        "path_delay",
        format!("{} at least", brief_span(base)),
        format!("{} for the shortest round trip", span(base)),
    )
}

fn board(line: Option<BitRate>, send_byte: Option<ByteTime>, receive_call: Option<Span>) -> Vec<Mechanism> {
    let sender = send_byte.map(|byte| byte_cost("the sender's processor", byte, "at most"));
    let receiver = receive_call.map(|call| {
        let text =
            format!("the receiver's processor needs {} for each call, so small blocks are slow", span(call));
        of("cpu_saturated", format!("{} per call received", brief_span(call)), text)
    });
    let line = line.map(|line| {
        let text = format!("the line carries {} of payload", rate(line));
        of("link_rate_reached", format!("line {}", brief_rate(line)), text)
    });
    [sender, receiver, line].into_iter().flatten().collect()
}

fn device_server(server: &DeviceServerTwin) -> Vec<Mechanism> {
    let processor = |brief: String, text: String| of("cpu_saturated", brief, text);
    let transfer = match (server.budget, server.port_time) {
        (Some(budget), Some(port)) => Some((
            format!("{} per transfer and {} per port", brief_span(budget), brief_span(port)),
            format!("{} for each transfer, and {} more for each open port", span(budget), span(port)),
        )),
        (Some(budget), None) => Some((
            format!("{} per transfer", brief_span(budget)),
            format!("{} for each transfer", span(budget)),
        )),
        (None, Some(port)) => {
            Some((format!("{} per port", brief_span(port)), format!("{} for each open port", span(port))))
        }
        (None, None) => None,
    };
    let transfer = transfer.map(|(brief, text)| {
        processor(brief, format!("its processor needs {text}: the ports wait for their turn"))
    });
    let load = server.line_load.map(|share| {
        let share = percent(share);
        processor(format!("{share} per line"), format!("each active line takes {share} of its processor"))
    });
    let drain = server.drain_pause.map(|pause| {
        let from = server.drain_from.map_or(String::new(), |from| format!(" at {} and above", rate(from)));
        let text =
            format!("the line rests for {} after each block of {} bytes{from}", span(pause), server.block);
        let brief = format!("rests {} after {} bytes", brief_span(pause), server.block);
        of("device_server_packing", brief, text)
    });
    let poll = of(
        "remote_clock",
        format!("every {}", brief_span(server.poll)),
        format!("it looks at its ports every {}: a round trip waits for that twice", span(server.poll)),
    );
    let byte = server.byte_time.map(|byte| byte_cost("its processor", byte, "for all ports and directions"));
    [Some(poll), transfer, byte, load, drain].into_iter().flatten().collect()
}

fn radio_link(radio: &RadioTwin) -> Vec<Mechanism> {
    let lost = percent(radio.lost);
    let all = format!("{lost} of the round trips lose a message");
    // Only a stream sends again what the radio loses.
    let lost = match radio.retransmission {
        Some(later) => of(
            "retransmission_timeout",
            format!("{lost} lost, repeated after {}", brief_span(later)),
            format!("{all}, which arrives {} later", span(later)),
        ),
        None => of("lost_datagrams", format!("{lost} lost for good"), format!("{all} for good")),
    };
    vec![
        shortest(radio.base),
        of(
            "radio_slot",
            format!("up to {}", brief_span(radio.contention)),
            format!("each direction waits up to {} for a slot", span(radio.contention)),
        ),
        of(
            "radio_busy",
            format!("{} wait {}", percent(radio.deferred), brief_span(radio.wait)),
            format!(
                "{} of the round trips wait for other stations, {} on average",
                percent(radio.deferred),
                span(radio.wait)
            ),
        ),
        lost,
    ]
}

fn nodes(messages: &MessageTwin) -> Vec<Mechanism> {
    let times = [
        (messages.message, "per message", "for each message, whatever its size"),
        (messages.frame, "per frame received", "of the receiver for each frame of a single message"),
        (messages.busy_message, "per message sent", "of the sender for each message of a stream"),
        (messages.busy_frame, "per frame sent", "of the sender for each frame of a stream"),
        (messages.busy, "between messages", "at least from one message of a stream to the next"),
    ];
    let times = times.into_iter().filter_map(|(time, brief, what)| {
        let time = time?;
        Some(of("message_cost", format!("{} {brief}", brief_span(time)), format!("{} {what}", span(time))))
    });
    let byte = messages.byte.or(messages.first_frame_byte);
    let byte = byte.map(|byte| {
        let time = byte_time(byte);
        of("per_byte_cost", format!("{} per byte", trim_zeros(&time)), format!("{time} for each byte"))
    });
    let receiver = messages.busy_byte.map(|byte| {
        let time = byte_time(byte);
        let brief = format!("{} per byte received", trim_zeros(&time));
        of(
            "per_byte_cost",
            brief,
            format!("{time} of the receiver for each byte of a stream, while it arrives"),
        )
    });
    let interrupts = messages.interrupt_wait.map(|wait| {
        let text = format!("each message waits {} for the interrupt of its receiver", span(wait));
        of("interrupt_coalescing", brief_span(wait), text)
    });
    let cache = messages.cache.map(|cache| {
        let text = format!("bytes beyond the cache of {cache:.0} bytes cost twice as much");
        of("per_byte_cost", format!("twice that beyond {cache:.0} bytes"), text)
    });
    let line = messages.bits_per_second.map(|line| {
        let hops = match messages.hops {
            hops if hops > 1 => format!("; the first frame crosses it {hops} times"),
            _ => String::new(),
        };
        let text = format!("the line carries {}{hops}", rate(line));
        of("link_rate_reached", format!("line {}", brief_rate(line)), text)
    });
    times.chain([byte, receiver, interrupts, cache, line].into_iter().flatten()).collect()
}

/// Parameters of a cause that a summary lists.
const MAX_SHOWN_PARAMETERS: usize = 5;

/// The systems that a cause limits, by its parameters: the most frequent parameters first.
struct LimitingCause {
    name: &'static str,
    systems: usize,
    by_parameters: Vec<(String, Vec<String>)>,
}

/// The causes, the most frequent first.
fn limiting_causes(systems: &[SystemMechanisms]) -> Vec<LimitingCause> {
    let mut limiting: Vec<(&'static str, LimitingCause)> = Vec::new();
    for system in systems {
        let mut last = None;
        for Mechanism { cause, brief, .. } in &system.mechanisms {
            let index = limiting.iter().position(|(id, _)| id == cause).unwrap_or_else(|| {
                let known = LimitingCause { name: cause_name(cause), systems: 0, by_parameters: Vec::new() };
                limiting.push((cause, known));
                limiting.len() - 1
            });
            let known = &mut limiting[index].1;
            if last.replace(*cause) != Some(*cause) {
                known.systems += 1;
            }
            match known.by_parameters.iter_mut().find(|(parameters, _)| parameters == brief) {
                Some((_, names)) => names.push(system.name.clone()),
                None => known.by_parameters.push((brief.clone(), vec![system.name.clone()])),
            }
        }
    }
    let mut causes: Vec<LimitingCause> = limiting.into_iter().map(|(_, known)| known).collect();
    causes.iter_mut().for_each(|cause| cause.by_parameters.sort_by_key(|(_, names)| Reverse(names.len())));
    causes.sort_by_key(|cause| Reverse(cause.systems));
    causes
}

fn cause_name(id: &'static str) -> &'static str {
    causes::all().find(|(_, cause)| cause.id == id).map_or(id, |(_, cause)| cause.name)
}

fn summary(study: &Study, systems: &[SystemMechanisms]) -> Vec<FindingBlock> {
    let causes = limiting_causes(systems);
    let limits = |cause: &LimitingCause| match systems {
        [_] => cause.name.to_owned(),
        _ => format!("{} ({} of {})", cause.name, cause.systems, systems.len()),
    };
    let shown: Vec<String> = causes.iter().take(2).map(limits).collect();
    let whose = match systems {
        [only] => only.name.clone(),
        many => format!("{} systems", many.len()),
    };
    let mostly = if causes.len() > shown.len() { "mostly " } else { "" };
    let heading = format!("{}: what limits {whose}: {mostly}{}", study.name, shown.join(", "));
    let of_cause = |cause: &LimitingCause| {
        let each =
            cause.by_parameters.iter().take(MAX_SHOWN_PARAMETERS).map(|(brief, names)| match systems {
                [_] => brief.clone(),
                _ => format!("{brief} ({})", names.join(", ")),
            });
        let more = match cause.by_parameters.len().saturating_sub(MAX_SHOWN_PARAMETERS) {
            0 => String::new(),
            more => format!("; {more} more"),
        };
        FindingBlock::Text(format!("{}: {}{more}.", cause.name, each.collect::<Vec<_>>().join("; ")))
    };
    let mut blocks = vec![FindingBlock::Heading(heading)];
    blocks.extend(causes.iter().map(of_cause));
    let sum = |of: fn(&SystemMechanisms) -> usize| systems.iter().map(of).sum::<usize>() as u64;
    let missed = match sum(|system| system.not_explained.len()) {
        0 => String::new(),
        missed => format!("; {} not explained", format_plural(missed, "figure")),
    };
    blocks.push(FindingBlock::Text(format!(
        "Seen in {}, not proved: they determine the parameters above, which predict {} others{missed}. Each system, and how \
         well: linkgauge explain {} --all",
        format_plural(sum(|system| system.fitted), "published figure"),
        sum(|system| system.predicted),
        study.name
    )));
    blocks
}

fn blocks(study: &Study, systems: &[SystemMechanisms]) -> Vec<FindingBlock> {
    let sum = |of: fn(&SystemMechanisms) -> usize| systems.iter().map(of).sum::<usize>() as u64;
    let whose = match systems {
        [only] => only.name.clone(),
        many => format!("each of {} systems", many.len()),
    };
    let heading = format!(
        "{}: what limits {whose}, seen in {} that predict {} others",
        study.name,
        format_plural(sum(|system| system.fitted), "published figure"),
        sum(|system| system.predicted)
    );
    let mut blocks = vec![FindingBlock::Heading(heading)];
    for system in systems {
        let known: Vec<String> = system
            .mechanisms
            .iter()
            .map(|mechanism| format!("{}: {}", cause_name(mechanism.cause), mechanism.text))
            .collect();
        let figures = match (system.fitted, system.predicted) {
            (0, predicted) => format!("This predicts {}", format_plural(predicted as u64, "figure")),
            (fitted, predicted) => format!(
                "{} determine this, and {predicted} others are predicted",
                format_plural(fitted as u64, "figure")
            ),
        };
        let text = format!("{}, {}: {}. {figures}.", system.name, system.is, known.join("; "));
        blocks.push(FindingBlock::Text(text));
        let missed = |why: &String| FindingBlock::Text(format!("{}, not explained: {why}.", system.name));
        blocks.extend(system.not_explained.iter().map(missed));
    }
    let next = "Seen, not proved: these are the parameters of the twins.";
    blocks.push(FindingBlock::Text(next.to_owned()));
    blocks
}

/// Finding about how well the mechanisms predict the figures that did not determine their parameters.
pub fn fit(report: &TwinReport) -> Finding {
    let mut rows = Vec::new();
    let mut names: Vec<&str> = report.rows.iter().map(|row| row.twin.as_str()).collect();
    names.dedup();
    for name in names {
        let own: Vec<_> = report.rows.iter().filter(|row| row.twin == name).cloned().collect();
        rows.push(fit_row(name, &TwinSummary::of(&own, &report.summary.trivial_name)));
    }
    rows.push(fit_row("all", &report.summary));
    let heading = format!("{}: how well the mechanisms predict the other figures", report.study);
    let header = ["system", "fitted", "informative", "median off", "trivial", "most off", "≤ 15 %"];
    let table = FindingBlock::Table { text_columns: 1, header: header.map(str::to_owned).to_vec(), rows };
    let each = format!(
        "median off, trivial: the twins and {} at the informative figures, which that misses by more than 5 %. Each figure: linkgauge reproduce {} --twin --all",
        report.summary.trivial_name, report.study
    );
    Finding {
        model: "mechanisms_fit",
        figures: json!(report),
        summary: Vec::new(),
        blocks: vec![FindingBlock::Heading(heading), table, FindingBlock::Text(each)],
    }
}

fn fit_row(name: &str, summary: &TwinSummary) -> Vec<String> {
    let percent = |percent: Option<f64>| match percent {
        Some(percent) if percent.is_finite() => format!("{percent:.1} %").replace('-', "−"),
        Some(_) => "published 0".to_owned(),
        None => "–".to_owned(),
    };
    let TwinSummary { fitted, checked, informative, trivial_informative, .. } = summary;
    vec![
        name.to_owned(),
        fitted.to_string(),
        format!("{} of {}", informative.figures, checked.figures),
        percent(informative.median_percent),
        percent(trivial_informative.median_percent),
        percent(checked.worst_percent),
        checked.within_15_percent.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::DeclaredFacts;
    use linkgauge_studies::study::STUDIES;

    #[test]
    fn each_system_of_each_study_has_a_cause_of_the_catalogue() {
        for files in STUDIES {
            let study = Study::by_name(files.name).unwrap();
            let finding = (MODEL.explain)(&ModelInput::Study(&study), &DeclaredFacts::default()).unwrap();
            let systems = systems(&study).unwrap();
            assert!(!systems.is_empty() && systems.len() <= study.twins().len());
            for system in &systems {
                assert!(!system.mechanisms.is_empty() && system.predicted > 0, "{system:?}");
                for mechanism in &system.mechanisms {
                    assert!(causes::all().any(|(_, cause)| cause.id == mechanism.cause), "{mechanism:?}");
                }
            }
            assert_eq!(finding.figures["systems"].as_array().unwrap().len(), systems.len());
        }
    }

    #[test]
    fn the_parameters_are_those_of_the_twins() {
        let texts = |study: &str, name: &str| {
            let all = systems(&Study::by_name(study).unwrap()).unwrap();
            let system = all.into_iter().find(|system| system.name == name).unwrap();
            system.mechanisms.into_iter().map(|known| (known.cause, known.text)).collect::<Vec<_>>()
        };
        let logger = texts("loggernet", "CR1000");
        assert_eq!(logger[0].0, "stop_and_wait");
        assert_eq!(logger[0].1, "673 bytes for each round trip, and then the next request");
        let server = texts("sena", "LS100");
        assert_eq!(
            server[0],
            (
                "remote_clock",
                "it looks at its ports every 19.61 ms: a round trip waits for that twice".to_owned()
            )
        );
        assert_eq!(
            server[1].1,
            "its processor needs 440.7 µs for each byte: 18.15 kbit/s for all ports and directions"
        );
        let radio = texts("wireless", "tcp");
        assert_eq!(radio[3].1, "1.75 % of the round trips lose a message, which arrives 300.0 ms later");
        // A datagram is not sent again, and a radio channel is no server.
        let causes =
            |name: &str| texts("wireless", name).into_iter().map(|(cause, _)| cause).collect::<Vec<_>>();
        assert_eq!(causes("udp"), ["path_delay", "radio_slot", "radio_busy", "lost_datagrams"]);
        assert_eq!(causes("tcp"), ["path_delay", "radio_slot", "radio_busy", "retransmission_timeout"]);
        assert_eq!(causes("rfcomm"), ["path_delay", "radio_slot", "radio_slot"]);
        let linx = Study::by_name("linx").unwrap();
        let coalesced = linx.twins().iter().find(|twin| twin.name == "tipc-coalesced").unwrap();
        let of_coalesced = mechanisms(&coalesced.model().unwrap());
        assert!(of_coalesced.iter().any(|mechanism| mechanism.cause == "interrupt_coalescing"));
        let node = texts("linx", "linx-oseck");
        assert!(
            node.iter()
                .any(|(_, text)| text == "the line carries 100.0 Mbit/s; the first frame crosses it 4 times"),
            "{node:?}"
        );
    }
}
