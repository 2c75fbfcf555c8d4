//! `--like STUDY/NAME`: a part of the lab as a twin of a published system.

use std::fmt::Write as _;

use anyhow::{Result, anyhow, bail};
use linkgauge::study::{STUDIES, Study, Twin, TwinModel};

use crate::cmd::output::print_text;
use crate::cmd::status::Status;

/// A twin and the part of the lab that it is.
#[derive(Debug, Clone)]
pub struct LikeTwin {
    /// As given: `sena/STS1600`.
    pub name: String,
    pub model: TwinModel,
}

impl std::str::FromStr for LikeTwin {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<LikeTwin> {
        find(text).map_err(|error| anyhow!("{error}. 'linkgauge lab --like list' prints the twins"))
    }
}

fn find(text: &str) -> Result<LikeTwin> {
    let (study, name) = text.split_once('/').ok_or_else(|| anyhow!("write STUDY/NAME, like sena/STS1600"))?;
    let study = Study::by_name(study)?;
    let same_name = |twin: &&Twin| twin.name.eq_ignore_ascii_case(name);
    let Some(twin) = study.twins().iter().find(same_name) else {
        let known: Vec<&str> = study.twins().iter().map(|twin| twin.name.as_str()).collect();
        bail!("{} has no twin '{name}' (known: {})", study.name, known.join(", "));
    };
    Ok(LikeTwin { name: format!("{}/{}", study.name, twin.name), model: twin.model()? })
}

impl LikeTwin {
    /// The error of a part of the lab that this twin is not.
    pub fn mismatch(&self, wanted: &str) -> anyhow::Error {
        let command =
            self.model.lab_command().map_or_else(String::new, |command| format!(": use lab {command}"));
        anyhow!("{} is not a {wanted}{command}", self.name)
    }
}

/// Prints the twins of all studies.
pub fn print_twins() -> Result<Status> {
    let mut text = String::new();
    for files in STUDIES {
        let study = Study::by_name(files.name)?;
        let width =
            study.twins().iter().map(|twin| twin.name.len()).max().unwrap_or(0) + study.name.len() + 1;
        for twin in study.twins() {
            let name = format!("{}/{}", study.name, twin.name);
            let Some(command) = twin.model()?.lab_command() else { continue };
            let _ = writeln!(text, "{name:<width$}  {command:<13}  {}", twin.is);
        }
    }
    print_text(|stdout| write!(stdout, "{text}"))?;
    Ok(Status::Complete)
}
