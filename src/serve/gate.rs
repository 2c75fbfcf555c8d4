//! What becomes of the first datagram of an unknown sender, who may not be the one that the packet names.
//!
//! The protocol decides (`Service::door`), within what holds for all of them: nothing goes out that is longer than what
//! came in, nothing to a program that would answer the answer, and no more than the rate of that source.

use std::sync::Arc;

use super::rates::{Rates, Repeats};
use super::refusals::Refusals;
use super::source::Source;
use crate::clock::Time;
use crate::link::Admission;
use crate::peer::{Service, is_server};

pub struct Gate {
    rates: Option<Arc<Rates>>,
    repeats: Repeats,
    refusals: Arc<Refusals>,
}

impl Gate {
    pub fn new(rates: Option<Arc<Rates>>, refusals: Arc<Refusals>) -> Gate {
        Gate { rates, repeats: Repeats::new(), refusals }
    }

    fn drop(&self, reason: &str, from: &str) -> Admission {
        self.refusals.record(reason, from);
        Admission::Drop
    }

    pub fn admit(
        &self,
        service: &dyn Service,
        first: &[u8],
        from: &str,
        reply: &mut Vec<u8>,
        now: Time,
    ) -> Admission {
        if is_server(from) {
            return self.drop("a datagram from the port of a server, which would answer the answer", from);
        }
        match service.door(first, from, reply) {
            Admission::Reply => {}
            Admission::Open => return Admission::Open,
            Admission::Drop => {
                return self
                    .drop("a datagram that this protocol does not answer, or without the token", from);
            }
        }
        let within_rate = |rates: &Arc<Rates>| rates.takes(&Source::of(from), first.len() + reply.len(), now);
        if reply.len() > first.len() {
            return self.drop("a datagram that is shorter than its answer", from);
        }
        if !self.rates.as_ref().is_none_or(within_rate) {
            return self.drop("a datagram beyond the rate of its sender (--max-rate)", from);
        }
        if !self.repeats.takes(from, first, now) {
            return self.drop("a datagram that was repeated unchanged too often", from);
        }
        Admission::Reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Caps;
    use crate::link::party::Party;
    use crate::serve::rates::REPEATS;

    /// Answers with so many bytes.
    struct Answers(usize);

    impl Service for Answers {
        fn party(&self, _caps: &Caps, _from: &str) -> Box<dyn Party> {
            unreachable!("it only answers")
        }

        fn door(&self, _first: &[u8], _from: &str, reply: &mut Vec<u8>) -> Admission {
            reply.resize(self.0, 0);
            Admission::Reply
        }
    }

    fn admit(gate: &Gate, bytes: usize, from: &str) -> Admission {
        gate.admit(&Answers(bytes), &[1; 100], from, &mut Vec::new(), Time(0))
    }

    #[test]
    fn no_answer_is_longer_than_its_question_or_goes_to_a_server() {
        let gate = Gate::new(None, Arc::default());
        assert_eq!(admit(&gate, 100, "192.0.2.7:40000"), Admission::Reply);
        assert_eq!(admit(&gate, 101, "192.0.2.7:40000"), Admission::Drop);
        for port in [7, 9, 13, 17, 19, 53, 862, 5201, 7100, 11111, 18767] {
            assert_eq!(admit(&gate, 10, &format!("192.0.2.7:{port}")), Admission::Drop, "{port}");
            assert_eq!(admit(&gate, 10, &format!("[::1]:{port}")), Admission::Drop, "{port}");
        }
        // What a protocol that says nothing about datagrams does with them.
        struct Silent;
        impl Service for Silent {
            fn party(&self, _caps: &Caps, _from: &str) -> Box<dyn Party> {
                unreachable!("nothing opens it")
            }
        }
        let silent = gate.admit(&Silent, b"x", "192.0.2.7:40000", &mut Vec::new(), Time(0));
        assert_eq!(silent, Admission::Drop);
    }

    #[test]
    fn answers_count_against_the_rate_of_their_source() {
        let gate = Gate::new(Some(Arc::new(Rates::new(8_000.0))), Arc::default());
        let answered = |from: &str| (0..100).filter(|_| admit(&gate, 100, from) == Admission::Reply).count();
        // 255 bytes are the burst of a kilobyte a second, and each answer costs 200.
        assert_eq!((answered("192.0.2.7:40000"), answered("192.0.2.7:40001")), (2, 0));
        assert_eq!(answered("192.0.2.8:40000"), 2);
    }

    #[test]
    fn two_that_answer_each_other_come_to_an_end() {
        let gates = [Gate::new(None, Arc::default()), Gate::new(None, Arc::default())];
        let names = ["192.0.2.7:40000", "192.0.2.8:40000"];
        // One datagram goes to and fro, a hundred thousand times a second.
        let (mut hops, mut now) = (0, Time(0));
        let answers = |hop: usize, now| {
            gates[hop % 2].admit(&Answers(100), &[1; 100], names[1 - hop % 2], &mut Vec::new(), now)
        };
        while answers(hops, now) == Admission::Reply {
            (hops, now) = (hops + 1, Time(now.0 + 10_000));
            assert!(hops < 3 * REPEATS as usize, "it never ends");
        }
        assert!(hops >= REPEATS as usize);
    }
}
