//! Table cells that are safe to open in a spreadsheet. Writers of tables do the quoting.

use std::borrow::Cow;

/// A text that no spreadsheet interprets as a formula: a formula gets a leading apostrophe, which marks text.
/// Numbers are unchanged.
pub fn escape_formula(text: &str) -> Cow<'_, str> {
    let begins_formula = text
        .starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}']);
    match begins_formula && text.parse::<f64>().is_err() {
        true => format!("'{text}").into(),
        false => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_a_formula_and_numbers_stay_numbers() {
        for formula in ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "-"]
        {
            assert_eq!(escape_formula(formula), format!("'{formula}"));
        }
        for text in ["-3.5", "+1", "-inf", "", "tcp://a:1", "a=1", "5", "'=1"] {
            assert_eq!(escape_formula(text), text);
        }
    }
}
