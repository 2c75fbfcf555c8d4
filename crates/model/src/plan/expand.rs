//! The cases that a case as written stands for: every combination of the values in its lists, as long as there are not too many.

use super::{Case, CaseSpec, CaseSpecError, Direction, OneOrMany, parse_message_bytes};
use crate::endpoint::Endpoint;

/// Maximum number of ports or connections; more are a typing error.
pub(super) const MAX_PARALLEL: u32 = 16_384;

/// Maximum number of cases of a plan; more are a typing error.
const MAX_CASES: usize = 10_000;

/// Maximum number of endpoints of all cases together; more are a typing error.
const MAX_ENDPOINTS: usize = 65_536;

/// Maximum number of connections of a case, all ports together; more are a typing error.
const MAX_CONNECTIONS: usize = 65_536;

/// Maximum number of values of the lists that every case repeats.
const MAX_LATE_LIMITS: usize = 100;
const MAX_THRESHOLDS: usize = 100;

/// Bytes of the options of a protocol, which every case repeats.
const MAX_OPTION_BYTES: usize = 16 * 1024;

/// Whether a plan may have all these cases.
pub(super) fn may_run_together(cases: &[Case]) -> bool {
    let endpoints: usize = cases.iter().map(|case| case.endpoints.len()).sum();
    cases.len() <= MAX_CASES && endpoints <= MAX_ENDPOINTS
}

impl CaseSpec {
    /// Expands to cases: every URL × ports × direction × connections × size, sizes innermost.
    ///
    /// # Errors
    ///
    /// Fails if a required field is missing, if fields contradict each other, or if they are too many.
    pub fn expand(&self) -> Result<Vec<Case>, CaseSpecError> {
        let urls = self.url.as_ref().map_or(&[][..], OneOrMany::as_slice);
        if urls.is_empty() {
            return Err(CaseSpecError::new("url", "a case has no endpoint: add a url"));
        }
        let groups: Vec<&[Endpoint]> =
            if self.together == Some(true) { vec![urls] } else { urls.chunks(1).collect() };
        let workload = self.workload.clone().ok_or_else(|| {
            CaseSpecError::new("workload", "a case has no workload: add workload = \"latency\" or another")
        })?;
        self.check_amounts(urls.len(), groups.len())?;
        let directions: Vec<Option<Direction>> = match &self.direction {
            None => vec![None],
            Some(some) => some.as_slice().iter().copied().map(Some).collect(),
        };
        let sizes = match &self.size {
            None => vec![None],
            Some(some) => some
                .as_slice()
                .iter()
                .map(|size| parse_message_bytes(size).map(Some))
                .collect::<Result<_, _>>()?,
        };
        let mut cases = Vec::new();
        for group in groups {
            for &ports in values(self.ports.as_ref()) {
                let endpoints = endpoints_of(group, ports)?;
                for &direction in &directions {
                    for &parallel in values(self.parallel.as_ref()) {
                        for &size in &sizes {
                            cases.push(self.build_case(&endpoints, &workload, direction, parallel, size)?);
                        }
                    }
                }
            }
        }
        Ok(cases)
    }

    /// Checks how many cases there would be before any is made.
    fn check_amounts(&self, urls: usize, groups: usize) -> Result<(), CaseSpecError> {
        let (ports, parallel) = (values(self.ports.as_ref()), values(self.parallel.as_ref()));
        ports.iter().try_for_each(|&ports| check_parallel("ports", ports))?;
        parallel.iter().try_for_each(|&parallel| check_parallel("parallel", parallel))?;
        let lists = [
            ("ports", ports.len()),
            ("parallel", parallel.len()),
            ("direction", self.direction.as_ref().map_or(1, |list| list.as_slice().len())),
            ("size", self.size.as_ref().map_or(1, |list| list.as_slice().len())),
        ];
        if let Some((field, _)) = lists.iter().find(|(_, length)| *length == 0) {
            return Err(CaseSpecError::new(
                field,
                format!("{field} is an empty list: name a value, or leave it out"),
            ));
        }
        let directions = self.direction.as_ref().map_or(1, |list| list.as_slice().len());
        let sizes = self.size.as_ref().map_or(1, |list| list.as_slice().len());
        let per_port = directions.saturating_mul(parallel.len()).saturating_mul(sizes);
        let cases = groups.saturating_mul(ports.len()).saturating_mul(per_port);
        if cases > MAX_CASES {
            let what = format!("{cases} combinations of the lists: use at most {MAX_CASES} cases");
            return Err(CaseSpecError::new("size", what));
        }
        let all_ports: usize = ports.iter().map(|&ports| ports as usize).sum();
        let endpoints = urls.saturating_mul(all_ports).saturating_mul(per_port);
        if endpoints > MAX_ENDPOINTS {
            let what = format!("{endpoints} endpoints of all cases: use at most {MAX_ENDPOINTS}");
            return Err(CaseSpecError::new("ports", what));
        }
        let most = |list: &[u32]| list.iter().copied().max().unwrap_or(0) as usize;
        let connections = (urls / groups).saturating_mul(most(ports)).saturating_mul(most(parallel));
        if connections > MAX_CONNECTIONS {
            let what = format!("{connections} connections in one case: use at most {MAX_CONNECTIONS}");
            return Err(CaseSpecError::new("parallel", what));
        }
        let (late, thresholds) = (list_length(self.late.as_ref()), list_length(self.thresholds.as_ref()));
        if late > MAX_LATE_LIMITS || thresholds > MAX_THRESHOLDS {
            let what =
                format!("a case has at most {MAX_LATE_LIMITS} late limits and {MAX_THRESHOLDS} thresholds");
            return Err(CaseSpecError::new("late", what));
        }
        let option_bytes: usize = self.protocol_options.values().map(String::len).sum();
        if option_bytes > MAX_OPTION_BYTES {
            let what = format!("{option_bytes} bytes of options: use at most {MAX_OPTION_BYTES}");
            return Err(CaseSpecError::new("protocol_options", what));
        }
        Ok(())
    }
}

/// The values of a list of numbers that is 1 where it is not given.
fn values(list: Option<&OneOrMany<u32>>) -> &[u32] {
    list.map_or(&[1][..], OneOrMany::as_slice)
}

fn list_length<T>(list: Option<&Vec<T>>) -> usize {
    list.map_or(0, Vec::len)
}

/// The endpoints of one case: each URL, and as many more ports, counted up.
fn endpoints_of(urls: &[Endpoint], ports: u32) -> Result<Vec<Endpoint>, CaseSpecError> {
    let numbered = urls.iter().flat_map(|url| (0..ports).map(move |offset| url.with_number_offset(offset)));
    numbered.collect::<Result<_, _>>().map_err(|error| CaseSpecError::new("ports", error.to_string()))
}

fn check_parallel(field: &'static str, number: u32) -> Result<(), CaseSpecError> {
    if (1..=MAX_PARALLEL).contains(&number) {
        return Ok(());
    }
    Err(CaseSpecError::new(field, format!("{field} = {number}: use 1 to {MAX_PARALLEL}")))
}
