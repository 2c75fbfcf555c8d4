//! `explain URL` on device servers of other people.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::explain::live::{CauseVerdict, LiveOptions, explain_live};
use linkgauge::lab::uart::{LabUarts, UartOptions};

use crate::client::free_port;
use crate::program::Running;
use crate::ser2net::Ser2net;

#[test]
fn ser2net_with_its_default_settings_waits_for_more_characters() {
    let uarts = LabUarts::start(&UartOptions { ports: 1, ..UartOptions::default() }).unwrap();
    let ser2net = Ser2net::start("tcp", &uarts.paths()[0].display().to_string(), free_port());
    let mut live = LiveOptions::new(format!("tcp://127.0.0.1:{}?baud=9600", ser2net.port).parse().unwrap());
    "echo".clone_into(&mut live.protocol);
    live.budget = Duration::from_secs(10);
    let explanation = explain_live(&live, &Registry::standard().dialer(Clock::System), &|_, _| {}).unwrap();
    let cause = explanation.causes.iter().find(|cause| cause.id == "device_server_packing");
    let cause = cause.unwrap_or_else(|| panic!("{explanation:#?}"));
    assert_eq!(cause.verdict, CauseVerdict::Seen, "{explanation:#?}");
}

#[test]
fn sredird_under_inetd_replies_in_several_writes() {
    let uarts = LabUarts::start(&UartOptions { ports: 1, ..UartOptions::default() }).unwrap();
    let device = uarts.paths()[0].display().to_string();
    let folder = tempfile::tempdir().unwrap();
    let lock = folder.path().join("lock").display().to_string();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rfc2217://{}?baud=115200", listener.local_addr().unwrap());
    // As inetd does: one process for each connection, with the connection as its input and output.
    std::thread::spawn(move || {
        while let Ok((connection, _)) = listener.accept() {
            let (input, output): (OwnedFd, OwnedFd) =
                (connection.try_clone().unwrap().into(), connection.into());
            let mut sredird = Command::new("/usr/sbin/sredird");
            sredird.args(["0", &device, &lock]).stdin(Stdio::from(input)).stdout(Stdio::from(output));
            let child = sredird.stderr(Stdio::null()).spawn();
            let mut child = Running(child.expect("sredird is needed for this test: apt-get install sredird"));
            std::thread::spawn(move || child.wait());
        }
    });
    let mut live = LiveOptions::new(url.parse().unwrap());
    "echo".clone_into(&mut live.protocol);
    // More than one write.
    live.message_bytes = Some(10);
    live.budget = Duration::from_secs(30);
    let explanation = explain_live(&live, &Registry::standard().dialer(Clock::System), &|_, _| {}).unwrap();
    let cause = &explanation.causes[0];
    assert_eq!((cause.id, cause.verdict), ("delayed_ack_nagle", CauseVerdict::Proved), "{explanation:#?}");
}
