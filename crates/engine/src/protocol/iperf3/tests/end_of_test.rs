//! Ends of a test: a server that never stops, a control connection that is lost.

use super::super::client::ControlParty;
use super::*;

#[test]
fn an_upload_of_datagrams_ends_with_its_control_connection() {
    let (load, caps) = (Load::endless(1000), datagrams());
    let end_of_control: [fn(&mut ControlParty); 2] = [
        |control| {
            control.on_closed(Time(1)).unwrap();
            assert!(matches!(drain_output(control, Time(1)).1, NextStep::Fails(_)));
        },
        // As after a reset or a timeout of the system, which ends the party and calls nothing else.
        |control| control.on_ended(PartyCost::default()),
    ];
    for end in end_of_control {
        let test = Arc::<TestState>::default();
        let mut upload = TestStream::sender(stream_params(&load, &caps, &test));
        let mut client = client_of(&test);
        start_test(&mut client, &test);
        let (mut control, _) = ControlParty::new(client, Recorder::for_counting());
        assert!(matches!(upload.next_step(Time(0)), Step::Tune(_)));
        assert!(matches!(upload.next_step(Time(0)), Step::Send { .. }));
        end(&mut control);
        assert!(matches!(upload.next_step(Time(2)), Step::Done));
    }
}

/// Behaviour of a server after the end of a test.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterEnd {
    Reports,
    IsSilent,
}

/// The end of a download whose server sends this much in each tenth of a second, also after the end of the test, and then reports
/// what it had sent until then, if it does.
fn end_of_download(end: AfterEnd, bytes: impl Fn(u64) -> usize) -> NextStep {
    let reports = end == AfterEnd::Reports;
    let test = Arc::<TestState>::default();
    let load = Load { timeout: Duration::from_secs(5), ..Load::endless(1000) };
    let caps = Caps::STREAM;
    let mut stream = TestStream::receiver(stream_params(&load, &caps, &test));
    let mut client = client_with(Parameters { reverse: true, ..parameters() }, &test);
    start_test(&mut client, &test);
    let (mut sent, mut sent_until_end) = (0, None);
    for tenth in 0..200 {
        let now = Time(tenth * 100_000_000);
        deliver(&mut stream, &vec![0; bytes(tenth)], now);
        sent += bytes(tenth) as i64;
        let (words, next) = drain_output(&mut client, now);
        if words == [ControlState::TestEnd as u8] {
            sent_until_end = Some(sent);
            let reply: &[u8] = if reports { &[ControlState::ExchangeResults as u8] } else { &[] };
            deliver(&mut client, reply, now);
        } else if !words.is_empty() {
            deliver(&mut client, &results(sent_until_end.unwrap()), now);
            return drain_output(&mut client, now).1;
        } else if let NextStep::Fails(_) = next {
            return next;
        }
        if sent_until_end.is_some() && !reports {
            client.on_timeout(now);
        }
    }
    panic!("it never ends");
}

#[test]
fn a_server_that_never_stops_sending_is_named() {
    let error = |end, bytes: fn(u64) -> usize| match end_of_download(end, bytes) {
        NextStep::Fails(error) => error,
        other => panic!("the test was complete: {other:?}"),
    };
    // Over a fast link, and over links of 1 Mbit/s and 80 kbit/s.
    for bytes in [|_| 1 << 20, |_| 12_500, |_| 1000] as [fn(u64) -> usize; 3] {
        let reported = error(AfterEnd::Reports, bytes);
        assert!(reported.contains("still sends 5 s after the end"), "{reported}");
        let unreported = error(AfterEnd::IsSilent, bytes);
        assert!(unreported.contains("still sends"), "{unreported}");
    }
}
