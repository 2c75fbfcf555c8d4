//! `linkgauge responsiveness https://…`: over HTTP/2 instead of a session.

use std::time::Duration;

use anyhow::{Result, bail};
use linkgauge::endpoint::Endpoint;
use linkgauge::http2::{self, HttpMeasurement, Trust};
use linkgauge::path::PathPlan;
use linkgauge::plan::{CaseSpec, Direction, OneOrMany, ProbeSpec};
use linkgauge::units;

use super::{IDLE_TIME, MAX_CONNECTIONS, PROBES_PER_SECOND};
use crate::cmd::measure::{PlanFlags, run_measurements, start_path};
use crate::cmd::status::Status;

/// Longest time of the load.
const LOAD_TIME: Duration = Duration::from_secs(20);

/// For each reply.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Measures the cases of a specification, all of `https` URLs.
pub fn run(spec: &CaseSpec, flags: &PlanFlags, path: Option<PathPlan>) -> Result<Status> {
    let many = |text: &str| anyhow::anyhow!("{text}: give one for https");
    let connections = match &spec.parallel {
        None => MAX_CONNECTIONS,
        Some(OneOrMany::One(count)) => *count,
        Some(OneOrMany::Many(counts)) => match counts.as_slice() {
            [count] => *count,
            _ => return Err(many("--parallel")),
        },
    };
    let directions = spec.direction.as_ref().map_or(vec![Direction::Send], |all| all.as_slice().to_vec());
    let urls = spec.url.as_ref().map_or(&[][..], |urls| urls.as_slice());
    let mut plans = Vec::new();
    for url in urls {
        for &direction in &directions {
            if direction == Direction::Loop {
                bail!("--direction loop needs an echo, which an https server is not: use upload or download");
            }
            plans.push(HttpMeasurement {
                url: url_without_options(url),
                trust: trust(url)?,
                direction,
                connections,
                time: spec.time.map_or(LOAD_TIME, |time| time.0),
                idle: spec.idle.map_or(IDLE_TIME, |time| time.0),
                probes_per_second: match spec.probe {
                    Some(ProbeSpec::Rate(rate)) => rate.0,
                    _ => PROBES_PER_SECOND,
                },
                timeout: spec.timeout.map_or(TIMEOUT, |time| time.0),
                unsent_bytes: unsent_bytes(url)?,
            });
        }
    }
    let beside = start_path(path)?;
    let measured = run_measurements(flags, |context| match beside {
        Some(beside) => beside.run(context, |context| http2::run(&plans, context)),
        None => http2::run(&plans, context),
    })?;
    Ok(measured.1)
}

fn url_without_options(url: &Endpoint) -> String {
    format!("https://{}", url.address())
}

/// The option for bytes that may wait unsent, as of TCP.
const UNSENT_OPTION: &str = "notsent_lowat";

/// `?notsent_lowat=BYTES`.
fn unsent_bytes(url: &Endpoint) -> Result<u32> {
    let parse = |text: &str| units::parse_bytes(text).ok().and_then(|bytes| u32::try_from(bytes).ok());
    let bytes = url.parse_option(UNSENT_OPTION, "a size below 4Gi bytes, like 64Ki", parse)?;
    Ok(bytes.unwrap_or(http2::UNSENT_BYTES))
}

/// `?ca=FILE` or `?insecure=1`.
fn trust(url: &Endpoint) -> Result<Trust> {
    for (name, _) in url.options() {
        if !["ca", "insecure", UNSENT_OPTION].contains(&name) {
            bail!("{url}: https has no option {name}: use ca=FILE, insecure=1 or {UNSENT_OPTION}=BYTES");
        }
    }
    Ok(match (url.option("ca"), url.option("insecure")) {
        (Some(_), Some(_)) => bail!("{url}: use ca or insecure, not both"),
        (Some(file), None) => Trust::File(file.into()),
        (None, Some("1")) => Trust::Anything,
        (None, None | Some("0")) => Trust::System,
        (None, Some(other)) => bail!("{url}: insecure={other}: use 1 or 0"),
    })
}
