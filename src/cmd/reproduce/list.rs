//! What a study consists of: its cells, for `--list`.

use std::time::Duration;

use anyhow::Result;
use linkgauge::paper::{Cell, PlannedCase, Study};
use linkgauge::report::wrap;

use super::super::Status;
use super::super::output::put;
use super::{Site, guest, least_time};

/// Prints the cells that the chosen tables need.
pub fn print(study: &Study) -> Result<Status> {
    let (full, quick) = (study.cases(false)?, study.cases(true)?);
    let mut rows = vec![["cell", "cases", "at least", "quick", "lab"].map(str::to_owned)];
    let mut about_cells = String::new();
    for cell in &study.cells {
        let mut needed = false;
        for &ports in &cell.ports {
            let here = |case: &&PlannedCase| case.place.cell == cell.name && case.place.ports == ports;
            let count = full.iter().filter(here).count();
            if count == 0 {
                continue;
            }
            needed = true;
            rows.push([
                format!("{}/{ports}", cell.name),
                count.to_string(),
                about(least_time(full.iter().filter(here))),
                about(least_time(quick.iter().filter(here))),
                in_lab(study, cell).to_owned(),
            ]);
        }
        if needed {
            let not = cell.not_in_lab.as_ref().map_or(String::new(), |why| format!(" ({why})"));
            about_cells += &told(&format!("{}: {}{not}", cell.name, cell.is));
        }
    }
    let in_lab = |case: &&PlannedCase| study.cell(&case.place.cell).is_some_and(|cell| cell.lab.is_some());
    rows.push([
        "in the lab".to_owned(),
        full.iter().filter(in_lab).count().to_string(),
        about(least_time(full.iter().filter(in_lab))),
        about(least_time(quick.iter().filter(in_lab))),
        String::new(),
    ]);
    let mut rates: Vec<u32> = full.iter().map(|case| case.place.at).collect();
    rates.sort_unstable();
    rates.dedup();
    let rates: Vec<String> = rates.iter().map(u32::to_string).collect();
    let at = match (study.is_of_delays(), study.is_of_sizes()) {
        (true, _) => "delays in ms",
        (_, true) => "sizes in bytes",
        _ => "rates",
    };
    // The numbers of most studies stand in the same place.
    let width = rows.iter().map(|row| row[0].chars().count()).fold(14, usize::max);
    put(|stdout| {
        write!(stdout, "{}", told(&format!("{}: {}", study.name, study.title)))?;
        write!(stdout, "{}", told(&format!("tables: {}", study.table_numbers().join(", "))))?;
        writeln!(stdout, "{}", told(&format!("{at} (after @): {}", rates.join(", "))))?;
        for [cell, cases, full, quick, lab] in &rows {
            let line = format!("{cell:<width$}{cases:>6}  {full:>12}{quick:>12}  {lab}");
            writeln!(stdout, "{}", line.trim_end())?;
        }
        write!(stdout, "\n{about_cells}")
    })?;
    Ok(Status::Complete)
}

/// Whether a cell is in the lab, and what it takes.
fn in_lab(study: &Study, cell: &Cell) -> &'static str {
    match (cell.lab.is_some(), guest::site(study, cell, false, None)) {
        (false, _) => "no",
        (true, Site::Nowhere(_)) => "--vm",
        (true, _) => "yes",
    }
}

/// In lines of a terminal.
fn told(text: &str) -> String {
    wrap(text, 80, "", "  ")
}

/// A length of time in words: `12 s`, `5 min`, `9 h 52 min`.
pub fn about(time: Duration) -> String {
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
    fn times_are_told_as_people_do() {
        let told = [0.2, 119.0, 120.1, 7199.0, 35_520.0].map(|s| about(Duration::from_secs_f64(s)));
        assert_eq!(told, ["1 s", "119 s", "3 min", "120 min", "9 h 52 min"]);
    }
}
