//! The part of this program that guests run: the contract of the links that their kernel has and this one may lack.

use crate::trials::{self, IN_THE_GUEST};

macro_rules! list {
    ($($name:ident)*) => {
        &[$((stringify!($name), trials::$name as fn())),*]
    };
}

const TRIALS: &[(&str, fn())] = trials::for_each!(list);

/// Does nothing, unless it is in a guest.
#[test]
fn contract() {
    if std::env::var_os(IN_THE_GUEST).is_none() {
        return;
    }
    for (name, trial) in TRIALS {
        println!("{name}");
        trial();
    }
    println!("all {} trials passed", TRIALS.len());
}
