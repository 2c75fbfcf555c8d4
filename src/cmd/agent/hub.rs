//! `linkgauge agent --hub`: until Ctrl-C or SIGTERM, which is how a service ends.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::fleet::{
    AgentNotice, AgentPolicy, HubAgentOptions, HubOptions, InitialConnect, run_hub_agent, subject_part,
};
use linkgauge::host;
use linkgauge::link::{Dialer, REPORT_TIME};

use super::AgentHubFlags;
use crate::cmd::fleet::{read_secret, read_seed};
use crate::cmd::input::read_text;
use crate::cmd::output::print_message;
use crate::cmd::signals::interrupt_flag;
use crate::cmd::status::Status;
use crate::cmd::store::{create_private_folder, data_folder};

pub fn run(flags: AgentHubFlags) -> Result<Status> {
    let required = "clap requires these flags";
    let (url, name) = (flags.hub.context(required)?, flags.name.context(required)?);
    let (seed, limits) = (flags.seed.context(required)?, flags.limits.context(required)?);
    let text = read_text(&limits, "the file")?;
    let policy = AgentPolicy::from_toml(&text).with_context(|| limits.display().to_string())?;
    // A path in a file is relative to it.
    let key_file = limits.parent().unwrap_or(Path::new("")).join(&policy.fleet_key_file);
    let options = HubAgentOptions {
        hub: HubOptions {
            url: url.clone(),
            seed: read_seed(&seed)?,
            ca: flags.ca,
            name: subject_part(&name),
            initial: InitialConnect::Retried,
        },
        outbox: outbox_file(flags.outbox, &name)?,
        fleet_key: read_secret(&key_file)?.into_bytes(),
        policy,
        environment: host::facts(),
        name,
    };
    let dialer = Dialer {
        cancel: interrupt_flag()?,
        report_time: REPORT_TIME,
        ..Registry::standard().dialer(Clock::System)
    };
    let print = |notice: &AgentNotice| print_message(format_args!("{url}: {notice}"));
    run_hub_agent(options, &dialer, &print)?;
    Ok(Status::Complete)
}

fn outbox_file(given: Option<PathBuf>, name: &str) -> Result<PathBuf> {
    if let Some(path) = given {
        return Ok(path);
    }
    let folder = data_folder()?;
    let folder = folder.ok_or_else(|| anyhow!("the data directory is unknown. Use --outbox FILE"))?;
    create_private_folder(&folder)?;
    Ok(folder.join(format!("agent-{}.sqlite", subject_part(name))))
}
