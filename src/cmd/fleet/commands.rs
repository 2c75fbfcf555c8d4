//! The subcommands of `linkgauge fleet` that end at once.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use linkgauge::clock::wall_clock_date;
use linkgauge::fleet::{
    FleetFile, FleetStatus, Hub, HubError, HubOptions, InitialConnect, RoundTimes, SecretKey, SignedList,
    apply, issue_order, mesh_of_runs, plan_round, publish_list, read_status, server_account,
};
use linkgauge::report::printable;
use linkgauge::run::Run;
use linkgauge::store::Filter;
use linkgauge::system::{Ownership, create_private_file, effective_user};
use linkgauge::units::{format_duration, format_plural};

use super::{ApplyFlags, HubFlags, KeyFlags, ReportFlags, RunFlags};
use crate::cmd::input::{read_text, read_text_and_facts};
use crate::cmd::measure::run_status;
use crate::cmd::output::{RunText, print_message, print_text};
use crate::cmd::status::Status;

/// How long a signed list is valid.
const LIST_LIFETIME: Duration = Duration::from_secs(30 * 86_400);

/// Time from the command to the first test.
const LEAD_TIME: Duration = Duration::from_secs(3);

/// The tag of all collected runs.
pub const TAG: &str = "fleet";

pub fn make_key(flags: &KeyFlags) -> Result<Status> {
    let key = SecretKey::random();
    let path = flags.file.display();
    let made = create_private_file(&flags.file);
    let mut file =
        made.with_context(|| format!("{path}: cannot be created. An existing key is never replaced"))?;
    writeln!(file, "{}", key.text()).with_context(|| format!("{path}: cannot be written"))?;
    print_text(|stdout| writeln!(stdout, "{}", key.public_key()))?;
    Ok(Status::Complete)
}

/// A file that only its owner may read: this user, or root.
pub fn read_secret(file: &Path) -> Result<String> {
    let path = file.display();
    let (text, facts) = read_text_and_facts(file, "the secret")?;
    let facts = Ownership::of(&facts);
    if ![0, effective_user()].contains(&facts.user) {
        bail!("{path}: this secret belongs to another user, who knows it. Make one that is your own");
    }
    if !is_private(facts.mode, facts.group) {
        bail!("{path}: other users can read this secret. Try: chmod 600 {path}");
    }
    match text.trim_end() {
        "" => bail!("{path}: the secret is empty"),
        text => Ok(text.to_owned()),
    }
}

/// Whether only the owner, and the group of root, can read a file. systemd gives a credential to root's group, and an access control
/// list, whose mask stands in the bits of the group, gives it to the service.
fn is_private(mode: u32, group: u32) -> bool {
    mode & 0o007 == 0 && (mode & 0o070 == 0 || (group == 0 && mode & 0o030 == 0))
}

/// The key of a user of the hub.
pub fn read_seed(file: &Path) -> Result<SecretKey> {
    SecretKey::read(&read_secret(file)?).with_context(|| file.display().to_string())
}

fn read_file(file: &Path) -> Result<FleetFile> {
    let name = file.display();
    let text = read_text(file, "the file")?;
    let mut fleet = FleetFile::from_toml(&text).with_context(|| name.to_string())?;
    // A path in a file is relative to it.
    fleet.ca = fleet.ca.map(|ca| file.parent().unwrap_or(Path::new("")).join(ca));
    Ok(fleet)
}

/// What every command at the hub begins with.
pub struct Operator {
    pub fleet: FleetFile,
    pub key: SecretKey,
    pub hub: Hub,
}

impl Operator {
    pub fn connect(flags: &HubFlags) -> Result<Operator> {
        let fleet = read_file(&flags.file)?;
        let hub = Hub::connect(&HubOptions {
            url: fleet.hub.clone(),
            seed: read_seed(&flags.seed)?,
            ca: fleet.ca.clone(),
            name: "operator".to_owned(),
            initial: InitialConnect::Required,
        })?;
        hub.check_server()?;
        Ok(Operator { fleet, key: read_seed(&flags.seed)?, hub })
    }

    /// Signs the list again, so that it is valid for a full period.
    fn sign_list(&self) -> Result<(), HubError> {
        let issued_ms = now_ms();
        let list = SignedList {
            issued_ms,
            not_after_ms: issued_ms + LIST_LIFETIME.as_millis() as u64,
            hosts: self.fleet.hosts.clone(),
        };
        publish_list(&self.hub, &list, &self.key)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.fleet.list.hosts.iter().map(|host| host.name.as_str())
    }
}

fn now_ms() -> u64 {
    u64::try_from(wall_clock_date().as_millisecond()).unwrap_or(0)
}

pub fn apply_file(flags: &ApplyFlags) -> Result<Status> {
    if flags.account {
        print_account(&read_file(&flags.hub.file)?, &read_seed(&flags.hub.seed)?)?;
        return Ok(Status::Complete);
    }
    let operator = Operator::connect(&flags.hub)?;
    apply(&operator.hub, operator.names())?;
    operator.sign_list()?;
    let hosts = format_plural(operator.fleet.list.hosts.len() as u64, "host");
    let days = LIST_LIFETIME.as_secs() / 86_400;
    print_message(format_args!(
        "{}: streams are defined; list {} with {hosts} is signed for {days} days",
        operator.fleet.hub,
        operator.fleet.list_id()
    ));
    print_account(&operator.fleet, &operator.key)?;
    Ok(Status::Complete)
}

fn print_account(fleet: &FleetFile, key: &SecretKey) -> Result<()> {
    let hosts = fleet.list.hosts.iter().map(|host| host.name.as_str());
    let account = server_account(&key.public_key(), hosts.zip(fleet.keys.iter().map(String::as_str)));
    print_text(|stdout| write!(stdout, "{account}"))
}

pub fn order_rounds(flags: &RunFlags) -> Result<Status> {
    let operator = Operator::connect(&flags.hub)?;
    let (list, id) = (&operator.fleet.list, operator.fleet.list_id());
    let every_ms = flags.every.0.as_millis() as u64;
    let start_ms = now_ms() + LEAD_TIME.as_millis() as u64;
    operator.sign_list()?;
    for round in 0..u64::from(flags.rounds) {
        let name = format!("{:08x}", fastrand::u32(..));
        let times = RoundTimes { start_ms: start_ms + round * every_ms, validity: flags.valid.0 };
        let (orders, end_ms) = plan_round(list, &id, &name, times);
        let length = Duration::from_millis(end_ms - times.start_ms);
        if flags.rounds > 1 && length > flags.every.0 {
            let [length, every] = [length, flags.every.0].map(format_duration);
            bail!("a round takes {length}, but the next one begins after {every}. Use a longer --every");
        }
        for order in &orders {
            issue_order(&operator.hub, order, &operator.key)?;
        }
        let tests = format_plural(orders.len() as u64, "test");
        let (begin, length) = (clock_text(times.start_ms), format_duration(length));
        print_text(|stdout| writeln!(stdout, "round {name}: {tests} from {begin} in about {length}"))?;
    }
    Ok(Status::Complete)
}

/// `2026-11-23 07:30:05 UTC`.
fn clock_text(unix_ms: u64) -> String {
    let time = jiff::Timestamp::from_millisecond(unix_ms as i64).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

pub fn print_status(flags: &HubFlags) -> Result<Status> {
    let operator = Operator::connect(flags)?;
    let status = read_status(&operator.hub, operator.names())?;
    let names: Vec<&str> = operator.names().collect();
    print_text(|stdout| write_status(stdout, &names, &status))?;
    let now = wall_clock_date();
    let all_present = (0..names.len()).all(|host| status.is_present(host, now));
    Ok(if all_present { Status::Complete } else { Status::Failed })
}

fn write_status(stdout: &mut dyn Write, names: &[&str], status: &FleetStatus) -> std::io::Result<()> {
    let now = wall_clock_date();
    let present = (0..names.len()).filter(|host| status.is_present(*host, now)).count();
    let states = || status.agents.iter().flatten().map(|(_, state)| state);
    let troubles = [
        (states().map(|state| state.refused).sum::<u64>(), "order", "refused"),
        (states().map(|state| state.failed).sum(), "test", "failed"),
    ];
    let troubles = troubles.iter().filter(|(count, ..)| *count > 0);
    let troubles: String =
        troubles.map(|(count, what, how)| format!("; {} {how}", format_plural(*count, what))).collect();
    writeln!(
        stdout,
        "{present} of {} connected; {} left; {} on the hub, {} not collected{troubles}",
        format_plural(names.len() as u64, "agent"),
        format_plural(status.orders, "order"),
        format_plural(status.results, "result"),
        status.uncollected
    )?;
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(4);
    writeln!(
        stdout,
        "  {:width$}  {:>9}  {:>7}  {:>7}  {:>6}  program",
        "host", "seen", "waiting", "refused", "failed"
    )?;
    for (name, agent) in names.iter().zip(&status.agents) {
        let name = printable(name);
        match agent {
            None => writeln!(stdout, "  {name:width$}  {:>9}", "never")?,
            Some((seen, state)) => {
                let ago = Duration::from_secs(now.duration_since(*seen).as_secs().max(0) as u64);
                let note = if state.list.is_some() { "" } else { ", without a valid list" };
                writeln!(
                    stdout,
                    "  {name:width$}  {:>9}  {:>7}  {:>7}  {:>6}  {}{note}",
                    format!("{} ago", format_duration(ago)),
                    state.pending,
                    state.refused,
                    state.failed,
                    printable(&state.tool)
                )?;
                if let Some(why) = &state.last_failure {
                    writeln!(stdout, "  {:width$}  last failure: {}", "", printable(why))?;
                }
            }
        }
    }
    for lease in &status.leases {
        writeln!(stdout, "  {} is held by {}", printable(&lease.subject), printable(&lease.holder))?;
    }
    Ok(())
}

pub fn report(flags: &ReportFlags) -> Result<Status> {
    flags.output.check_writable(0)?;
    let fleet = read_file(&flags.file)?;
    let store = flags.store.open()?;
    let tag = flags.round.as_ref().map_or_else(|| TAG.to_owned(), |round| format!("round-{round}"));
    let ids = store.ids(&Filter { tag: Some(tag.clone()), ..Filter::default() })?;
    if ids.is_empty() {
        bail!("no result with the tag '{tag}' was collected. Try: linkgauge fleet collect");
    }
    let runs: Vec<Run> = ids.iter().map(|id| store.load(id)).collect::<Result<_, _>>()?;
    let run = mesh_of_runs(fleet.list, runs);
    flags.output.write(&run, RunText::Printed)?;
    Ok(run_status(&run))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_and_the_group_of_root_may_read_a_key() {
        for (mode, group, private) in [
            (0o600, 1000, true),
            (0o400, 0, true),
            (0o440, 0, true),
            (0o440, 1000, false),
            (0o460, 0, false),
            (0o444, 0, false),
            (0o602, 1000, false),
        ] {
            assert_eq!(is_private(mode, group), private, "{mode:o} {group}");
        }
    }
}
