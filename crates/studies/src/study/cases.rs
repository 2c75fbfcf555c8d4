//! The cases of a study.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{
    Cell, DownloadPlan, MeasureSpec, MeasuringPoint, PhysicalLine, PlannedCase, Study, StudyError,
    StudyLength,
};
use linkgauge_model::plan::OneOrMany;
use linkgauge_model::units::{Bytes, RateTarget};

impl Study {
    /// The cases that the selected tables name, each once, in the order of first use.
    ///
    /// # Errors
    ///
    /// Fails if the plan is invalid.
    pub fn cases(&self, length: StudyLength) -> Result<Vec<PlannedCase>, StudyError> {
        let mut all: BTreeMap<String, PlannedCase> =
            self.all_cases(length)?.into_iter().map(|case| (case.name.clone(), case)).collect();
        Ok(self.selected_rows().filter_map(|row| all.remove(&row.case)).collect())
    }

    pub(super) fn all_cases(&self, length: StudyLength) -> Result<Vec<PlannedCase>, StudyError> {
        let mut cases = Vec::new();
        for measure in &self.measures {
            for name in &measure.cells {
                let cell =
                    self.find_cell(name).ok_or_else(|| StudyError::Plan(format!("no cell '{name}'")))?;
                let at = if measure.at.is_empty() { &cell.at } else { &measure.at };
                for &ports in &cell.ports {
                    for at in at {
                        let at: u32 =
                            at.parse().map_err(|_| StudyError::Plan(format!("'{at}' is no number")))?;
                        let place = MeasuringPoint { cell: cell.name.clone(), ports, value: at };
                        cases.push(self.plan_case(measure, cell, place, length));
                    }
                }
            }
        }
        Ok(cases)
    }

    fn plan_case(
        &self,
        measure: &MeasureSpec,
        cell: &Cell,
        place: MeasuringPoint,
        length: StudyLength,
    ) -> PlannedCase {
        let at = place.value;
        let line = self.line.as_ref().map(|plan| PhysicalLine {
            bits_per_second: f64::from(at),
            bits_per_character: plan.bits_per_character,
        });
        let delay = Duration::from_millis(at.into());
        let download = self
            .download
            .map(|protocol| DownloadPlan { protocol, link: cell.link.map(|rates| rates.with_delay(delay)) });
        let mut spec =
            if length.is_quick() { measure.quick.with_defaults(&measure.case) } else { measure.case.clone() };
        if self.has_sizes() {
            spec.size = Some(OneOrMany::One(Bytes(at.into())));
        }
        let short = measure.quick_line_time.filter(|_| length.is_quick()).zip(line).map(|(time, line)| {
            let characters = time.0.as_secs_f64() * line.bits_per_second / line.bits_per_character;
            Bytes((characters.ceil() as u64).max(1))
        });
        spec.volume = short.or_else(|| measure.volume.get(&at.to_string()).copied()).or(spec.volume);
        // A partial message would never count.
        if let (Some(OneOrMany::One(size)), Some(volume)) = (&mut spec.size, spec.volume) {
            size.0 = size.0.min(volume.0);
        }
        if spec.bit_rate.is_none() {
            // Studies state their limits explicitly, so the default is full speed.
            spec.rate.get_or_insert(RateTarget::Max);
        }
        let before = measure.before.clone();
        let name = format!("{}:{place}", measure.name);
        let together =
            if measure.together { format!("{}:{}", measure.name, cell.name) } else { name.clone() };
        let link = cell.link.filter(|_| self.has_sizes()).map(|rates| rates.with_delay(Duration::ZERO));
        PlannedCase { name, point: place, group: together, spec, preparation: before, line, download, link }
    }
}
