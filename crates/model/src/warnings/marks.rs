//! Changes of the traffic class on the path.

use crate::run::{CaseResult, PacketMarks, Warning, WarningCode};
use crate::units::format_plural;

/// The network changed the DSCP or cleared ECN.
pub(crate) fn marks_changed(case: &CaseResult) -> Option<Warning> {
    let PacketMarks {
        forward_ecn_changed,
        reverse_ecn_changed,
        forward_dscp_changed,
        reverse_dscp_changed,
        ..
    } = case.figures.marks;
    let changes: Vec<String> = [
        ("DSCP", "to", forward_dscp_changed),
        ("DSCP", "from", reverse_dscp_changed),
        ("ECN field", "to", forward_ecn_changed),
        ("ECN field", "from", reverse_ecn_changed),
    ]
    .into_iter()
    .filter_map(|(field, direction, count)| {
        let count = count.filter(|count| *count > 0)?;
        Some(format!("the {field} of {} {direction} the server", format_plural(count, "message")))
    })
    .collect();
    (!changes.is_empty()).then(|| {
        Warning::new(
            WarningCode::MarksChanged,
            format!("the path changed {}", changes.join(", ")),
            "a router or relay on the path resets the field, so queues behind it do not see the requested class: check its settings",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Run;

    #[test]
    fn each_changed_field_is_named_with_its_direction() {
        let text = include_str!("../../../../tests/data/run-v1-throughput.json");
        let mut case = Run::from_json(text).unwrap().cases.remove(0);
        case.figures.marks =
            PacketMarks { forward_ce: Some(9), forward_dscp_changed: Some(0), ..PacketMarks::default() };
        assert_eq!(marks_changed(&case), None);
        case.figures.marks.forward_dscp_changed = Some(900);
        case.figures.marks.reverse_ecn_changed = Some(1);
        assert_eq!(
            marks_changed(&case).unwrap().text,
            "the path changed the DSCP of 900 messages to the server, the ECN field of 1 message from the server"
        );
    }
}
