//! The downloads that a study's figures ask for: with the window that the fit of the measured rows names.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::Result;
use linkgauge::explain::Evidence;
use linkgauge::explain::window::{CAREFUL_WINDOW, Window};
use linkgauge::paper::{PlannedCase, Study};

use super::super::measure::Screen;
use super::super::output::tell;
use super::{AROUND, Measured, Site};

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

/// What the trial takes at least.
pub fn least_time(study: &Study, cases: &[(Site, PlannedCase)], quick: bool) -> Result<Duration> {
    let Some((site, case)) = before(study, cases, quick)? else { return Ok(Duration::ZERO) };
    // The window that fills the link takes what the link takes.
    let windows = [CAREFUL_WINDOW, u32::MAX];
    let windows = if matches!(site, Site::Lab) { &windows[..] } else { &windows[..1] };
    Ok(windows.iter().map(|window| study.with_window(case, *window, quick).least_time() + AROUND).sum())
}

impl Measured<'_> {
    /// Picks the window from what was measured, and measures with it, beside a careful one. A real logger gets the careful
    /// one only.
    pub fn trial(&mut self, cases: &[(Site, PlannedCase)], screen: &Screen, quiet: bool) -> Result<()> {
        let Some((site, before)) = before(self.study, cases, self.quick)? else { return Ok(()) };
        let Some(&place) = self.done.get(&before.name).filter(|_| !self.cancel.load(Relaxed)) else {
            return Ok(());
        };
        let window = match Window::of(&Evidence::Run(&self.run)) {
            Ok(window) => window,
            Err(why) => {
                if !quiet {
                    tell(format_args!("no window is tried: {why}"));
                }
                return Ok(());
            }
        };
        let judged = window.rows.iter().find(|judged| judged.row.case == Some(place + 1));
        let filling = judged.and_then(|judged| judged.filling_window);
        let mut windows = vec![window.careful_window];
        windows.extend(filling.filter(|window| matches!(site, Site::Lab) && !windows.contains(window)));
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
}
