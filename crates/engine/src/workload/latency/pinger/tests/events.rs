//! Fate of each reply, as `latency --each` prints it.

use super::*;
use linkgauge_model::sample::{ReplyEventKind, ReplyLogs, ReplySource};

#[test]
fn a_reply_with_a_changed_number_is_no_plain_duplicate() {
    let mut bench = harness(&MESSAGES, 16, 3, None, 0);
    let source = ReplySource {
        case: 0,
        endpoint: "udp://a".to_owned(),
        message_bytes: 16,
        connection: None,
        has_stamps: false,
    };
    let log = ReplyLogs::default().add(source, Load::endless(16).is_one_of_many());
    bench.pinger.recorder.reply_log = Some(log.clone());
    let first = bench.request();
    bench.deliver(&first);
    let second = bench.request();
    // One bit of the number: that of the first request, and one that was never sent. Then changed content, and the reply.
    let mut unknown = second.clone();
    unknown[0] ^= 0x40;
    let mut corrupt = first.clone();
    corrupt[12] ^= 1;
    for message in [&first, &unknown, &corrupt, &second] {
        bench.deliver(message);
    }
    let events: Vec<_> = std::iter::from_fn(|| log.take()).map(|event| event.kind).collect();
    let kinds = {
        use ReplyEventKind::*;
        [Reply, Duplicate, Unknown, CorruptDuplicate, Reply]
    };
    assert_eq!(events, kinds);
}
