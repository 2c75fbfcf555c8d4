//! Text files that a user names: plans, lists, secrets. They are read within a limit.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// No file of settings is longer: a mesh of all hosts that one may have, with all pairs listed.
const MAX_TEXT_BYTES: u64 = 16 << 20;

/// The text of a file. `what` is what the file holds, with its article.
pub fn read_text(path: &Path, what: &str) -> Result<String> {
    let name = path.display();
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(MAX_TEXT_BYTES + 1).read_to_string(&mut text))
        .with_context(|| format!("{name}: {what} cannot be read"))?;
    if text.len() as u64 > MAX_TEXT_BYTES {
        bail!("{name}: {what} is larger than 16 MiB, which no such file is: name another");
    }
    Ok(text)
}
