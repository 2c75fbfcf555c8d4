//! Losses in words: of messages, of bytes, and losses that were not counted.

use super::format_share;
use linkgauge_model::run::CaseResult;
use linkgauge_model::units::{self, format_count};

/// Text such as `no loss`, `600 of 10 000 lost (6.00 %)`.
pub(crate) fn format_loss_count(lost: u64, sent: u64) -> String {
    match lost {
        0 => "no loss".to_owned(),
        lost => {
            let share = format_share(lost as f64 / sent.max(1) as f64);
            format!("{} of {} lost ({share})", format_count(lost), format_count(sent))
        }
    }
}

/// The losses were not counted.
pub(crate) const LOSS_UNKNOWN: &str = "loss unknown";

/// Lost, inserted and corrupt data of a case.
pub(crate) fn loss_text(case: &CaseResult) -> String {
    let figures = &case.figures;
    let errors = &figures.byte_errors;
    let mut text = match (figures.counts.sent, errors.lost_bytes) {
        // A stream is counted in bytes.
        (_, bytes) if bytes > 0 => format!("{} not returned", units::format_plural(bytes, "byte")),
        _ if figures.counts.losses_unknown => LOSS_UNKNOWN.to_owned(),
        (0, 0) if figures.delivery.delivered_bytes.is_none() => match figures.delivery.throughput_bps {
            Some(_) => LOSS_UNKNOWN.to_owned(),
            None => "nothing was sent".to_owned(),
        },
        (1.., _) if figures.loss_share().is_none() && figures.counts.lost == 0 => LOSS_UNKNOWN.to_owned(),
        (sent, _) => match (figures.counts.lost, case.is_loss_unconfirmed()) {
            (0, true) => LOSS_UNKNOWN.to_owned(),
            (lost, true) => format!("at least {}", format_loss_count(lost, sent)),
            (lost, false) => format_loss_count(lost, sent),
        },
    };
    if figures.counts.reordered > 0 {
        text += &format!(", {} reordered", format_count(figures.counts.reordered));
    }
    if errors.inserted_bytes > 0 {
        text += &format!(", {} inserted", units::format_plural(errors.inserted_bytes, "byte"));
    }
    if errors.corrupt_bytes > 0 {
        text += &format!(", {} corrupt", units::format_plural(errors.corrupt_bytes, "byte"));
    }
    text
}
