//! Makes text safe for a terminal: only printable text and this program's colours. Foreign text cannot move the cursor, change
//! the title, ring the bell, change the writing direction or imitate a line of this program.
//!
//! All output passes here.

use linkgauge::report::is_unprintable;

/// Keeps lines, tabs and own colours, and replaces other unprintable characters by U+FFFD.
pub fn sanitize_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = match own_colour_bytes(rest) {
            Some(length) => {
                out.push_str(&rest[..length]);
                length
            }
            None => {
                let shows = matches!(c, '\n' | '\t') || !is_unprintable(c);
                out.push(if shows { c } else { char::REPLACEMENT_CHARACTER });
                c.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    out
}

/// A message without colours and tabs. Lines after the first are indented, so that none imitates another message.
pub fn sanitize_message(text: &str) -> String {
    let (space, text) = text.split_at(text.len() - text.trim_start_matches('\n').len());
    let lines: Vec<String> = text.trim_end().split('\n').map(linkgauge::report::printable).collect();
    space.to_owned() + &lines.join("\n  ")
}

/// The length of the colour sequence at the start of `text`, if it is one of this program.
fn own_colour_bytes(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\u{1b}[")?;
    let (parameters, _) = parameters.split_once('m')?;
    let is_ours = |parameter: &str| matches!(parameter.parse(), Ok(0..=2 | 4 | 30..=37 | 39 | 90..=97u8));
    parameters.split(';').all(is_ours).then_some("\u{1b}[m".len() + parameters.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind of unprintable character.
    const HOSTILE: &str = "a\u{1b}]0;title\u{7}b\u{1b}[2J\u{9b}31mc\rd\u{8}e\u{202e}f\u{2028}g\u{2066}h\u{85}i\u{7f}\u{feff}j\u{e0041}k";

    #[test]
    fn unprintable_characters_are_replaced() {
        let shown = sanitize_text(HOSTILE);
        assert_eq!(shown, "a�]0;title�b�[2J�31mc�d�e�f�g�h�i��j�k");
        assert_eq!(sanitize_message(HOSTILE), shown);
        assert_eq!(sanitize_text("µ – 漢字 é\t|\n"), "µ – 漢字 é\t|\n");
    }

    #[test]
    fn only_own_colours_pass() {
        let ours = "\u{1b}[1m\u{1b}[31merror\u{1b}[0m \u{1b}[1;33mx\u{1b}[0m \u{1b}[2mdim\u{1b}[0m";
        assert_eq!(sanitize_text(ours), ours);
        assert_eq!(sanitize_text("\u{1b}[8mhidden\u{1b}[m\u{1b}[5;1mb\u{1b}[1"), "�[8mhidden�[m�[5;1mb�[1");
        assert_eq!(sanitize_message("\u{1b}[31mred"), "�[31mred");
    }

    #[test]
    fn continuation_lines_are_indented() {
        assert_eq!(sanitize_message("\nx: a\nerror: b\n\n"), "\nx: a\n  error: b");
    }
}
