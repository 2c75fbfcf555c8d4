//! How often the tests of the statistics simulate, here and where the statistics are used.

/// Set for the build: all of the simulations that a limit was set with, instead of the part that every check runs.
const ALL: Option<&str> = option_env!("LINKGAUGE_TEST_ALL_SIMULATIONS");

/// The number of simulations: a fifth of `all`, or `all` if the environment asks for them.
pub fn simulations(all: u64) -> u64 {
    if ALL.is_some() { all } else { all / 5 }
}
