//! The contract of links on this host: a test of each trial.

use crate::trials;

macro_rules! tests {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                trials::$name();
            }
        )*
    };
}

trials::for_each!(tests);
