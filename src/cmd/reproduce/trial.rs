//! The downloads that a study's figures ask for: with the window that the fit of the measured rows names.

use std::collections::BTreeMap;

use anyhow::Result;
use linkgauge::explain::Evidence;
use linkgauge::explain::window::Window;
use linkgauge::paper::PlannedCase;

use super::super::measure::{Screen, cancelled};
use super::super::output::tell;
use super::{Measured, Site};

impl Measured<'_> {
    /// Picks the window from what was measured, and measures with it, beside a careful one. A real logger gets the careful
    /// one only.
    pub fn trial(&mut self, cases: &[(Site, PlannedCase)], screen: &Screen, quiet: bool) -> Result<()> {
        let before = self.study.before_trial(self.quick)?;
        let Some(before) = before.filter(|_| !cancelled(self.cancel)) else { return Ok(()) };
        let site = cases.iter().find(|(_, case)| case.name == before.name).map(|(site, _)| site);
        let (Some(site), Some(&place)) = (site, self.done.get(&before.name)) else { return Ok(()) };
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
            windows.into_iter().map(|window| self.study.with_window(&before, window, self.quick)).collect();
        let begun = cases.len();
        for (number, case) in trials.iter().enumerate() {
            if !cancelled(self.cancel) {
                self.measure(case, site, begun + number, screen);
            }
        }
        let sites: BTreeMap<&str, &Site> = trials.iter().map(|case| (case.name.as_str(), site)).collect();
        let Some(mut paper) = self.run.paper.take() else { return Ok(()) };
        let joined = self.study.join_trial(&mut paper, &trials, &|case| self.outcome(&sites, case));
        self.run.paper = Some(paper);
        Ok(joined?)
    }
}
