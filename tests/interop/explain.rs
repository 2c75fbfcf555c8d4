//! `explain URL` on device servers of other people.

use std::time::Duration;

use linkgauge::clock::Clock;
use linkgauge::explain::live::{CauseVerdict, LiveOptions, explain_live};
use linkgauge::lab::uart::{LabUarts, UartOptions};
use linkgauge::link::Dialer;

use crate::client::free_port;
use crate::ser2net::Ser2net;

#[test]
fn ser2net_with_its_default_settings_waits_for_more_characters() {
    let uarts = LabUarts::start(&UartOptions { ports: 1, ..UartOptions::default() }).unwrap();
    let ser2net = Ser2net::start("tcp", &uarts.paths()[0].display().to_string(), free_port());
    let mut live = LiveOptions::new(format!("tcp://127.0.0.1:{}?baud=9600", ser2net.port).parse().unwrap());
    "echo".clone_into(&mut live.protocol);
    live.budget = Duration::from_secs(10);
    let explanation = explain_live(&live, &Dialer::new(Clock::System), &|_, _| {}).unwrap();
    let cause = explanation.causes.iter().find(|cause| cause.id == "device_server_packing");
    let cause = cause.unwrap_or_else(|| panic!("{explanation:#?}"));
    assert_eq!(cause.verdict, CauseVerdict::Seen, "{explanation:#?}");
}
