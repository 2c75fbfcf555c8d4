//! Trials: downloads with the window that the fit of the measured rows recommends.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::Result;
use linkgauge::explain::window::{MIN_ROUND_TRIPS, SAFE_WINDOW_REQUESTS, WindowModel};
use linkgauge::explain::{ExplainError, ModelInput};
use linkgauge::study::{PlannedCase, Study, StudyLength};

use super::super::output::{Messages, print_message};
use super::super::progress::ProgressDisplay;
use super::{CASE_OVERHEAD, MeasuringSite, StudyRun, least_time_at, runnable_cases};

/// The site of the case that the trial is compared with, if it is measured.
fn trial_baseline<'a>(
    study: &Study,
    cases: &'a [(MeasuringSite, PlannedCase)],
    length: StudyLength,
) -> Result<Option<&'a (MeasuringSite, PlannedCase)>> {
    let Some(before) = study.trial_baseline(length)? else { return Ok(None) };
    let found = cases.iter().find(|(_, case)| case.name == before.name);
    Ok(found.filter(|(site, _)| !matches!(site, MeasuringSite::NotMeasured(_) | MeasuringSite::Guest(_))))
}

/// The reason if the trial of the study cannot run. `None` if it can, or if the study has none.
pub fn left_out(
    study: &Study,
    cases: &[(MeasuringSite, PlannedCase)],
    length: StudyLength,
) -> Result<Option<String>> {
    let elsewhere = match trial_baseline(study, cases, length)? {
        Some(_) => None,
        None => study.trial_baseline(length)?,
    };
    Ok(elsewhere.map(|case| format!("no window is tried, because {} is not measured", case.point)))
}

/// Lower bound of the duration of the trial.
pub fn min_duration(
    study: &Study,
    cases: &[(MeasuringSite, PlannedCase)],
    length: StudyLength,
) -> Result<Duration> {
    let Some((site, case)) = trial_baseline(study, cases, length)? else { return Ok(Duration::ZERO) };
    let filling = matches!(site, MeasuringSite::Lab) && runnable_cases(cases).count() >= MIN_ROUND_TRIPS;
    // With a window that fills the link, the link rate decides.
    let windows = [SAFE_WINDOW_REQUESTS].into_iter().chain(filling.then_some(u32::MAX));
    Ok(windows
        .map(|window| least_time_at(site, &study.with_window(case, window, length)) + CASE_OVERHEAD)
        .sum())
}

impl StudyRun<'_> {
    /// Measures with a safe window, and in the lab also with the one that fills the link according to the fit. The safe one
    /// needs no fit, so one row suffices.
    pub fn run_window_trial(
        &mut self,
        cases: &[(MeasuringSite, PlannedCase)],
        screen: &ProgressDisplay,
        messages: Messages,
    ) -> Result<()> {
        let Some((site, before)) = trial_baseline(self.study, cases, self.length)? else { return Ok(()) };
        let Some(&place) = self.result_index.get(&before.name).filter(|_| !self.cancel.load(Relaxed)) else {
            return Ok(());
        };
        let mut windows = vec![SAFE_WINDOW_REQUESTS];
        if matches!(site, MeasuringSite::Lab) {
            match self.filling_window(place) {
                Ok(filling) => windows.extend(filling.filter(|window| !windows.contains(window))),
                Err(why) if messages == Messages::All => {
                    print_message(format_args!("only a window of {SAFE_WINDOW_REQUESTS} is tried: {why}"))
                }
                Err(_) => {}
            }
        }
        let trials: Vec<PlannedCase> =
            windows.into_iter().map(|window| self.study.with_window(before, window, self.length)).collect();
        let begun = cases.len();
        for (number, case) in trials.iter().enumerate() {
            if !self.cancel.load(Relaxed) {
                self.measure_case(case, site, begun + number, screen);
            }
        }
        let shown: Vec<PlannedCase> = std::iter::once(before.clone()).chain(trials).collect();
        let sites: BTreeMap<&str, &MeasuringSite> =
            shown.iter().map(|case| (case.name.as_str(), site)).collect();
        let Some(mut paper) = self.run.study.take() else { return Ok(()) };
        let joined = self.study.join_trial_results(&mut paper, &shown, &|case| self.outcome(&sites, case));
        self.run.study = Some(paper);
        Ok(joined?)
    }

    /// The window that fills the link of the case at this place, by the fit of all cases. `None` if no window does.
    fn filling_window(&self, place: usize) -> Result<Option<u32>, ExplainError> {
        let window = WindowModel::fit(&ModelInput::Run(&self.run))?;
        let judged = window.rows.iter().find(|judged| judged.row.case == Some(place + 1));
        Ok(judged.and_then(|judged| judged.filling_window))
    }
}
