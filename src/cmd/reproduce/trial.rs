//! The downloads that a study's figures ask for: with the window that the fit of the measured rows names.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::Result;
use linkgauge::explain::window::{CAREFUL_WINDOW, FEWEST_ROUND_TRIPS, Window};
use linkgauge::explain::{Evidence, NotExplained};
use linkgauge::paper::{PlannedCase, Study};

use super::super::measure::Screen;
use super::super::output::tell;
use super::{AROUND, Measured, Site, least_time_at, runnable};

/// The site of the case that the trial is to be better than, if it has one.
fn before<'a>(
    study: &Study,
    cases: &'a [(Site, PlannedCase)],
    quick: bool,
) -> Result<Option<&'a (Site, PlannedCase)>> {
    let Some(before) = study.before_trial(quick)? else { return Ok(None) };
    let found = cases.iter().find(|(_, case)| case.name == before.name);
    Ok(found.filter(|(site, _)| !matches!(site, Site::Nowhere(_) | Site::Guest(_))))
}

/// Why no window is tried although the study tries one; `None` where one is tried, or the study has none.
pub fn left_out(study: &Study, cases: &[(Site, PlannedCase)], quick: bool) -> Result<Option<String>> {
    let elsewhere = match before(study, cases, quick)? {
        Some(_) => None,
        None => study.before_trial(quick)?,
    };
    Ok(elsewhere.map(|case| format!("no window is tried: that needs {}, which is not measured", case.place)))
}

/// What the trial takes at least.
pub fn least_time(study: &Study, cases: &[(Site, PlannedCase)], quick: bool) -> Result<Duration> {
    let Some((site, case)) = before(study, cases, quick)? else { return Ok(Duration::ZERO) };
    let filling = matches!(site, Site::Lab) && runnable(cases).count() >= FEWEST_ROUND_TRIPS;
    // The window that fills the link takes what the link takes.
    let windows = [CAREFUL_WINDOW].into_iter().chain(filling.then_some(u32::MAX));
    Ok(windows.map(|window| least_time_at(site, &study.with_window(case, window, quick)) + AROUND).sum())
}

impl Measured<'_> {
    /// Measures with a careful window, and in the lab with the one that fills the link by the fit of what was measured. The
    /// careful one needs no fit, so a single row is enough for it.
    pub fn trial(&mut self, cases: &[(Site, PlannedCase)], screen: &Screen, quiet: bool) -> Result<()> {
        let Some((site, before)) = before(self.study, cases, self.quick)? else { return Ok(()) };
        let Some(&place) = self.done.get(&before.name).filter(|_| !self.cancel.load(Relaxed)) else {
            return Ok(());
        };
        let mut windows = vec![CAREFUL_WINDOW];
        if matches!(site, Site::Lab) {
            match self.filling_window(place) {
                Ok(filling) => windows.extend(filling.filter(|window| !windows.contains(window))),
                Err(why) if !quiet => tell(format_args!("only a window of {CAREFUL_WINDOW} is tried: {why}")),
                Err(_) => {}
            }
        }
        let trials: Vec<PlannedCase> =
            windows.into_iter().map(|window| self.study.with_window(before, window, self.quick)).collect();
        let begun = cases.len();
        for (number, case) in trials.iter().enumerate() {
            if !self.cancel.load(Relaxed) {
                self.measure(case, site, begun + number, screen);
            }
        }
        let shown: Vec<PlannedCase> = std::iter::once(before.clone()).chain(trials).collect();
        let sites: BTreeMap<&str, &Site> = shown.iter().map(|case| (case.name.as_str(), site)).collect();
        let Some(mut paper) = self.run.paper.take() else { return Ok(()) };
        let joined = self.study.join_trial(&mut paper, &shown, &|case| self.outcome(&sites, case));
        self.run.paper = Some(paper);
        Ok(joined?)
    }

    /// The window that fills the link of the case at this place, by the fit of all cases; `None` where none would.
    fn filling_window(&self, place: usize) -> Result<Option<u32>, NotExplained> {
        let window = Window::of(&Evidence::Run(&self.run))?;
        let judged = window.rows.iter().find(|judged| judged.row.case == Some(place + 1));
        Ok(judged.and_then(|judged| judged.filling_window))
    }
}
