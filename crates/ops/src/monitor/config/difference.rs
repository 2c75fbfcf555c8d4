//! Describes the changes from one configuration to the next, for people.

use std::collections::BTreeMap;

use super::{Config, Watch};

/// Changes that are listed at most.
const MAX_LISTED: usize = 20;

impl Config {
    /// Changes from the configuration before, one change a text: links first.
    pub fn changes_since(&self, before: &Config) -> Vec<String> {
        let by_name = |config: &Config| -> BTreeMap<String, Watch> {
            config.watches.iter().map(|watch| (watch.name.clone(), watch.clone())).collect()
        };
        let (old, new) = (by_name(before), by_name(self));
        let mut changes: Vec<String> = Vec::new();
        changes.extend(
            new.iter()
                .filter(|(name, _)| !old.contains_key(*name))
                .map(|(name, watch)| format!("new link {name}: {} ({})", watch.describe(), watch.endpoint())),
        );
        changes.extend(
            old.keys().filter(|name| !new.contains_key(*name)).map(|name| format!("no link {name} any more")),
        );
        for (name, watch) in &new {
            let changed = old.get(name).filter(|before| *before != watch);
            changes.extend(changed.map(|before| format!("link {name}: {}", changed_keys(before, watch))));
        }
        let surplus = changes.len().saturating_sub(MAX_LISTED);
        if surplus > 0 {
            changes.truncate(MAX_LISTED);
            changes.push(format!("and {surplus} more links"));
        }
        let parts = [
            ("actions", self.actions != before.actions),
            ("repeat", self.repeat != before.repeat),
            ("silences", self.silences != before.silences),
            ("push", self.push != before.push),
            ("probes on request", self.probe != before.probe),
            ("store-size", self.max_store_bytes != before.max_store_bytes),
        ];
        changes.extend(
            parts.iter().filter(|(_, is_changed)| *is_changed).map(|(part, _)| format!("{part} changed")),
        );
        changes
    }
}

/// Differences between two watches of the same name.
fn changed_keys(before: &Watch, after: &Watch) -> String {
    let mut changes = Vec::new();
    let mut compare = |what: &str, old: String, new: String| {
        if old != new {
            changes.push(format!("{what} {old} becomes {new}"));
        }
    };
    compare("URL", before.endpoint().to_string(), after.endpoint().to_string());
    compare("schedule", before.describe(), after.describe());
    let rules = |watch: &Watch| {
        let rules: Vec<&str> = watch.rules.iter().map(|rule| rule.text.as_str()).collect();
        format!("'{}'", rules.join("', '"))
    };
    compare("alert", rules(before), rules(after));
    if changes.is_empty() {
        return "other settings change".to_owned();
    }
    changes.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_listed_by_link() {
        let config = |text: &str| Config::from_toml(text).unwrap();
        let before = config(
            "[[watch]]\nname = \"a\"\nurl = \"tcp://a\"\n[[watch]]\nname = \"b\"\nurl = \"tcp://b\"\n[[watch]]\nname = \"c\"\nurl = \"tcp://c\"",
        );
        let after = config(
            "repeat = \"1h\"\n[[watch]]\nname = \"a\"\nurl = \"tcp://a2\"\nrate = \"5/s\"\n[[watch]]\nname = \"c\"\nurl = \"tcp://c\"\ntimeout = \"2s\"\n\
             [[watch]]\nname = \"d\"\nurl = \"tcp://d\"",
        );
        assert_eq!(
            after.changes_since(&before),
            [
                "new link d: 10 probes per second (tcp://d)",
                "no link b any more",
                "link a: URL tcp://a becomes tcp://a2, schedule 10 probes per second becomes 5 probes per second",
                "link c: other settings change",
                "repeat changed",
            ]
        );
        assert_eq!(after.changes_since(&after), [] as [&str; 0]);
        let many: String = (0..100).map(|n| format!("[[watch]]\nurl = \"tcp://host{n}\"\n")).collect();
        let changes = config(&many).changes_since(&before);
        assert_eq!((changes.len(), changes[20].as_str()), (21, "and 83 more links"));
    }
}
