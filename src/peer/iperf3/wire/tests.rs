//! The words of iperf3 against what was heard of iperf3 3.12.
