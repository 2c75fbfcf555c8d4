//! A server that allows less than was requested.

use serde_json::Value;

use crate::run::{CaseResult, SERVER_LIMIT_MESSAGES_PER_SECOND, SERVER_LIMIT_SECONDS, Warning, WarningCode};
use crate::units::{format_nanoseconds, format_number};

/// Warning about what the server granted instead of what was requested.
pub(super) fn server_limit(case: &CaseResult) -> Option<Warning> {
    let limit = |name| case.effective.get(name).and_then(Value::as_f64);
    let requested = case.requested.get("pacing").and_then(|pacing| pacing.get("per_second")?.as_f64());
    let rate = limit(SERVER_LIMIT_MESSAGES_PER_SECOND).zip(requested);
    let rate = rate.filter(|(limit, requested)| limit < requested).map(|(limit, requested)| {
        format!("{}/s on a connection instead of {}/s", format_number(limit), format_number(requested))
    });
    let time =
        limit(SERVER_LIMIT_SECONDS).map(|limit| format!("tests of {}", format_nanoseconds(limit * 1e9)));
    let allowed: Vec<String> = [rate, time].into_iter().flatten().collect();
    (!allowed.is_empty()).then(|| {
        Warning::new(
            WarningCode::ServerLimit,
            format!("the server allows {}, less than was requested", allowed.join(" and ")),
            "request less, or raise the limits of the server",
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::Direction;
    use crate::run::Figures;

    #[test]
    fn only_what_was_reduced_is_named() {
        let text = |requested: Value, effective: &[(&str, f64)]| {
            let mut case =
                CaseResult::of_figures("udp://a".to_owned(), "latency", Direction::Loop, Figures::default());
            case.requested.insert("pacing".to_owned(), requested);
            case.effective.extend(effective.iter().map(|(name, value)| ((*name).to_owned(), json!(value))));
            server_limit(&case).map(|warning| warning.text)
        };
        let rate = (SERVER_LIMIT_MESSAGES_PER_SECOND, 100.0);
        let fast = json!({"kind": "fixed", "per_second": 1000.0});
        assert_eq!(
            text(fast.clone(), &[rate, (SERVER_LIMIT_SECONDS, 2.0)]).unwrap(),
            "the server allows 100/s on a connection instead of 1 000/s and tests of 2.000 s, less than was requested"
        );
        assert_eq!(text(fast, &[]), None);
        assert_eq!(text(json!({"kind": "closed"}), &[rate]), None, "no rate was requested");
        assert_eq!(text(json!({"kind": "fixed", "per_second": 50.0}), &[rate]), None);
    }
}
