//! Tokens of slots: who may connect to the server of an agent, for one test.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::order::FleetOrder;

/// The secret of the two agents of an order. Only agents with the key of the fleet can compute it, so the hub cannot connect.
pub(crate) fn slot_token(fleet_key: &[u8], order: &FleetOrder) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(fleet_key).expect("HMAC takes keys of any length");
    // A length before each text: no two orders give the same bytes.
    for text in [&order.id, &order.from, &order.to] {
        mac.update(&(text.len() as u64).to_be_bytes());
        mac.update(text.as_bytes());
    }
    mac.update(&order.not_after_ms.to_be_bytes());
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkgauge_ops::mesh::TestKind;

    fn order() -> FleetOrder {
        FleetOrder {
            id: "1".to_owned(),
            list: String::new(),
            from: "a".to_owned(),
            to: "b.example".to_owned(),
            test: TestKind::Latency,
            not_before_ms: 5000,
            not_after_ms: 60_000,
        }
    }

    #[test]
    fn every_part_of_an_order_changes_the_token() {
        let one = order();
        let token = slot_token(b"key", &one);
        assert_eq!(token, slot_token(b"key", &one.clone()));
        assert_eq!(token.len(), 64);
        let others = [
            FleetOrder { id: "2".to_owned(), ..one.clone() },
            FleetOrder { from: "a".to_owned(), to: "bb".to_owned(), ..one.clone() },
            FleetOrder { from: "ab".to_owned(), to: "b".to_owned(), ..one.clone() },
            FleetOrder { not_after_ms: one.not_after_ms + 1, ..one.clone() },
        ];
        let mut tokens: Vec<String> = others.iter().map(|other| slot_token(b"key", other)).collect();
        tokens.extend([token, slot_token(b"other key", &one)]);
        tokens.sort();
        tokens.dedup();
        assert_eq!(tokens.len(), 6);
    }
}
