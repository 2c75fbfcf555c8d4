//! Reads our own run document.

use std::io::{BufRead, Read};

use super::{ImportError, ImportFormat, ImportOptions, ImportedFile};
use crate::run::Run;

/// No real document is longer.
const MAX_DOCUMENT_BYTES: u64 = 1 << 30;

pub(crate) const FORMAT: ImportFormat =
    ImportFormat { name: "run", summary: "run documents of linkgauge (--json, export)", read };

fn read(file: &mut dyn BufRead, _: &ImportOptions) -> Result<ImportedFile, ImportError> {
    let mut text = String::new();
    file.take(MAX_DOCUMENT_BYTES).read_to_string(&mut text)?;
    Ok(ImportedFile::Run(Box::new(Run::from_json(&text)?)))
}
