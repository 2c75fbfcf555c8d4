//! `--on CELL=URL…` and `--cell CELL`: which cells of a study are measured, and on what.

use std::str::FromStr;

use anyhow::{Result, bail};
use linkgauge::endpoint::Endpoint;
use linkgauge::link::Dialer;
use linkgauge::paper::{Place, PlannedCase, Study};

/// A cell, as precise as one likes.
#[derive(Debug, Clone)]
pub struct Name {
    cell: String,
    ports: Option<u32>,
    /// Rate of the line in bit/s, or delay of the link in ms.
    at: Option<u32>,
    /// As typed.
    text: String,
}

/// A cell and where its links lead.
#[derive(Debug, Clone)]
pub struct On {
    name: Name,
    urls: Vec<Endpoint>,
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Name, String> {
        let number = |part: &str| part.parse().map_err(|_| format!("'{text}': '{part}' is no number"));
        let (place, at) = match text.split_once('@') {
            Some((place, at)) => (place, Some(number(at)?)),
            None => (text, None),
        };
        let (cell, ports) = match place.split_once('/') {
            Some((cell, ports)) => (cell, Some(number(ports)?)),
            None => (place, None),
        };
        Ok(Name { cell: cell.to_owned(), ports, at, text: text.to_owned() })
    }
}

impl FromStr for On {
    type Err = String;

    fn from_str(text: &str) -> Result<On, String> {
        let (name, urls) = text.split_once('=').ok_or_else(|| {
            format!("'{text}' names no endpoint: write CELL=URL, like tcp/4=tcp://box:7001")
        })?;
        let name = name.parse()?;
        let urls: Result<Vec<Endpoint>, _> = urls.split(',').map(str::parse::<Endpoint>).collect();
        Ok(On { name, urls: urls.map_err(|error| error.to_string())? })
    }
}

impl Name {
    pub fn covers(&self, place: &Place) -> bool {
        self.cell == place.cell
            && self.ports.is_none_or(|ports| ports == place.ports)
            && self.at.is_none_or(|at| at == place.at)
    }

    /// Fails unless a case is there; `flag` is what it was given with.
    pub fn check(&self, flag: &str, cases: &[PlannedCase]) -> Result<()> {
        if !cases.iter().any(|case| self.covers(&case.place)) {
            let at = if self.at.is_some() { "; --list: what follows the @" } else { "" };
            bail!("{flag} {}: there is no such cell here (known: {}{at})", self.text, known(cases));
        }
        Ok(())
    }

    /// The more it says, the more it holds.
    fn precision(&self) -> (bool, bool) {
        (self.at.is_some(), self.ports.is_some())
    }
}

/// Everything that `--on` says.
pub struct Given<'a> {
    study: &'a Study,
    all: &'a [On],
}

impl<'a> Given<'a> {
    /// Fails on a cell that no case is at, on one that is named twice, and on a line whose rate nobody sets.
    pub fn new(study: &'a Study, cases: &[PlannedCase], all: &'a [On], dialer: &Dialer) -> Result<Given<'a>> {
        let given = Given { study, all };
        for (index, on) in given.all.iter().enumerate() {
            on.name.check("--on", cases)?;
            if given.all[..index].iter().any(|other| other.name.text == on.name.text) {
                bail!("--on {}: given twice; several URLs are separated by commas", on.name.text);
            }
            given.rate_is_set(on, cases, dialer)?;
        }
        Ok(given)
    }

    /// A network port of a device server leaves the rate of its line as it is set there, so one URL cannot stand for
    /// several rates.
    fn rate_is_set(&self, on: &On, cases: &[PlannedCase], dialer: &Dialer) -> Result<()> {
        let covered = || cases.iter().map(|case| &case.place).filter(|place| on.name.covers(place));
        let first = covered().next().map(|place| place.at);
        if self.study.is_of_sizes() || covered().all(|place| Some(place.at) == first) {
            return Ok(());
        }
        let url = &on.urls[0];
        if self.study.is_of_delays() {
            let (name, delay) = (&on.name.text, first.unwrap_or_default());
            bail!("--on {name}: one link has one delay: name it, like {name}@{delay}={url}");
        }
        if dialer.open(url)?.port().is_none() {
            let (name, rate) = (&on.name.text, first.unwrap_or_default());
            bail!(
                "--on {name}: {url} cannot set the rate of the line behind it: set the line there, and name its rate, \
                 like {name}@{rate}={url}"
            );
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn find(&self, place: &Place) -> Option<&On> {
        self.all.iter().filter(|on| on.name.covers(place)).max_by_key(|on| on.name.precision())
    }

    /// Where the ports of a place are, with what the study sets on their lines.
    pub fn endpoints(&self, place: &Place) -> Result<Option<Vec<Endpoint>>> {
        let (Some(on), Some(cell)) = (self.find(place), self.study.cell(&place.cell)) else {
            return Ok(None);
        };
        let ports = place.ports as usize;
        let urls: Vec<Endpoint> = match on.urls.as_slice() {
            [first] => (0..place.ports).map(|port| first.counted_up(port)).collect::<Result<_, _>>()?,
            urls if urls.len() >= ports => urls[..ports].to_vec(),
            urls => bail!(
                "--on {}: {} URLs for {ports} ports: give one to count up from, or all",
                on.name.text,
                urls.len()
            ),
        };
        let endpoints = urls.iter().map(|url| cell.on_line(url, place.at)).collect::<Result<_, _>>();
        Ok(Some(endpoints.map_err(anyhow::Error::msg)?))
    }
}

/// The cells that these cases are at.
fn known(cases: &[PlannedCase]) -> String {
    let mut names: Vec<String> = Vec::new();
    for case in cases {
        let name = format!("{}/{}", case.place.cell, case.place.ports);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}
