//! Text files that a user names: plans, lists, secrets. They are read within a limit.

use std::fs::{File, Metadata};
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// No file of settings is longer: a mesh of all hosts that one may have, with all pairs listed.
const MAX_TEXT_BYTES: u64 = 16 << 20;

/// The text of a file. `what` is what the file holds, with its article.
pub fn read_text(path: &Path, what: &str) -> Result<String> {
    read_text_and_facts(path, what).map(|(text, _)| text)
}

/// The same, with the facts of the file that was read.
pub fn read_text_and_facts(path: &Path, what: &str) -> Result<(String, Metadata)> {
    let name = path.display();
    let mut text = String::new();
    let mut read = || -> std::io::Result<Metadata> {
        let file = File::open(path)?;
        let facts = file.metadata()?;
        file.take(MAX_TEXT_BYTES + 1).read_to_string(&mut text)?;
        Ok(facts)
    };
    let facts = read().with_context(|| format!("{name}: {what} cannot be read"))?;
    if text.len() as u64 > MAX_TEXT_BYTES {
        bail!("{name}: {what} is larger than 16 MiB, which no such file is: name another");
    }
    Ok((text, facts))
}
