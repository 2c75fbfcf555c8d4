//! Reads our own run document.

use std::io::BufRead;

use super::{ImportError, ImportFormat, ImportOptions, ImportedFile, format_error};
use linkgauge_model::run::{Run, is_valid_id, quote_id};

pub(crate) const FORMAT: ImportFormat =
    ImportFormat { name: "run", summary: "run documents of linkgauge (--json, export)", flags: &[], read };

fn read(file: &mut dyn BufRead, _: &ImportOptions) -> Result<ImportedFile, ImportError> {
    let run = Run::read(file)?;
    if !is_valid_id(&run.id) {
        return Err(format_error(format!(
            "the id '{}' is not that of a run: it has letters, digits and - _ . only, and at most 200",
            quote_id(&run.id)
        )));
    }
    Ok(ImportedFile::Run(Box::new(run)))
}
