//! Messages to the actions in the forms that chats, pagers and Alertmanager of Prometheus receive.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::notice::{Notice, NoticeKind, alarm_message};
use linkgauge_model::units::format_period;

/// Alertmanager ends an alert by itself after this time without a further message.
const ALERT_TIME: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Names in a template, each for a text.
const PLACEHOLDERS: [&str; 9] =
    ["summary", "event", "link", "endpoint", "host", "state", "severity", "at", "key"];

/// Form of the messages of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageFormat {
    /// All events as one document (`schema/alarm.v1.json`).
    Linkgauge,
    /// An array of alerts, as `/api/v2/alerts` of Alertmanager receives it.
    Alertmanager,
    /// A text with a line for each event, as Slack and what is compatible with it receive it.
    Slack,
    /// The same as an `m.room.message` of Matrix.
    Matrix,
    /// An event of version 2 of PagerDuty for each event, with this routing key.
    PagerDuty(String),
    /// This text for each event, with texts in the places of `{summary}` and others.
    Template(String),
}

impl MessageFormat {
    /// The format with this name.
    ///
    /// # Errors
    ///
    /// The problem, and what to try.
    pub(crate) fn named(name: &str, routing_key: Option<String>) -> Result<MessageFormat, &'static str> {
        match (name, routing_key) {
            ("pagerduty", Some(key)) => Ok(MessageFormat::PagerDuty(key)),
            ("pagerduty", None) => Err("the format pagerduty needs the routing-key of its service"),
            (_, Some(_)) => Err("only the format pagerduty has a routing-key: remove it"),
            ("linkgauge", None) => Ok(MessageFormat::Linkgauge),
            ("alertmanager", None) => Ok(MessageFormat::Alertmanager),
            ("slack", None) => Ok(MessageFormat::Slack),
            ("matrix", None) => Ok(MessageFormat::Matrix),
            _ => Err("its format is unknown: use linkgauge, alertmanager, slack, matrix or pagerduty"),
        }
    }

    /// A template that is JSON with any texts in its places.
    ///
    /// # Errors
    ///
    /// The problem, and what to try.
    pub(crate) fn template(text: String) -> Result<MessageFormat, &'static str> {
        match serde_json::from_str::<Value>(&filled(&text, |_| String::new())) {
            Ok(_) => Ok(MessageFormat::Template(text)),
            Err(_) => Err("its template is not JSON: write it like template = '{\"text\": \"{summary}\"}'"),
        }
    }

    /// The messages about these events of a host.
    pub(crate) fn messages(&self, host: &str, events: &[Notice]) -> Vec<Vec<u8>> {
        let text = || events.iter().map(summary).collect::<Vec<String>>().join("\n");
        let documents: Vec<Value> = match self {
            MessageFormat::Linkgauge => return vec![alarm_message(host, events)],
            MessageFormat::Template(text) => {
                return events.iter().map(|event| fill(text, host, event).into_bytes()).collect();
            }
            MessageFormat::Slack => vec![json!({ "text": text() })],
            MessageFormat::Matrix => vec![json!({ "msgtype": "m.text", "body": text() })],
            MessageFormat::PagerDuty(key) => {
                events.iter().filter_map(|event| page(key, host, event)).collect()
            }
            MessageFormat::Alertmanager => {
                let alerts: Vec<Value> = events.iter().filter_map(|event| alert(host, event)).collect();
                if alerts.is_empty() { Vec::new() } else { vec![Value::Array(alerts)] }
            }
        };
        documents.iter().map(|document| document.to_string().into_bytes()).collect()
    }
}

/// Describes an event in one line, for people.
fn summary(event: &Notice) -> String {
    let link = &event.link;
    let reason = event.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    let lasted = event.duration_s.map_or_else(String::new, |seconds| {
        format!(" after {}", format_period(std::time::Duration::from_secs(seconds as u64)))
    });
    let rule = event.rule.as_deref().unwrap_or_default();
    match event.event {
        NoticeKind::Down => format!("{link} is down{reason}"),
        NoticeKind::Up => format!("{link} replies again{lasted}"),
        NoticeKind::Alarm => format!("{link}: alarm: {rule}{reason}"),
        NoticeKind::Resolved => format!("{link}: alarm ends{lasted}: {rule}"),
        NoticeKind::LevelShift => format!("{link}: the median has a new level"),
    }
}

/// Name of the state that an event begins or ends, the same for both.
fn key(event: &Notice) -> String {
    format!("linkgauge/{}/{}", event.link, event.rule.as_deref().unwrap_or("down"))
}

/// Whether the event begins a state (or repeats it) or ends it. `None`: it does neither.
fn is_begin(event: &Notice) -> Option<bool> {
    match event.event {
        NoticeKind::Down | NoticeKind::Alarm => Some(true),
        NoticeKind::Up | NoticeKind::Resolved => Some(false),
        NoticeKind::LevelShift => None,
    }
}

/// Severity of the state that an event is about, the same at its begin and at its end.
fn severity(event: &Notice) -> &'static str {
    if event.rule.is_some() { "warning" } else { "critical" }
}

fn alert(host: &str, event: &Notice) -> Option<Value> {
    let is_begin = is_begin(event)?;
    let name = if event.rule.is_some() { "LinkgaugeAlarm" } else { "LinkgaugeDown" };
    let lasted = SignedDuration::try_from_secs_f64(event.duration_s.unwrap_or(0.0)).unwrap_or_default();
    let begin: Timestamp = event.at.checked_sub(lasted).unwrap_or(event.at);
    let end = if is_begin { event.at.checked_add(ALERT_TIME).unwrap_or(Timestamp::MAX) } else { event.at };
    let mut alert = json!({
        "labels": {
            "alertname": name, "link": event.link, "endpoint": event.endpoint, "host": host, "severity": severity(event)
        },
        "annotations": { "summary": summary(event) },
        "startsAt": begin,
        "endsAt": end,
    });
    if let Some(rule) = &event.rule {
        alert["labels"]["rule"] = json!(rule);
    }
    Some(alert)
}

fn page(routing_key: &str, host: &str, event: &Notice) -> Option<Value> {
    let is_begin = is_begin(event)?;
    Some(json!({
        "routing_key": routing_key,
        "event_action": if is_begin { "trigger" } else { "resolve" },
        "dedup_key": format!("{host}/{}", key(event)),
        "payload": {
            "summary": summary(event), "source": host, "component": event.link, "severity": severity(event),
            "timestamp": event.at, "custom_details": event,
        },
    }))
}

fn fill(template: &str, host: &str, event: &Notice) -> String {
    filled(template, |name| {
        let word = |value: Value| value.as_str().unwrap_or_default().to_owned();
        match name {
            "summary" => summary(event),
            "event" => word(json!(event.event)),
            "link" => event.link.clone(),
            "endpoint" => event.endpoint.clone(),
            "host" => host.to_owned(),
            "state" => word(json!(event.state)),
            "severity" => word(json!(event.severity)),
            "at" => event.at.to_string(),
            _ => key(event),
        }
    })
}

/// A template with texts in its places, escaped for JSON. A text is not read for places of its own.
fn filled(template: &str, text_of: impl Fn(&str) -> String) -> String {
    let mut filled = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        let found =
            PLACEHOLDERS.iter().find_map(|name| Some((*name, after.strip_prefix(*name)?.strip_prefix('}')?)));
        rest = match found {
            Some((name, after)) => {
                let quoted = Value::String(text_of(name)).to_string();
                filled.push_str(&quoted[1..quoted.len() - 1]);
                after
            }
            None => {
                filled.push('{');
                after
            }
        };
    }
    filled + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::health::{LinkHealth, Severity};
    use crate::monitor::notice::MinuteFigures;
    use linkgauge_model::sample::Window;

    fn event(kind: NoticeKind, rule: Option<&str>) -> Notice {
        Notice {
            watch: 0,
            event: kind,
            at: "2026-11-28T10:00:00Z".parse().unwrap(),
            link: "gate \"1\"".to_owned(),
            endpoint: "tcp://192.0.2.1".to_owned(),
            state: LinkHealth::Down,
            severity: Severity::Critical,
            reason: Some("no route to host".to_owned()),
            duration_s: Some(120.0),
            changes: Some(1),
            rule: rule.map(str::to_owned),
            last_minute: MinuteFigures::of(&Window::default()),
            normal: None,
            slower_ns: 0.0,
            run: None,
            level: None,
            explanation: None,
        }
    }

    fn sent(format: &MessageFormat, events: &[Notice]) -> Vec<Value> {
        format.messages("office", events).iter().map(|text| serde_json::from_slice(text).unwrap()).collect()
    }

    #[test]
    fn an_alert_has_the_same_labels_at_its_end() {
        let events = [event(NoticeKind::Down, None), event(NoticeKind::Up, None)];
        let alerts = sent(&MessageFormat::Alertmanager, &events).remove(0);
        assert_eq!(alerts[0]["labels"], alerts[1]["labels"]);
        assert_eq!(alerts[0]["labels"]["alertname"], "LinkgaugeDown");
        assert_eq!(alerts[0]["startsAt"], "2026-11-28T09:58:00Z");
        assert_eq!(alerts[0]["endsAt"], "2026-12-05T10:00:00Z");
        assert_eq!(alerts[1]["endsAt"], "2026-11-28T10:00:00Z");
        assert!(sent(&MessageFormat::Alertmanager, &[event(NoticeKind::LevelShift, None)]).is_empty());
    }

    #[test]
    fn a_chat_gets_a_line_for_each_event() {
        let events = [event(NoticeKind::Down, None), event(NoticeKind::Alarm, Some("loss > 5 %"))];
        let text = "gate \"1\" is down: no route to host\ngate \"1\": alarm: loss > 5 %: no route to host";
        assert_eq!(sent(&MessageFormat::Slack, &events), [json!({ "text": text })]);
        assert_eq!(sent(&MessageFormat::Matrix, &events), [json!({ "msgtype": "m.text", "body": text })]);
    }

    #[test]
    fn a_pager_resolves_what_it_triggered() {
        let format = MessageFormat::named("pagerduty", Some("R0".to_owned())).unwrap();
        let pages =
            sent(&format, &[event(NoticeKind::Alarm, Some("r")), event(NoticeKind::Resolved, Some("r"))]);
        assert_eq!(pages[0]["dedup_key"], pages[1]["dedup_key"]);
        assert_eq!(
            (&pages[0]["event_action"], &pages[1]["event_action"]),
            (&json!("trigger"), &json!("resolve"))
        );
        assert_eq!(pages[0]["payload"]["severity"], "warning");
    }

    #[test]
    fn a_template_stays_json_whatever_a_name_holds() {
        let format =
            MessageFormat::template("{\"t\": \"{link} {event} {key}\", \"x\": {\"n\": 1}}".to_owned());
        let events = [Notice { link: "{host} \"\\\n".to_owned(), ..event(NoticeKind::Down, None) }];
        let filled = sent(&format.unwrap(), &events);
        assert_eq!(filled[0]["t"], "{host} \"\\\n down linkgauge/{host} \"\\\n/down");
        assert!(MessageFormat::template("{summary}".to_owned()).is_err());
        assert!(
            MessageFormat::named("teams", None).is_err() && MessageFormat::named("pagerduty", None).is_err()
        );
    }
}
