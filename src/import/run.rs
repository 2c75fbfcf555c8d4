//! Our own run document. Not for anything but reading it.

use std::io::{BufRead, Read};

use super::{About, FormatIn, Found, ImportError};
use crate::run::Run;

/// No honest document is longer.
const MOST_BYTES: u64 = 1 << 30;

pub const FORMAT: FormatIn =
    FormatIn { name: "run", summary: "run documents of linkgauge (--json, export)", read };

fn read(file: &mut dyn BufRead, _: &About) -> Result<Found, ImportError> {
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text)?;
    Ok(Found::Run(Box::new(Run::from_json(&text)?)))
}
