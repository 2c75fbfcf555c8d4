//! Messages of iperf3 compared with captures of iperf3 3.0 to 3.21.

use super::*;

fn object(text: &str) -> Map<String, Value> {
    serde_json::from_str(text).unwrap()
}

/// Parameters of 3.21 without options.
const PLAIN: &str = r#"{"tcp":true,"omit":0,"time":1,"num":0,"blockcount":0,"parallel":1,"len":131072,
    "pacing_timer":1000,"client_version":"3.21"}"#;

fn plain() -> Parameters {
    Parameters {
        udp: false,
        omit_s: 0,
        time_s: 1,
        bytes: 0,
        blocks: 0,
        parallel: 1,
        reverse: false,
        bidirectional: false,
        length: 131_072,
        bits_per_second: 0.0,
        counters_64bit: false,
        server_output: false,
        server_cpu: None,
        client_minor: 21,
    }
}

#[test]
fn cookies_are_letters_and_digits_and_a_zero() {
    let cookie = Cookie::random();
    assert_eq!(Cookie::parse(cookie.bytes()), Some(cookie));
    assert_ne!(Cookie::random(), cookie);
    assert!(Cookie::parse(b"cf3vgxvikyby5o5z4tc2kqvzdxchsc34rjek\0").is_some());
    assert_eq!(Cookie::parse(b"cf3vgxvikyby5o5z4tc2kqvzdxchsc34rjekx"), None);
    assert_eq!(Cookie::parse(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:5201\r\n"), None);
    assert_eq!(Cookie::parse(&cookie.bytes()[..36]), None);
    // Cookie of a client before 3.2, with host name and time.
    assert!(Cookie::parse(b"lab-pc_2.local.1700000000.123456.0ab\0").is_some());
    assert!(!Cookie::is_valid_prefix(b"SSH-2.0-OpenSSH_9.2\r\n") && !Cookie::is_valid_prefix(b"GET /"));
}

#[test]
fn states_are_those_bytes() {
    for byte in 0..=u8::MAX {
        assert!(ControlState::from_byte(byte).is_none_or(|state| state as u8 == byte));
    }
    assert_eq!(ControlState::from_byte(9), Some(ControlState::ParameterExchange));
    assert_eq!(ControlState::from_byte(15), None);
    assert_eq!(ControlState::AccessDenied as i8, -1);
}

#[test]
fn captured_parameters_are_parsed() {
    assert_eq!(Parameters::from_json(&object(PLAIN)), Ok(plain()));
    let reverse = r#"{"tcp":true,"omit":2,"time":0,"num":1048576,"blockcount":0,"parallel":2,"reverse":true,"window":100000,
        "len":131072,"pacing_timer":1000,"title":"title1","get_server_output":1,"client_version":"3.12"}"#;
    let expected = Parameters {
        omit_s: 2,
        time_s: 0,
        bytes: 1 << 20,
        parallel: 2,
        reverse: true,
        server_output: true,
        client_minor: 12,
        ..plain()
    };
    assert_eq!(Parameters::from_json(&object(reverse)), Ok(expected.clone()));
    // Tests that are too long have codes of their own since 3.20.
    let codes = [plain(), expected].map(|parameters| parameters.duration_code(ErrorCode::ServerDuration));
    assert_eq!(codes, [ErrorCode::ServerDuration, ErrorCode::Duration]);
    assert_eq!(["3.19.1", "3.21+", "3", "3.x"].map(parse_minor_version), [Some(19), Some(21), None, None]);
    let udp = r#"{"udp":true,"omit":0,"time":1,"num":0,"blockcount":0,"parallel":1,"len":100,"bandwidth":200000,
        "pacing_timer":1000,"udp_counters_64bit":true,"server_affinity":18446744073709551615}"#;
    let udp = Parameters::from_json(&object(udp)).unwrap();
    assert!(udp.udp && udp.counters_64bit && udp.bits_per_second == 200_000.0 && udp.length == 100);
}

#[test]
fn parameters_round_trip() {
    let udp = Parameters {
        udp: true,
        counters_64bit: true,
        bidirectional: true,
        length: 1400,
        bits_per_second: 1e6,
        server_cpu: Some(1),
        ..plain()
    };
    for parameters in [plain(), udp] {
        let framed = encode_framed(&parameters.to_json());
        let (object, used) = decode_framed(&framed, MAX_PARAMETERS_BYTES).unwrap().unwrap();
        assert_eq!(used, framed.len());
        assert_eq!(Parameters::from_json(&object), Ok(parameters));
    }
    // A plain test sends the parameters of 3.21.
    assert_eq!(plain().to_json(), serde_json::from_str::<Value>(PLAIN).unwrap());
}

/// Servers since 3.18 ignore a value of an unexpected type.
#[test]
fn values_have_the_types_that_new_servers_want() {
    let all = Parameters { udp: true, counters_64bit: true, server_output: true, reverse: true, ..plain() };
    let json = all.to_json();
    for (name, value) in
        [("udp_counters_64bit", json!(1)), ("get_server_output", json!(1)), ("reverse", json!(true))]
    {
        assert_eq!(json[name], value, "{name}");
    }
    let both = Parameters { bidirectional: true, ..plain() };
    assert_eq!(both.to_json()["bidirectional"], json!(true));
}

#[test]
fn invalid_parameters_are_refused_with_an_error_code() {
    let refused = |changes: &str| {
        let mut all = object(PLAIN);
        all.extend(object(changes));
        Parameters::from_json(&all).map(|_| ())
    };
    assert_eq!(refused("{}"), Ok(()));
    // A server without a password accepts a client with one.
    assert_eq!(refused(r#"{"authtoken":"bm9ib2R5"}"#), Ok(()));
    for (changes, code) in [
        (r#"{"parallel":129}"#, ErrorCode::Streams),
        (r#"{"parallel":0}"#, ErrorCode::Streams),
        (r#"{"parallel":-1}"#, ErrorCode::Streams),
        (r#"{"parallel":1e300}"#, ErrorCode::Streams),
        (r#"{"parallel":"four"}"#, ErrorCode::Streams),
        (r#"{"len":0}"#, ErrorCode::Block),
        (r#"{"len":1048577}"#, ErrorCode::Block),
        (r#"{"len":-5}"#, ErrorCode::Block),
        (r#"{"udp":true,"len":15}"#, ErrorCode::Datagram),
        (r#"{"udp":true,"len":65508}"#, ErrorCode::Datagram),
        (r#"{"time":86401}"#, ErrorCode::Duration),
        (r#"{"time":-1}"#, ErrorCode::Duration),
        (r#"{"omit":61}"#, ErrorCode::Omit),
        (r#"{"num":-1}"#, ErrorCode::Parameters),
        (r#"{"bandwidth":-1}"#, ErrorCode::Parameters),
        (r#"{"reverse":true,"bidirectional":true}"#, ErrorCode::Directions),
        (r#"{"sctp":true}"#, ErrorCode::Sctp),
        (r#"{"tcp":false}"#, ErrorCode::NotDone),
    ] {
        assert_eq!(refused(changes), Err(code), "{changes}");
    }
}

#[test]
fn frames_are_whole_or_wait() {
    let framed = encode_framed(&serde_json::json!({"a": 1}));
    for length in 0..framed.len() {
        assert_eq!(decode_framed(&framed[..length], 100), Ok(None));
    }
    assert_eq!(decode_framed(&[0, 0, 1, 0], 100), Err(Iperf3WireError::TooLong(256)));
    assert_eq!(
        decode_framed(&[0xFF; 4], MAX_RESULTS_BYTES),
        Err(Iperf3WireError::TooLong(u32::MAX as usize))
    );
    for text in ["", "[]", "7", "{\"a\":", "{} x"] {
        let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
        bytes.extend_from_slice(text.as_bytes());
        assert_eq!(decode_framed(&bytes, 100), Err(Iperf3WireError::NotAnObject), "{text}");
    }
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(3000), "]".repeat(3000));
    let mut bytes = (deep.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(deep.as_bytes());
    assert_eq!(decode_framed(&bytes, MAX_PARAMETERS_BYTES), Err(Iperf3WireError::NotAnObject));
}

/// Results of a server of 3.12.
const RESULTS: &str = r#"{"cpu_util_total":21.841031095199625,"cpu_util_user":0.879425946697818,
    "cpu_util_system":20.961508284756164,"sender_has_retransmits":18446744073709551615,"congestion_used":"bbr",
    "streams":[{"id":1,"bytes":614727680,"retransmits":18446744073709551615,"jitter":0,"errors":0,"packets":0,
    "start_time":0,"end_time":1.032345},{"id":3,"bytes":678952960,"retransmits":18446744073709551615,
    "jitter":3.9775360469671e-06,"errors":2,"packets":25,"start_time":0,"end_time":1.5}]}"#;

#[test]
fn captured_results_are_parsed() {
    let results = TestResults::from_json(&object(RESULTS), 2).unwrap();
    let second = results.streams[1];
    assert_eq!((second.bytes, second.lost, second.packets, second.seconds), (678_952_960, 2, 25, 1.5));
    assert_eq!((second.retransmits, results.has_retransmits), (None, None));
    assert_eq!((results.streams[0].seconds, second.jitter_s), (1.032345, Some(3.9775360469671e-06)));
    let negative = RESULTS.replace("3.9775360469671e-06", "-1");
    assert_eq!(TestResults::from_json(&object(&negative), 2).unwrap().streams[1].jitter_s, None);
    let framed = encode_framed(&results.to_json());
    let (again, _) = decode_framed(&framed, MAX_RESULTS_BYTES).unwrap().unwrap();
    let streams =
        results.streams.iter().map(|stream| StreamCounts { omitted: Some((0, 0)), ..*stream }).collect();
    assert_eq!(TestResults::from_json(&again, 2), Ok(TestResults { streams, ..results }));
    assert_eq!(again["streams"][1]["retransmits"], -1);
    assert_eq!((again["congestion_used"].as_str(), second.omitted), (Some("bbr"), None));
}

#[test]
fn omitted_losses_are_separate_since_3_16() {
    let new = RESULTS.replace("\"errors\":2,", "\"errors\":2,\"omitted_errors\":1,\"omitted_packets\":11,");
    let results = TestResults::from_json(&object(&new), 2).unwrap();
    assert_eq!(results.streams[1].omitted, Some((1, 11)));
    let json = results.to_json();
    assert_eq!(
        (&json["streams"][1]["omitted_errors"], &json["streams"][1]["omitted_packets"]),
        (&json!(1), &json!(11))
    );
    // One without the other is accepted, although 3.21 would reject it.
    let half = RESULTS.replace("\"errors\":2,", "\"errors\":2,\"omitted_errors\":1,");
    assert_eq!(TestResults::from_json(&object(&half), 2).unwrap().streams[1].omitted, None);
}

#[test]
fn invalid_results_are_rejected() {
    let wrong =
        |from: &str, to: &str| TestResults::from_json(&object(&RESULTS.replace(from, to)), 2).unwrap_err();
    assert_eq!(TestResults::from_json(&object(RESULTS), 3), Err(Iperf3WireError::StreamMismatch));
    assert_eq!(wrong("\"id\":3", "\"id\":2"), Iperf3WireError::StreamMismatch);
    assert_eq!(wrong("\"id\":3", "\"id\":1"), Iperf3WireError::StreamMismatch);
    assert_eq!(wrong("\"bytes\":614727680", "\"bytes\":-1"), Iperf3WireError::Negative("bytes"));
    assert_eq!(wrong("\"errors\":2", "\"errors\":-2"), Iperf3WireError::Negative("errors"));
    assert_eq!(wrong("\"packets\":25,", ""), Iperf3WireError::NotANumber("packets"));
    assert_eq!(wrong("\"cpu_util_total\":21", "\"x\":21"), Iperf3WireError::NotANumber("cpu_util_total"));
    assert_eq!(wrong("\"streams\"", "\"steams\""), Iperf3WireError::StreamMismatch);
    let absurd = TestResults::from_json(&object(&RESULTS.replace("1.032345", "-1e300")), 2).unwrap();
    assert_eq!(absurd.streams[0].seconds, 0.0);
}

#[test]
fn errors_are_explained() {
    let explain = |code: i32| {
        let mut error = [0; ERROR_BYTES];
        error[..4].copy_from_slice(&code.to_be_bytes());
        explain_error(&error)
    };
    // 3.12 sends only the first number when it refuses a test.
    let [short, cut] = [&[0, 0, 0, 142][..], &[0, 0]].map(explain_error);
    insta::assert_snapshot!([explain(142), explain(27), explain(37), explain(160), explain(7777), explain(-3), short, cut].join("\n"), @r"
    the server refused: it requires a user name and a password, which linkgauge does not have: use a server without (error 142)
    the server refused: more than the rate that it allows: use a --bit-rate below its limit (error 27)
    the server refused: longer than it allows (--server-max-duration): use a shorter --time, without --volume and --count (error 37)
    the server refused: the test took longer than it allows (--server-max-duration): use a shorter --time (error 160)
    the server reports error 7777 (system error 0)
    the server reports error -3 (system error 0)
    the server refused: it requires a user name and a password, which linkgauge does not have: use a server without (error 142)
    the server refused the test and closed the connection without a reason
    ");
    assert_eq!(encode_error(ErrorCode::Rate), [0xFE, 0, 0, 0, 27, 0, 0, 0, 0]);
}

#[test]
fn streams_are_named_in_the_order_of_opening() {
    assert_eq!((0..4).map(stream_id).collect::<Vec<_>>(), [1, 3, 4, 5]);
    let both = Parameters { bidirectional: true, parallel: 2, ..plain() };
    assert_eq!(both.stream_count(), 4);
    assert_eq!([0, 1, 2, 3].map(|stream| both.is_upload(stream)), [true, true, false, false]);
}
