//! A relay of the lab between a client and a server of other people.

use std::io::{Read, Write};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::lab::shaper::{Shaper, ShaperOptions};
use linkgauge::link::shaped::Shape;

use crate::socat::Socat;

#[test]
fn third_party_programs_work_through_the_shaper() {
    let (_server, place) = Socat::listening("TCP4-LISTEN:0,bind=127.0.0.1,fork,reuseaddr", "PIPE");
    let delayed = Shape { delay: Duration::from_millis(20), ..Shape::default() };
    let options = ShaperOptions {
        listen: "tcp://127.0.0.1:0".parse().unwrap(),
        to: format!("tcp://{place}").parse().unwrap(),
        up: delayed.clone(),
        down: delayed,
        seed: 1,
        log: None,
    };
    let shaper = Shaper::start(&options, &Registry::standard().dialer(Clock::System)).unwrap();
    let mut client = std::process::Command::new("/usr/bin/socat")
        .args(["-T", "20", "-", &format!("TCP4:{}", shaper.endpoint().address())])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let sent: Vec<u8> = (0..300_000).map(|_| random.u8(..)).collect();
    let mut input = client.stdin.take().unwrap();
    let bytes = sent.clone();
    let writer = thread::spawn(move || input.write_all(&bytes).unwrap());
    let mut got = vec![0; sent.len()];
    client.stdout.take().unwrap().read_exact(&mut got).unwrap();
    writer.join().unwrap();
    assert!(got == sent);
    let _ = (client.kill(), client.wait());
}
