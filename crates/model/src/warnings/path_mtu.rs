//! Datagrams that the path does not carry whole.

use serde_json::Value;

use crate::run::{CaseResult, MTU_REPORTER_FACT, PATH_MTU_FACT, Warning, WarningCode};

/// The headers of a datagram or a ping, over IPv4 and IPv6.
const HEADER_BYTES: [u64; 2] = [20 + 8, 40 + 8];

/// Messages that exceed a path MTU below that of the own interface.
pub(super) fn divided(case: &CaseResult) -> Option<Warning> {
    let is_message = case.effective.get("framing").is_some_and(|framing| framing == "message");
    let path = case.effective.get(PATH_MTU_FACT).and_then(Value::as_u64).filter(|_| is_message)?;
    let own = case.effective.get("interface")?.get("mtu_bytes")?.as_u64()?;
    // Addresses of IPv6 have more than one colon, also with a port.
    let remote = case.effective.get("remote")?.as_str()?;
    let headers = HEADER_BYTES[usize::from(remote.matches(':').count() > 1)];
    let message = u64::from(case.message_bytes);
    (path < own && message + headers > path).then(|| {
        let reporter = case.effective.get(MTU_REPORTER_FACT).and_then(Value::as_str);
        let reporter = reporter.map_or(String::new(), |router| format!(", reported by {router}"));
        Warning::new(
            WarningCode::Divided,
            format!(
                "messages of {message} B exceed the packets of the path ({path} B{reporter}), so this host divides them; those \
                 that left before it knew are lost"
            ),
            format!("-s {} fits one packet", path.saturating_sub(headers)),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_message_above_the_path_mtu_is_named_with_the_size_that_fits() {
        let text = include_str!("../../../../tests/data/run-v1-latency.json");
        let mut case = crate::run::Run::from_json(text).unwrap().cases.remove(0);
        case.message_bytes = 1400;
        let mut text_of = |path: u64, remote: &str| {
            let facts = json!({
                "framing": "message", "remote": remote, PATH_MTU_FACT: path, MTU_REPORTER_FACT: "10.0.0.1",
                "interface": {"mtu_bytes": 1500},
            });
            case.effective = facts.as_object().unwrap().clone();
            divided(&case).map(|warning| format!("{}: {}", warning.text, warning.remedy))
        };
        assert_eq!(text_of(1428, "10.0.1.2:7100"), None);
        assert_eq!(text_of(1500, "10.0.1.2:7100"), None);
        assert!(text_of(1447, "[fe80::1]:7100").is_some());
        let expected = "messages of 1400 B exceed the packets of the path (1300 B, reported by 10.0.0.1), so this host divides them; \
                        those that left before it knew are lost: -s 1272 fits one packet";
        assert_eq!(text_of(1300, "10.0.1.2").unwrap(), expected);
    }
}
