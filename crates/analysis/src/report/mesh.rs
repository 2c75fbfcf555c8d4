//! A mesh of hosts: the answer, the worst pairs and the matrices, for a terminal and for the page.
//!
//! `explain::mesh` says which pairs are worst and why.

use std::collections::BTreeSet;

use minijinja::context;
use minijinja::value::Value;

use super::Detail;
use super::wording::{ABSENT, LOST_TEXT, brief_rate, brief_time, format_share, plural, printable};
use crate::explain::FindingBlock;
use crate::explain::mesh::{
    PairFigures, Typical, asymmetries, blame_sentences, describe_pair, next_command, pair_name,
    pairs_by_badness, silent_hosts, verdict,
};
use linkgauge_model::run::{MeshResult, Run};
use linkgauge_model::units::{format_bit_rate, format_nanoseconds};

mod matrix;

use matrix::{MATRICES, Matrix};

/// Pairs, directions and hosts that the summary lists.
const MAX_WORST: usize = 10;
const MAX_ASYMMETRIES: usize = 3;
const MAX_LOST_HOSTS: usize = 3;

/// Maximum number of notes; more would hide the figures.
const MAX_NOTES: usize = 3;

/// Maximum number of cases whose details are all on a page; with more, it has those of the worst pairs only.
const MAX_PAGE_CASES: usize = 600;

/// The answer of a run of a mesh in one sentence.
pub(crate) fn answer(run: &Run, mesh: &MeshResult) -> String {
    let pairs = pairs_by_badness(mesh, &run.cases);
    let typical = Typical::of(mesh, &pairs);
    let of = format!("{}, {}", plural(mesh.hosts.len(), "host"), plural(pairs.len(), "pair"));
    let failed = pairs.iter().filter(|pair| pair.pair.failure.is_some()).count();
    if failed > 0 && failed == pairs.len() {
        let why = pairs.first().map_or(String::new(), |pair| describe_pair(pair, &typical));
        return format!("{of}: {}.", printable(&why));
    }
    let mut answers = silent_hosts(mesh);
    if let Some(more @ 1..) = answers.len().checked_sub(MAX_LOST_HOSTS) {
        answers.truncate(MAX_LOST_HOSTS);
        answers.push(format!("{} without an answer", plural(more, "more host")));
    }
    if failed > 0 {
        let in_all = if answers.is_empty() { "" } else { " in all" };
        answers.push(format!("{} without a complete result{in_all}", plural(failed, "pair")));
    }
    if let Some(worst) = pairs.iter().find(|pair| pair.pair.failure.is_none()) {
        let others = if failed > 0 { "of the others " } else { "" };
        let name = pair_name(mesh, worst.pair);
        answers.push(format!("{others}the worst is {name}, {}", describe_pair(worst, &typical)));
        answers.push(verdict(mesh, &pairs));
    }
    match answers.is_empty() {
        true => format!("{of}."),
        false => printable(&format!("{of}: {}.", answers.join("; "))),
    }
}

/// The report below the answer: the worst pairs; with `Detail::Full` also all matrices that fit the width.
pub(crate) fn blocks(run: &Run, mesh: &MeshResult, (detail, width): (Detail, usize)) -> Vec<FindingBlock> {
    let pairs = pairs_by_badness(mesh, &run.cases);
    let shown = if detail == Detail::Full { pairs.len() } else { MAX_WORST };
    let mut blocks = vec![worst_table(mesh, &pairs[..shown.min(pairs.len())])];
    if detail == Detail::Full {
        for kind in MATRICES {
            let Some(matrix) = Matrix::new(mesh, &run.cases, kind) else { continue };
            match matrix.to_table(width) {
                Some(table) => {
                    blocks.push(FindingBlock::Heading(matrix.title.clone()));
                    blocks.push(table);
                }
                None => blocks.push(FindingBlock::Text(format!(
                    "{}: too wide for {width} columns. Try --html",
                    matrix.title
                ))),
            }
        }
    }
    let mut notes = notes(mesh, &pairs);
    if detail == Detail::Summary && notes.len() > MAX_NOTES {
        let more = plural(notes.len() - MAX_NOTES, "further note");
        notes.truncate(MAX_NOTES);
        notes.push(format!("{more}: --notes"));
    }
    let worst = pairs.iter().find(|pair| pair.pair.failure.is_none());
    if detail == Detail::Full {
        notes.push(timing(mesh));
        notes.extend(served(mesh));
    }
    notes.extend(worst.map(|worst| next_command(mesh, worst)));
    blocks.extend(notes.into_iter().map(FindingBlock::Text));
    blocks
}

/// The worst pairs as a table, without columns that nothing was measured for.
fn worst_table(mesh: &MeshResult, pairs: &[PairFigures]) -> FindingBlock {
    let header = ["worst pairs", "p50", "p99", "loss", "rate", "under load p50"];
    let cells = |pair: &PairFigures| -> [String; 6] {
        let time = |name: &str| percentile_text(pair, name);
        let probe = pair.throughput.and_then(|case| case.under_load.as_ref());
        let probe = probe.and_then(|figures| figures.times.latency_ns.as_ref()?.percentile("p50"));
        let marked = |text: String| match pair.is_under_load() && text != ABSENT {
            true => text + " *",
            false => text,
        };
        [
            pair_name(mesh, pair.pair),
            marked(time("p50")),
            marked(time("p99")),
            marked(pair.loss().map_or(ABSENT.to_owned(), format_share)),
            pair.rate().map_or(ABSENT.to_owned(), brief_rate),
            probe.map_or(ABSENT.to_owned(), |time| brief_time(time as f64)),
        ]
    };
    let rows: Vec<[String; 6]> = pairs.iter().map(cells).collect();
    let is_filled = |column: &usize| *column == 0 || rows.iter().any(|row| row[*column] != ABSENT);
    let columns: Vec<usize> = (0..header.len()).filter(is_filled).collect();
    let pick = |row: &[String; 6]| columns.iter().map(|column| row[*column].clone()).collect();
    FindingBlock::Table {
        text_columns: 1,
        header: pick(&header.map(str::to_owned)),
        rows: rows.iter().map(pick).collect(),
    }
}

fn percentile_text(pair: &PairFigures, name: &str) -> String {
    let times = pair.latency.and_then(|case| case.figures.times.latency_ns.as_ref());
    match times.and_then(|times| times.percentiles.get(name)) {
        Some(Some(time)) => brief_time(*time as f64),
        Some(None) => LOST_TEXT.to_owned(),
        None => ABSENT.to_owned(),
    }
}

/// Remarks that change how the figures are to be read, the most important first.
fn notes(mesh: &MeshResult, pairs: &[PairFigures]) -> Vec<String> {
    let mut notes = lost_host_notes(mesh);
    notes.extend(failure_note(mesh, pairs));
    let overlapping = mesh.served.as_ref().map_or(0, |served| served.overlapping as usize);
    match (mesh.exclusive, overlapping) {
        (false, _) => {
            notes.push("tests ran at the same time and disturbed each other (--overlap).".to_owned())
        }
        (true, 0) => {}
        (true, some) => notes.push(format!(
            "{} began before another one ended at its server, so some rates are too low: measure again.",
            plural(some, "throughput test")
        )),
    }
    if pairs.iter().any(PairFigures::is_under_load) {
        notes.push("* measured while throughput tests ran on these hosts.".to_owned());
    }
    notes.extend(blame_sentences(mesh).into_iter().skip(1).map(|sentence| format!("{sentence}.")));
    for (pair, rate, reverse) in asymmetries(pairs).into_iter().take(MAX_ASYMMETRIES) {
        let [rate, reverse] = [rate, reverse].map(format_bit_rate);
        notes.push(format!(
            "one direction is faster: {} {rate}, in reverse {reverse}.",
            pair_name(mesh, pair)
        ));
    }
    notes
}

fn lost_host_notes(mesh: &MeshResult) -> Vec<String> {
    let lost = mesh.hosts.iter().filter_map(|host| Some((&host.name, host.lost.as_ref()?)));
    let mut lost: Vec<String> =
        lost.map(|(name, why)| format!("host {name} took no part to the end: {why}")).collect();
    if let Some(more @ 1..) = lost.len().checked_sub(MAX_LOST_HOSTS) {
        lost.truncate(MAX_LOST_HOSTS);
        lost.push(format!("{} more were lost", plural(more, "host")));
    }
    lost
}

/// The pairs that failed although both hosts took part.
fn failure_note(mesh: &MeshResult, pairs: &[PairFigures]) -> Option<String> {
    let is_lost = |host: u32| mesh.hosts.get(host as usize).is_some_and(|host| host.lost.is_some());
    let failed = pairs.iter().filter(|pair| pair.pair.failure.is_some());
    let failed: Vec<&PairFigures> =
        failed.filter(|pair| !is_lost(pair.pair.from) && !is_lost(pair.pair.to)).collect();
    let first = failed.first()?;
    let why = first.pair.failure.as_deref().unwrap_or_default();
    Some(format!("{} failed: {}: {why}", plural(failed.len(), "pair"), pair_name(mesh, first.pair)))
}

/// Duration of the tests compared with the least time.
fn timing(mesh: &MeshResult) -> String {
    let [took, bound] = [mesh.tests_elapsed_ns, mesh.lower_bound_ns].map(|time| time as f64);
    let ratio =
        if bound > 0.0 { format!(", {:.2} times the least possible", took / bound) } else { String::new() };
    format!("The tests took {}{ratio}.", format_nanoseconds(took))
}

/// Sentence about the logs of the servers.
fn served(mesh: &MeshResult) -> Option<String> {
    let served = mesh.served.as_ref()?;
    let tests = plural(served.throughput_tests as usize, "throughput test");
    let unlogged = match served.unlogged {
        0 => String::new(),
        some => format!(" {} in no log.", plural(some as usize, "test")),
    };
    let overlapping = served.overlapping;
    Some(format!(
        "Logs of the servers: {tests}, {overlapping} overlapped on a host or a shared resource.{unlogged}"
    ))
}

/// Numbers of the cases whose details are on the page: all, or those of the worst pairs.
pub(crate) fn page_cases(run: &Run, mesh: &MeshResult) -> BTreeSet<usize> {
    if run.cases.len() <= MAX_PAGE_CASES {
        return (1..=run.cases.len()).collect();
    }
    let worst = pairs_by_badness(mesh, &run.cases);
    let worst = worst.iter().take(MAX_WORST).map(|pair| pair.pair);
    worst
        .flat_map(|pair| [pair.latency_case, pair.throughput_case])
        .flatten()
        .map(|case| case as usize)
        .collect()
}

/// The section of the page.
pub(crate) fn page_context(run: &Run, mesh: &MeshResult) -> Value {
    let pairs = pairs_by_badness(mesh, &run.cases);
    let shown = page_cases(run, mesh);
    let matrices: Vec<Value> = MATRICES
        .iter()
        .filter_map(|kind| Some(Matrix::new(mesh, &run.cases, kind)?.page_context(&shown)))
        .collect();
    let rows = pairs.iter().take(MAX_WORST).map(|pair| {
        let rate = pair.rate().map_or(ABSENT.to_owned(), brief_rate);
        context! {
            name => pair_name(mesh, pair.pair),
            p50 => percentile_text(pair, "p50"),
            p99 => percentile_text(pair, "p99"),
            loss => pair.loss().map_or(ABSENT.to_owned(), format_share),
            rate => rate,
            latency_case => pair.pair.latency_case,
            throughput_case => pair.pair.throughput_case,
            is_under_load => pair.is_under_load(),
        }
    });
    let mut notes = vec![timing(mesh)];
    notes.extend(served(mesh));
    notes.extend(blame_sentences(mesh).into_iter().take(1).map(|sentence| format!("{sentence}.")));
    notes.extend(self::notes(mesh, &pairs));
    let next = pairs.iter().find(|pair| pair.pair.failure.is_none());
    notes.extend(next.map(|worst| next_command(mesh, worst)));
    context! { matrices => matrices, worst => rows.collect::<Vec<Value>>(), notes => notes }
}

#[cfg(test)]
mod tests;
