//! The cells of a study, for `--list`.

use std::time::Duration;

use anyhow::Result;
use linkgauge::report::wrap;
use linkgauge::study::{Cell, PlannedCase, Study, StudyLength};

use super::super::output::{print_text, terminal_options};
use super::super::status::Status;
use super::guest::{self, GuestUse};
use super::{MeasuringSite, min_duration};

/// Prints the cells of the selected tables.
pub fn print_cells(study: &Study) -> Result<Status> {
    let (full, quick) = (study.cases(StudyLength::Full)?, study.cases(StudyLength::Quick)?);
    let mut rows = vec![["cell", "cases", "at least", "quick", "lab"].map(str::to_owned)];
    let mut about_cells = String::new();
    for cell in &study.cells {
        let mut needed = false;
        for &ports in &cell.ports {
            let here = |case: &&PlannedCase| case.point.cell == cell.name && case.point.ports == ports;
            let count = full.iter().filter(here).count();
            if count == 0 {
                continue;
            }
            needed = true;
            rows.push([
                format!("{}/{ports}", cell.name),
                count.to_string(),
                format_rough_duration(min_duration(full.iter().filter(here))),
                format_rough_duration(min_duration(quick.iter().filter(here))),
                lab_availability(study, cell).to_owned(),
            ]);
        }
        if needed {
            let not = cell.not_in_lab.as_ref().map_or(String::new(), |why| format!(" ({why})"));
            about_cells += &wrap_line(&format!("{}: {}{not}", cell.name, cell.is));
        }
    }
    let in_lab =
        |case: &&PlannedCase| study.find_cell(&case.point.cell).is_some_and(|cell| cell.lab.is_some());
    rows.push([
        "in the lab".to_owned(),
        full.iter().filter(in_lab).count().to_string(),
        format_rough_duration(min_duration(full.iter().filter(in_lab))),
        format_rough_duration(min_duration(quick.iter().filter(in_lab))),
        String::new(),
    ]);
    let mut rates: Vec<u32> = full.iter().map(|case| case.point.value).collect();
    rates.sort_unstable();
    rates.dedup();
    let rates: Vec<String> = rates.iter().map(u32::to_string).collect();
    let at = match (study.has_delays(), study.has_sizes()) {
        (true, _) => "delays in ms",
        (_, true) => "sizes in bytes",
        _ => "rates",
    };
    // In most studies the numbers have one meaning.
    let width = rows.iter().map(|row| row[0].chars().count()).fold(14, usize::max);
    print_text(|stdout| {
        write!(stdout, "{}", wrap_line(&format!("{}: {}", study.name, study.title)))?;
        write!(stdout, "{}", wrap_line(&format!("tables: {}", study.table_numbers().join(", "))))?;
        writeln!(stdout, "{}", wrap_line(&format!("{at} (after @): {}", rates.join(", "))))?;
        for [cell, cases, full, quick, lab] in &rows {
            let line = format!("{cell:<width$}{cases:>6}  {full:>12}{quick:>12}  {lab}");
            writeln!(stdout, "{}", line.trim_end())?;
        }
        write!(stdout, "\n{about_cells}")
    })?;
    Ok(Status::Complete)
}

/// Whether the lab has the cell, and its requirements.
fn lab_availability(study: &Study, cell: &Cell) -> &'static str {
    match (cell.lab.is_some(), guest::lab_site(study, cell, GuestUse::Unwanted)) {
        (false, _) => "no",
        (true, MeasuringSite::NotMeasured(_)) => "--vm",
        (true, _) => "yes",
    }
}

/// Wraps to the lines of a terminal.
fn wrap_line(text: &str) -> String {
    wrap(text, terminal_options().width, "", "  ")
}

/// Formats a duration: `12 s`, `5 min`, `9 h 52 min`.
pub fn format_rough_duration(time: Duration) -> String {
    let seconds = time.as_secs_f64().ceil() as u64;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_use_readable_units() {
        let texts =
            [0.2, 119.0, 120.1, 7199.0, 35_520.0].map(|s| format_rough_duration(Duration::from_secs_f64(s)));
        assert_eq!(texts, ["1 s", "119 s", "3 min", "120 min", "9 h 52 min"]);
    }
}
