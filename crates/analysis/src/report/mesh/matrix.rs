//! One figure of all pairs as a matrix: rows send, columns receive, the worst hosts first.

use std::collections::BTreeSet;

use minijinja::context;
use minijinja::value::Value;

use crate::explain::FindingBlock;
use crate::explain::mesh::{PairFigures, pairs_by_badness};
use crate::report::wording::{ABSENT, shorten};
use linkgauge_model::run::{CaseResult, MeshResult};
use linkgauge_model::stats::median;

/// A figure of a pair.
pub(crate) struct MatrixKind {
    title: &'static str,
    read: fn(&PairFigures) -> Option<f64>,
    units: &'static [(f64, &'static str)],
    more_is_better: bool,
}

const TIMES: &[(f64, &str)] = &[(1e3, "µs"), (1e6, "ms"), (1e9, "s")];
const RATES: &[(f64, &str)] = &[(1e3, "kbit/s"), (1e6, "Mbit/s"), (1e9, "Gbit/s")];

/// The matrices of a report. Round trips under the load of other tests stand by themselves.
pub(crate) static MATRICES: &[MatrixKind] = &[
    MatrixKind { title: "rate", read: |pair| pair.rate(), units: RATES, more_is_better: true },
    MatrixKind {
        title: "median round trip",
        read: |pair| pair.percentile("p50").filter(|_| !pair.is_under_load()),
        units: TIMES,
        more_is_better: false,
    },
    MatrixKind {
        title: "p99 of the round trip",
        read: |pair| pair.percentile("p99").filter(|_| !pair.is_under_load()),
        units: TIMES,
        more_is_better: false,
    },
    MatrixKind {
        title: "median round trip while other tests ran",
        read: |pair| pair.percentile("p50").filter(|_| pair.is_under_load()),
        units: TIMES,
        more_is_better: false,
    },
    MatrixKind {
        title: "p99 of the round trip while other tests ran",
        read: |pair| pair.percentile("p99").filter(|_| pair.is_under_load()),
        units: TIMES,
        more_is_better: false,
    },
    MatrixKind {
        title: "loss",
        read: |pair| pair.loss().filter(|_| !pair.is_under_load()).map(|share| 100.0 * share),
        units: &[(1.0, "%")],
        more_is_better: false,
    },
    MatrixKind {
        title: "loss while other tests ran",
        read: |pair| pair.loss().filter(|_| pair.is_under_load()).map(|share| 100.0 * share),
        units: &[(1.0, "%")],
        more_is_better: false,
    },
];

/// A value that is this many times worse than the median stands out.
const CONSPICUOUS: f64 = 1.5;

/// A matrix of more hosts is no help.
const MAX_HOSTS: usize = 200;

/// Columns of a name, in its row and above its column.
const MAX_NAME_COLUMNS: usize = 16;
const MAX_HEADER_COLUMNS: usize = 6;

/// A figure of all pairs.
pub(crate) struct Matrix {
    /// The figure and its unit.
    pub(crate) title: String,
    names: Vec<String>,
    cells: Vec<Vec<MatrixCell>>,
}

#[derive(Clone, Default)]
struct MatrixCell {
    text: String,
    case: Option<u32>,
    is_conspicuous: bool,
}

impl Matrix {
    /// Makes the matrix. `None` if no pair has the figure, if it is zero for all of them, or if there are too many hosts.
    pub fn new(mesh: &MeshResult, cases: &[CaseResult], kind: &MatrixKind) -> Option<Matrix> {
        if mesh.hosts.len() > MAX_HOSTS {
            return None;
        }
        let pairs = pairs_by_badness(mesh, cases);
        let values: Vec<(&PairFigures, f64)> =
            pairs.iter().filter_map(|pair| Some((pair, (kind.read)(pair)?))).collect();
        let all: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
        let typical = median(&all)?;
        if all.iter().all(|value| *value == 0.0) {
            return None;
        }
        let unit = kind.units.iter().rev().find(|(factor, _)| typical >= *factor).unwrap_or(&kind.units[0]);
        let hosts = hosts_by_badness(mesh, &values, kind);
        let mut places = vec![usize::MAX; mesh.hosts.len()];
        hosts.iter().enumerate().for_each(|(place, host)| places[*host] = place);
        let mut cells = vec![vec![MatrixCell::default(); hosts.len()]; hosts.len()];
        for (pair, value) in values {
            let [from, to] = [pair.pair.from, pair.pair.to].map(|host| places.get(host as usize).copied());
            let cell = from.zip(to).and_then(|(from, to)| cells.get_mut(from)?.get_mut(to));
            let Some(cell) = cell else { continue };
            let is_conspicuous = match kind.more_is_better {
                true => typical > CONSPICUOUS * value,
                false => value > CONSPICUOUS * typical,
            };
            let case = if kind.more_is_better { pair.pair.throughput_case } else { pair.pair.latency_case };
            *cell = MatrixCell { text: three_digits(value / unit.0), case, is_conspicuous };
        }
        let names = hosts.iter().map(|host| mesh.hosts[*host].name.clone()).collect();
        Some(Matrix { title: format!("{} in {}", kind.title, unit.1), names, cells })
    }

    /// The matrix for a terminal, if it fits the width.
    pub(crate) fn to_table(&self, width: usize) -> Option<FindingBlock> {
        let name = |name: &String| shorten(name, MAX_NAME_COLUMNS);
        let corner = "from ↓ to →".to_owned();
        let header: Vec<String> = std::iter::once(corner)
            .chain(self.names.iter().map(|name| shorten(name, MAX_HEADER_COLUMNS)))
            .collect();
        let text =
            |cell: &MatrixCell| if cell.text.is_empty() { ABSENT.to_owned() } else { cell.text.clone() };
        let rows: Vec<Vec<String>> = self
            .names
            .iter()
            .zip(&self.cells)
            .map(|(from, cells)| std::iter::once(name(from)).chain(cells.iter().map(text)).collect())
            .collect();
        let column = |index: usize| {
            let all = rows.iter().chain([&header]).map(|row| row[index].chars().count());
            all.max().unwrap_or(0) + 1
        };
        let needed: usize = (0..header.len()).map(column).sum::<usize>() + 2;
        (needed <= width).then_some(FindingBlock::Table { text_columns: 1, header, rows })
    }

    /// The matrix for the page, with links to the cases that are on it.
    pub(crate) fn page_context(&self, shown: &BTreeSet<usize>) -> Value {
        let cell = |cell: &MatrixCell| {
            let case = cell.case.filter(|case| shown.contains(&(*case as usize)));
            context! { text => cell.text.clone(), case => case, conspicuous => cell.is_conspicuous }
        };
        let row = |(name, cells): (&String, &Vec<MatrixCell>)| {
            context! { name => name.clone(), cells => cells.iter().map(cell).collect::<Vec<Value>>() }
        };
        context! {
            title => self.title.clone(),
            names => self.names.clone(),
            rows => self.names.iter().zip(&self.cells).map(row).collect::<Vec<Value>>(),
        }
    }
}

/// The hosts with such a figure, by the median of their values, the worst first.
fn hosts_by_badness(mesh: &MeshResult, values: &[(&PairFigures, f64)], kind: &MatrixKind) -> Vec<usize> {
    let mut hosts: Vec<(f64, usize)> = Vec::new();
    for host in 0..mesh.hosts.len() {
        let is_own = |pair: &PairFigures| [pair.pair.from, pair.pair.to].contains(&(host as u32));
        let own: Vec<f64> = values.iter().filter(|(pair, _)| is_own(pair)).map(|(_, value)| *value).collect();
        if let Some(centre) = median(&own) {
            hosts.push((if kind.more_is_better { centre } else { -centre }, host));
        }
    }
    hosts.sort_by(|a, b| a.0.total_cmp(&b.0));
    hosts.into_iter().map(|(_, host)| host).collect()
}

/// Formats a value with three significant digits: `0.12`, `9.41`, `94.1`, `941`.
fn three_digits(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}
