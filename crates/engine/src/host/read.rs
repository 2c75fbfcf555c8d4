//! Reads the small text files in which Linux reports its state.
//!
//! Does not interpret them. A file that is missing, forbidden, empty or malformed gives `None` or an empty
//! list: each of them is so on some machine.

use std::fs;
use std::path::Path;

/// Maximum length of a CPU, node or group list; Linux has at most 8192 CPUs (`CONFIG_NR_CPUS`).
const MAX_LIST_ENTRIES: usize = 8192;

/// A file's text without surrounding white space.
pub(crate) fn text(path: impl AsRef<Path>) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes).trim_matches(['\0', ' ', '\t', '\n']).to_owned();
    (!text.is_empty()).then_some(text)
}

/// A file that holds one integer.
pub(crate) fn number(path: impl AsRef<Path>) -> Option<i64> {
    text(path)?.parse().ok()
}

/// The names in a folder, sorted.
pub(crate) fn file_names(path: impl AsRef<Path>) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The last part of a symbolic link's target: sysfs names drivers in this way.
pub(crate) fn link_name(path: impl AsRef<Path>) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_str()?.to_owned())
}

/// The value of the first line `key : value` (`/proc/cpuinfo`, `/proc/self/status`, `/proc/meminfo`).
pub(crate) fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key && !value.trim().is_empty()).then(|| value.trim())
    })
}

/// Parses a list in the kernel's form: `0-3,5` is 0, 1, 2, 3, 5. Ignores parts that are not numbers.
pub(crate) fn parse_list(text: &str) -> Vec<u32> {
    let ranges = text.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    });
    ranges.flatten().take(MAX_LIST_ENTRIES).collect()
}

/// The inverse of [`parse_list`]: 0, 1, 2, 3, 5 is `0-3,5`.
pub(crate) fn format_list(numbers: &[u32]) -> String {
    let runs = numbers.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    let parts = runs.map(|run| match run {
        [only] => only.to_string(),
        _ => format!("{}-{}", run[0], run[run.len() - 1]),
    });
    parts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_go_both_ways() {
        for (text, numbers) in [("0-3,5", vec![0, 1, 2, 3, 5]), ("7", vec![7]), ("", vec![])] {
            assert_eq!(parse_list(text), numbers);
            assert_eq!(format_list(&numbers), text);
        }
        assert_eq!(parse_list("x,1-,2-1,4\n"), [4]);
        assert_eq!(parse_list("0-4294967295").len(), MAX_LIST_ENTRIES);
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "cpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\nempty:\n";
        assert_eq!(field(text, "model"), Some("2"));
        assert_eq!(field(text, "model name"), Some("AMD EPYC"));
        assert_eq!(field(text, "empty"), None);
        assert_eq!(field(text, "name"), None);
    }

    #[test]
    fn missing_files_give_none() {
        assert_eq!(text("/nowhere/at/all"), None);
        assert_eq!(number("/proc/self/status"), None);
        assert_eq!(link_name("/proc/self/status"), None);
        assert!(file_names("/nowhere/at/all").is_empty());
    }
}
