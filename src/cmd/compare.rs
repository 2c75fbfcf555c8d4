//! `linkgauge compare`, and how a comparison is printed.

use anyhow::Result;
use clap::Args;
use linkgauge::metric::Metric;
use linkgauge::report::{plain, printable, shorten, wrap};
use linkgauge::units::{print_bytes, share};
use linkgauge::verdict::{self, Compared, Comparison, Name, Options, Verdict};

use super::Status;
use super::output::{put, speaks_unicode};
use super::store::{RUN_HELP, StoreFlag, runs};

/// Compare two runs, or two sets of them: worse, better, or no difference shown
///
/// What is compared are the figures of repetitions (--repeat 10, or several runs as a set), by their ranks
/// (Mann-Whitney), with the shift between them (Hodges-Lehmann). Exit status 1 when anything is worse. See
/// docs/compare.md.
#[derive(Args)]
pub struct Flags {
    #[arg(value_name = "A", help = format!("What it was. {RUN_HELP}"))]
    a: String,
    /// What it is now, named in the same way
    #[arg(value_name = "B")]
    b: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    how: CompareFlags,
    #[command(flatten)]
    store: StoreFlag,
}

/// How strictly, and how it is printed.
#[derive(Args)]
#[command(next_help_heading = "Comparison")]
pub struct CompareFlags {
    /// Differences up to this share of A's median do not matter
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = margin)]
    margin: f64,
    /// Compare these [list; default: rate of a transfer, p50 of a latency]
    #[arg(long, value_name = "METRIC", value_delimiter = ',')]
    metric: Vec<Metric>,
    /// Compare what was measured in different ways
    #[arg(long)]
    force: bool,
}

fn margin(text: &str) -> Result<f64, String> {
    share(text).map_err(|error| error.to_string())
}

pub fn run(flags: Flags) -> Result<Status> {
    let (a, b) = (runs(&flags.a, &flags.store)?, runs(&flags.b, &flags.store)?);
    flags.how.compare(&a, &b, flags.json)
}

impl CompareFlags {
    /// Compares, prints, and says how that ends.
    pub fn compare(
        &self,
        a: &[linkgauge::run::Run],
        b: &[linkgauge::run::Run],
        json: bool,
    ) -> Result<Status> {
        let options = Options { margin: self.margin, metrics: self.metric.clone(), force: self.force };
        let comparison = verdict::compare(a, b, &options)?;
        if json {
            let json = serde_json::to_string_pretty(&comparison)?;
            put(|out| writeln!(out, "{json}"))?;
        } else {
            let text = text(&comparison);
            put(|out| write!(out, "{}", if speaks_unicode() { text } else { plain(&text) }))?;
        }
        Ok(if comparison.any(Verdict::Worse) { Status::Failed } else { Status::Complete })
    }
}

fn text(comparison: &Comparison) -> String {
    let set = |ids: &[String]| match ids {
        [id] => printable(id),
        ids => format!("{} runs, {} to {}", ids.len(), printable(&ids[0]), printable(&ids[ids.len() - 1])),
    };
    let mut text = format!("A: {}\nB: {}\n", set(&comparison.a), set(&comparison.b));
    for compared in &comparison.cases {
        text += &one(compared);
    }
    for (side, names) in [("A", &comparison.only_a), ("B", &comparison.only_b)] {
        for case in names {
            text += &format!("\nonly in {side}: {}\n", name(case));
        }
    }
    let few = comparison.cases.iter().any(|compared| compared.verdict == Verdict::TooFew);
    let margin = (comparison.margin * 1e3).round() / 10.0;
    let legend = format!(
        "worse and better: p below {} and a shift of more than {margin} % of A's median; the shift is between the \
         repetitions, with its 95 % interval.",
        verdict::SIGNIFICANT
    );
    text += &format!("\n{}", wrap(&legend, 80, "  ", "  "));
    if few {
        let fewest = format!(
            "too few: a verdict needs {} repetitions a side; --repeat 10 gives a good one.",
            verdict::FEWEST
        );
        text += &wrap(&fewest, 80, "  ", "  ");
    }
    for warning in &comparison.warnings {
        text += &wrap(&printable(&warning.text), 80, &format!("\nwarning[{}]: ", warning.code), "    ");
        text += &wrap(&warning.remedy, 80, "  try: ", "    ");
    }
    text
}

fn name(case: &Name) -> String {
    let endpoint = shorten(&printable(&case.endpoint), 44);
    let particulars = particulars(case.message_bytes, case.ports, case.parallel, &case.settings);
    format!("{endpoint}, {} {}{particulars}", printable(&case.workload), case.direction.name())
}

/// What tells a case from others at its endpoint: `, 14 B, 4 ports, spin`.
pub fn particulars(message_bytes: u32, ports: u32, parallel: u32, settings: &str) -> String {
    let mut words = Vec::new();
    // An imported file need not tell the size.
    if message_bytes > 0 {
        words.push(print_bytes(message_bytes.into()));
    }
    let several = [(ports, "ports"), (parallel, "connections")].into_iter().filter(|(number, _)| *number > 1);
    words.extend(several.map(|(number, what)| format!("{number} {what}")));
    words.push(printable(settings));
    words.iter().filter(|word| !word.is_empty()).map(|word| format!(", {word}")).collect()
}

fn one(compared: &Compared) -> String {
    let print = |value: Option<f64>| match (value, compared.unit) {
        (Some(value), Some(unit)) => unit.print(value),
        _ => "–".to_owned(),
    };
    let mut text = format!("\n{}\n", name(&compared.case));
    if let Some(other) = &compared.case_b {
        text += &format!("B: {}\n", shorten(&printable(&other.endpoint), 76));
    }
    let (a, b) = (&compared.a, &compared.b);
    text += &format!(
        "  {:8} A {} ({})   B {} ({})\n",
        compared.metric,
        print(a.median),
        a.repetitions,
        print(b.median),
        b.repetitions
    );
    let percent = |share: f64| format!("{:+.1} %", share * 100.0);
    let mut facts = Vec::new();
    if let (Some(shift), Some(median)) = (compared.shift, a.median) {
        facts.push(match compared.relative_shift {
            Some(share) => format!("shift {}", percent(share)),
            None => format!("shift {}", print(Some(shift))),
        });
        if let Some(interval) = compared.shift_interval.filter(|_| compared.relative_shift.is_some()) {
            facts.push(format!("{} to {}", percent(interval.low / median), percent(interval.high / median)));
        }
    }
    facts.extend(compared.p.map(|p| if p < 0.001 { "p < 0.001".to_owned() } else { format!("p = {p:.3}") }));
    text +=
        &format!("  {:8} {}\n", "", [&[compared.verdict.words().to_owned()][..], &facts].concat().join(", "));
    text
}
