//! What a logger holds: its files and its tables, from the two lists that it keeps as files.

use std::sync::mpsc::sync_channel;
use std::thread;

use anyhow::{Result, anyhow};
use comfy_table::{CellAlignment, Table, presets};
use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::plan::Plan;
use linkgauge::protocol::pakbus::directory::{self, DirectoryEntry};
use linkgauge::protocol::pakbus::table;
use linkgauge::report::printable;
use linkgauge::run::Run;
use linkgauge::schedule;
use linkgauge::units::{format_bytes, format_count, format_duration, format_plural};
use linkgauge::workload::download::MAX_QUEUED_CHUNKS;

use super::Flags;
use crate::cmd::measure::{measure_with_content, run_status};
use crate::cmd::output::print_text;
use crate::cmd::status::Status;

/// The files that list the others, and the tables.
const DIRECTORY_FILE: &str = ".DIR";
const DEFINITIONS_FILE: &str = ".TDF";

/// Prints the lists of every logger that is named.
pub fn print_listing(flags: &Flags) -> Result<Status> {
    for url in &flags.urls {
        let of = |name: &str| Flags {
            urls: vec![url.clone()],
            file: Some(name.to_owned()),
            list: false,
            ..flags.clone()
        };
        let (run, files) = fetch_file(&of(DIRECTORY_FILE))?;
        if !run.is_complete() {
            return Ok(run_status(&run));
        }
        let (run, tables) = fetch_file(&of(DEFINITIONS_FILE))?;
        if !run.is_complete() {
            return Ok(run_status(&run));
        }
        let unread =
            |what: &str| anyhow!("{url}: the list of {what} cannot be read: is it another kind of logger?");
        let files = directory::read(&files).map_err(|_| unread("files"))?;
        let tables = table::read(&tables).map_err(|_| unread("tables"))?;
        print_text(|out| write!(out, "{}", format_listing(url.as_str(), &files, &tables)))?;
    }
    Ok(Status::Complete)
}

/// The content of the one file that these flags name.
fn fetch_file(flags: &Flags) -> Result<(Run, Vec<u8>)> {
    let plan = schedule::check(Plan::new(flags.cases()?)?, Registry::standard())?;
    let (content, chunks) = sync_channel::<Vec<u8>>(MAX_QUEUED_CHUNKS);
    thread::scope(|scope| {
        let gathered = scope.spawn(move || chunks.iter().flatten().collect());
        let measured = measure_with_content(
            &plan,
            &flags.plan,
            Registry::standard().dialer(Clock::System),
            Some(content),
            None,
        )?;
        measured.events?;
        let bytes = gathered.join().map_err(|_| anyhow!("the thread that gathers the list failed"))?;
        Ok((measured.run, bytes))
    })
}

/// Both lists for people.
fn format_listing(url: &str, files: &[DirectoryEntry], tables: &[table::TableDefinition]) -> String {
    // A drive is listed with the room on it.
    let (drives, files): (Vec<&DirectoryEntry>, Vec<&DirectoryEntry>) =
        files.iter().partition(|entry| entry.name.ends_with(':'));
    let (file, table) =
        (format_plural(files.len() as u64, "file"), format_plural(tables.len() as u64, "table"));
    let mut text = format!("{}: {file}, {table}\n", printable(url));
    let rows = files
        .iter()
        .map(|entry| [entry.name.clone(), format_bytes(entry.size.into()), entry.updated.clone()]);
    text += &format_table(["file", "size", "changed"], rows);
    for drive in drives {
        text += &format!(
            "  {}: {} free\n",
            printable(drive.name.trim_end_matches(':')),
            format_bytes(drive.size.into())
        );
    }
    let rows = tables.iter().map(|table| {
        let interval = std::time::Duration::new(
            u64::try_from(table.interval.seconds).unwrap_or_default(),
            u32::try_from(table.interval.nanoseconds).unwrap_or_default(),
        );
        let interval = if interval.is_zero() { "on event".to_owned() } else { format_duration(interval) };
        let fields: Vec<&str> = table.fields.iter().map(|field| field.name.as_str()).collect();
        [
            table.name.clone(),
            format_count(table.capacity.into()),
            format!("{interval}  {}", fields.join(", ")),
        ]
    });
    text + &format_table(["table", "records", "interval and fields"], rows)
}

fn format_table(head: [&str; 3], rows: impl Iterator<Item = [String; 3]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(head);
    for row in rows {
        table.add_row(row.map(|cell| printable(&cell)));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if index == 0 { 0 } else { 2 }, 0));
        if index == 1 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| format!("  {}\n", line.trim_end())).collect()
}
