//! `--on CELL=URL…` and `--cell CELL`: the selected cells of a study and their endpoints.

use std::str::FromStr;

use anyhow::{Result, anyhow, bail};
use linkgauge::endpoint::Endpoint;
use linkgauge::link::Dialer;
use linkgauge::study::{MeasuringPoint, PlannedCase, Study};

/// A cell, in any precision.
#[derive(Debug, Clone)]
pub struct CellSelector {
    cell: String,
    ports: Option<u32>,
    /// Rate of the line in bit/s, or delay of the link in ms.
    value: Option<u32>,
    /// As typed.
    text: String,
}

/// A cell and its endpoints.
#[derive(Debug, Clone)]
pub struct CellEndpoints {
    selector: CellSelector,
    urls: Vec<Endpoint>,
}

impl FromStr for CellSelector {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<CellSelector> {
        let number = |part: &str| part.parse().map_err(|_| anyhow!("'{text}': '{part}' is not a number"));
        let (place, at) = match text.split_once('@') {
            Some((place, at)) => (place, Some(number(at)?)),
            None => (text, None),
        };
        let (cell, ports) = match place.split_once('/') {
            Some((cell, ports)) => (cell, Some(number(ports)?)),
            None => (place, None),
        };
        Ok(CellSelector { cell: cell.to_owned(), ports, value: at, text: text.to_owned() })
    }
}

impl FromStr for CellEndpoints {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<CellEndpoints> {
        let (name, urls) = text
            .split_once('=')
            .ok_or_else(|| anyhow!("'{text}' has no endpoint. Write CELL=URL, like tcp/4=tcp://box:7001"))?;
        let name = name.parse()?;
        let urls = urls.split(',').map(str::parse::<Endpoint>).collect::<Result<_, _>>()?;
        Ok(CellEndpoints { selector: name, urls })
    }
}

impl CellSelector {
    pub fn matches(&self, place: &MeasuringPoint) -> bool {
        self.cell == place.cell
            && self.ports.is_none_or(|ports| ports == place.ports)
            && self.value.is_none_or(|at| at == place.value)
    }

    /// Fails unless a case matches. `flag`: its origin.
    pub fn check_exists(&self, flag: &str, cases: &[PlannedCase]) -> Result<()> {
        if !cases.iter().any(|case| self.matches(&case.point)) {
            let at = if self.value.is_some() { "; --list: what follows the @" } else { "" };
            bail!("{flag} {}: unknown cell (known: {}{at})", self.text, known_cells(cases));
        }
        Ok(())
    }

    /// A more specific selector has priority.
    fn specificity(&self) -> (bool, bool) {
        (self.value.is_some(), self.ports.is_some())
    }
}

/// All values of `--on`.
pub struct UserEndpoints<'a> {
    study: &'a Study,
    entries: &'a [CellEndpoints],
}

impl<'a> UserEndpoints<'a> {
    /// Fails on an unknown cell, on one that is named twice, and on a line with an unknown rate.
    pub fn new(
        study: &'a Study,
        cases: &[PlannedCase],
        all: &'a [CellEndpoints],
        dialer: &Dialer,
    ) -> Result<UserEndpoints<'a>> {
        let given = UserEndpoints { study, entries: all };
        for (index, on) in given.entries.iter().enumerate() {
            on.selector.check_exists("--on", cases)?;
            if given.entries[..index].iter().any(|other| other.selector.text == on.selector.text) {
                bail!("--on {}: given twice. Separate several URLs by commas", on.selector.text);
            }
            given.check_line_rate(on, cases, dialer)?;
        }
        Ok(given)
    }

    /// The rate of a device server's line cannot be set over its network port, so one URL cannot stand for several rates.
    fn check_line_rate(&self, on: &CellEndpoints, cases: &[PlannedCase], dialer: &Dialer) -> Result<()> {
        let covered = || cases.iter().map(|case| &case.point).filter(|place| on.selector.matches(place));
        let first = covered().next().map(|place| place.value);
        if self.study.has_sizes() || covered().all(|place| Some(place.value) == first) {
            return Ok(());
        }
        let url = &on.urls[0];
        if self.study.has_delays() {
            let (name, delay) = (&on.selector.text, first.unwrap_or_default());
            bail!("--on {name}: the delay of the link is missing. Write it like {name}@{delay}={url}");
        }
        if dialer.open(url)?.port_control().is_none() {
            let (name, rate) = (&on.selector.text, first.unwrap_or_default());
            bail!(
                "--on {name}: {url} cannot set the rate of the line behind it: set the line there, and name its rate, \
                 like {name}@{rate}={url}"
            );
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn find(&self, place: &MeasuringPoint) -> Option<&CellEndpoints> {
        self.entries.iter().filter(|on| on.selector.matches(place)).max_by_key(|on| on.selector.specificity())
    }

    /// The endpoints of a place, with the line settings of the study.
    pub fn endpoints(&self, place: &MeasuringPoint) -> Result<Option<Vec<Endpoint>>> {
        let (Some(on), Some(cell)) = (self.find(place), self.study.find_cell(&place.cell)) else {
            return Ok(None);
        };
        let ports = place.ports as usize;
        let urls: Vec<Endpoint> = match on.urls.as_slice() {
            [first] => {
                (0..place.ports).map(|port| first.with_number_offset(port)).collect::<Result<_, _>>()?
            }
            urls if urls.len() >= ports => urls[..ports].to_vec(),
            urls => bail!(
                "--on {}: {} URLs for {ports} ports: give one to count up from, or all",
                on.selector.text,
                urls.len()
            ),
        };
        let endpoints = urls.iter().map(|url| cell.configure_endpoint(url, place.value));
        Ok(Some(endpoints.collect::<Result<_, _>>()?))
    }
}

/// The cells of these cases.
fn known_cells(cases: &[PlannedCase]) -> String {
    let mut names: Vec<String> = Vec::new();
    for case in cases {
        let name = format!("{}/{}", case.point.cell, case.point.ports);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}
