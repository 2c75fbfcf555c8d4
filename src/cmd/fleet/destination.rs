//! Where a collector saves results: the store, or PostgreSQL.

use anyhow::{Result, bail};
use linkgauge::fleet::{CollectedTest, Database, DatabaseOptions, Receipt, RejectedResult, TestOutcome};
use linkgauge::report::printable;
use linkgauge::store::{SaveOutcome, Store, StoreError};

use super::CollectFlags;
use super::commands::{TAG, read_secret};
use crate::cmd::output::print_message;
use crate::cmd::signals::process_interrupt_flag;

/// The password of the database, as for the programs of PostgreSQL.
const PASSWORD_VARIABLE: &str = "PGPASSWORD";

pub enum Destination {
    Store(Store),
    Database(Box<Database>),
}

impl Destination {
    pub fn open(flags: &CollectFlags) -> Result<Destination> {
        let Some(url) = &flags.database else {
            return match flags.save.open()? {
                Some(store) => Ok(Destination::Store(store)),
                None => bail!(
                    "results are confirmed when they are saved, and there is no store. Use --store FILE or --database URL"
                ),
            };
        };
        let password = match &flags.password_file {
            Some(file) => Some(read_secret(file)?),
            None => std::env::var(PASSWORD_VARIABLE).ok().filter(|password| !password.is_empty()),
        };
        let stop = process_interrupt_flag();
        let database = Database::open(DatabaseOptions { url: url.clone(), password, stop })?;
        Ok(Destination::Database(Box::new(database)))
    }

    /// Most results that are saved at once. The store makes a transaction for each.
    pub fn batch(&self) -> usize {
        match self {
            Destination::Store(_) => 20,
            Destination::Database(_) => 500,
        }
    }

    /// Whether a failure may end by itself, so that saving is tried again.
    pub fn is_remote(&self) -> bool {
        matches!(self, Destination::Database(_))
    }

    /// Saves these results, and returns what became of each.
    pub fn save(&mut self, tests: &[&CollectedTest], tags: &[String]) -> Result<Vec<Receipt>> {
        match self {
            Destination::Store(store) => tests.iter().map(|test| save_in_store(store, test, tags)).collect(),
            Destination::Database(database) => {
                Ok(database.save(tests, tags)?.into_iter().map(receipt).collect())
            }
        }
    }
}

fn save_in_store(store: &mut Store, test: &CollectedTest, tags: &[String]) -> Result<Receipt> {
    let TestOutcome::Measured(run) = &test.outcome else { return Ok(Receipt::Failed) };
    let outcome = match store.save(run) {
        Err(StoreError::ConflictingRun(_)) => return Ok(Receipt::Conflicting),
        saved => saved?,
    };
    // Also of a duplicate: the collector that saved it may have ended before this.
    let mut names = vec![TAG.to_owned(), format!("round-{}", test.round)];
    names.extend(tags.iter().cloned());
    store.tag(&run.id, &names)?;
    Ok(match outcome {
        SaveOutcome::Saved => Receipt::Saved,
        SaveOutcome::AlreadySaved => Receipt::Duplicate,
    })
}

fn receipt(saved: Result<Receipt, RejectedResult>) -> Receipt {
    saved.unwrap_or_else(|refusal| {
        print_message(format_args!("warning: a result was dropped: {}", printable(&refusal.to_string())));
        Receipt::Refused
    })
}
