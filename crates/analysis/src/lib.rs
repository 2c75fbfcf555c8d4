//! Explains the meaning of a run: reports, explanations, and runs from the results of other programs.
//!
//! A [`report`] turns a run into text, JSON, CSV or pages. An [`explain`] model computes causes from a run or a study, or measures until
//! a cause is proved. An [`import`] format turns the results of another program into a run.
//!
//! # Explaining a link
//!
//! `explain::live` measures with `schedule`, as a command would: each block is a plan with one case and a fresh connection. The screen
//! sends one request at a time with a random pause (`Pacing::ThinkTime`). `signatures` are pure functions of its samples. `prove` runs
//! the baseline and all suspects in one random sequence. A knob is another value of the plan or the URL, so the catalogue
//! (`explain/causes/`) needs no code of its own. `live::rate` does the same for the rate of a transfer; `rate/verdicts.rs` decides by
//! the effects of the settings and the rules of `counters::rates`, all pure functions. `mechanisms` reads the parameters of a study's
//! twins, so it and `reproduce --twin` cannot disagree. Whole explanations run on the virtual clock (`tests/it/explain_live.rs`).

pub mod explain;
pub mod import;
pub mod lists;
pub mod report;
