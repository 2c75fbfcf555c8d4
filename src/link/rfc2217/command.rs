//! The words of Telnet option 44: codes, and the values of settings and states as RFC 2217 numbers them.
//!
//! Not for who says what when: `server.rs` and `client.rs` know that.

use super::super::line::{Errors, Flow, Modem, Parity, Purge, Signal, StopBits};
use super::telnet::{option, subnegotiate};

/// What a client asks for. Servers answer with the same code and [`ANSWER`] added.
pub mod code {
    pub const SIGNATURE: u8 = 0;
    pub const BAUD: u8 = 1;
    pub const DATA: u8 = 2;
    pub const PARITY: u8 = 3;
    pub const STOP: u8 = 4;
    pub const CONTROL: u8 = 5;
    /// From servers only, with [`super::ANSWER`]; some clients ask with it.
    pub const LINE_STATE: u8 = 6;
    /// From servers only, with [`super::ANSWER`]; some clients ask with it.
    pub const MODEM_STATE: u8 = 7;
    pub const SUSPEND: u8 = 8;
    pub const RESUME: u8 = 9;
    pub const LINE_STATE_MASK: u8 = 10;
    pub const MODEM_STATE_MASK: u8 = 11;
    pub const PURGE: u8 = 12;
}

/// Added to the code of a command by the server's answer to it.
pub const ANSWER: u8 = 100;

/// Values of [`code::CONTROL`] that are neither a flow control nor a signal.
pub mod control {
    pub const ASK_FLOW: u8 = 0;
    pub const ASK_INBOUND_FLOW: u8 = 13;
    /// Flow control of what is sent by DCD, of what is received by DTR, of what is sent by DSR.
    pub const BY_DCD: u8 = 17;
    pub const BY_DTR: u8 = 18;
    pub const BY_DSR: u8 = 19;
}

/// Bits of a line state that stand for errors.
pub mod line_state {
    pub const BREAK: u8 = 0x10;
    pub const FRAMING: u8 = 0x08;
    pub const PARITY: u8 = 0x04;
    pub const OVERRUN: u8 = 0x02;
    pub const ERRORS: u8 = BREAK | FRAMING | PARITY | OVERRUN;
}

/// Writes a command or an answer.
pub fn write(code: u8, value: &[u8], out: &mut Vec<u8>) {
    subnegotiate(option::COM_PORT, code, value, out);
}

/// The rate in the first four bytes of a value; at least one server appends zeros.
pub fn baud_of(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// Data bits stand for themselves.
pub fn data_of(value: u8) -> Option<u8> {
    (5..=8).contains(&value).then_some(value)
}

pub fn parity(parity: Parity) -> u8 {
    match parity {
        Parity::None => 1,
        Parity::Odd => 2,
        Parity::Even => 3,
        Parity::Mark => 4,
        Parity::Space => 5,
    }
}

pub fn parity_of(value: u8) -> Option<Parity> {
    Parity::ALL.into_iter().find(|&known| parity(known) == value)
}

pub fn stop(stop: StopBits) -> u8 {
    match stop {
        StopBits::One => 1,
        StopBits::Two => 2,
        StopBits::OneAndHalf => 3,
    }
}

pub fn stop_of(value: u8) -> Option<StopBits> {
    StopBits::ALL.into_iter().find(|&known| stop(known) == value)
}

/// Flow control as a value of [`code::CONTROL`].
pub fn flow(flow: Flow) -> u8 {
    match flow {
        Flow::None => 1,
        Flow::XonXoff => 2,
        Flow::RtsCts => 3,
    }
}

pub fn flow_of(value: u8) -> Option<Flow> {
    Flow::ALL.into_iter().find(|&known| flow(known) == value)
}

/// The same for what is received only.
pub fn inbound_flow(flow: Flow) -> u8 {
    match flow {
        Flow::None => 14,
        Flow::XonXoff => 15,
        Flow::RtsCts => 16,
    }
}

/// The signals in the order of their values of [`code::CONTROL`]: for each of them ask, on, off.
const SIGNALS: [Signal; 3] = [Signal::Break, Signal::Dtr, Signal::Rts];
/// The first of these values: asks for the state of BREAK.
const ASK_BREAK: u8 = 4;

/// A signal as a value of [`code::CONTROL`].
pub fn signal(signal: Signal, on: bool) -> u8 {
    let place = SIGNALS.iter().take_while(|&&known| known != signal).count() as u8;
    ASK_BREAK + 3 * place + if on { 1 } else { 2 }
}

/// The signal that a value of [`code::CONTROL`] is about, and what it is to become; `None` asks for its state.
pub fn signal_of(value: u8) -> Option<(Signal, Option<bool>)> {
    let value = value.checked_sub(ASK_BREAK)?;
    let signal = SIGNALS.get(usize::from(value / 3))?;
    Some((*signal, [None, Some(true), Some(false)][usize::from(value % 3)]))
}

pub fn purge(purge: Purge) -> u8 {
    match purge {
        Purge::Received => 1,
        Purge::ToSend => 2,
        Purge::Both => 3,
    }
}

pub fn purge_of(value: u8) -> Option<Purge> {
    [Purge::Received, Purge::ToSend, Purge::Both].into_iter().find(|&known| purge(known) == value)
}

/// The inputs as bits; how they were `before` shows what has changed (for RI: that it ended).
pub fn modem_state(now: Modem, before: Modem) -> u8 {
    let bit = |on: bool, bit: u8| if on { bit } else { 0 };
    bit(now.cd, 0x80)
        | bit(now.ri, 0x40)
        | bit(now.dsr, 0x20)
        | bit(now.cts, 0x10)
        | bit(now.cd != before.cd, 0x08)
        | bit(before.ri && !now.ri, 0x04)
        | bit(now.dsr != before.dsr, 0x02)
        | bit(now.cts != before.cts, 0x01)
}

pub fn modem_of(state: u8) -> Modem {
    let on = |bit| state & bit != 0;
    Modem { cd: on(0x80), ri: on(0x40), dsr: on(0x20), cts: on(0x10) }
}

/// The line state that says what has gone wrong since `before`.
pub fn line_state(now: Errors, before: Errors) -> u8 {
    let bit = |now: u64, before: u64, bit| if now > before { bit } else { 0 };
    bit(now.breaks, before.breaks, line_state::BREAK)
        | bit(now.framing, before.framing, line_state::FRAMING)
        | bit(now.parity, before.parity, line_state::PARITY)
        | bit(now.overruns, before.overruns, line_state::OVERRUN)
}

/// Counts a line state's errors: at least so many, since a server may say several at once.
pub fn count(state: u8, errors: &mut Errors) {
    let one = |bit| u64::from(state & bit != 0);
    errors.breaks += one(line_state::BREAK);
    errors.framing += one(line_state::FRAMING);
    errors.parity += one(line_state::PARITY);
    errors.overruns += one(line_state::OVERRUN);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command as it goes over the network.
    fn written(code: u8, value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        write(code, value, &mut out);
        out
    }

    #[test]
    fn what_is_ff_is_doubled() {
        assert_eq!(written(1, &9600u32.to_be_bytes()), b"\xff\xfa\x2c\x01\x00\x00\x25\x80\xff\xf0");
        assert_eq!(written(1, &65535u32.to_be_bytes()), b"\xff\xfa\x2c\x01\x00\x00\xff\xff\xff\xff\xff\xf0");
        assert_eq!(written(1, &130_816u32.to_be_bytes()), b"\xff\xfa\x2c\x01\x00\x01\xff\xff\x00\xff\xf0");
        assert_eq!(written(code::MODEM_STATE_MASK, &[0xff]), b"\xff\xfa\x2c\x0b\xff\xff\xff\xf0");
        assert_eq!(written(code::SIGNATURE, &[]), b"\xff\xfa\x2c\x00\xff\xf0");
    }

    #[test]
    fn values_are_those_of_the_standard_and_come_back() {
        assert_eq!(Parity::ALL.map(parity), [1, 2, 3, 4, 5]);
        assert_eq!(StopBits::ALL.map(stop), [1, 3, 2]);
        assert_eq!(Flow::ALL.map(flow), [1, 3, 2]);
        assert_eq!(Flow::ALL.map(inbound_flow), [14, 16, 15]);
        for value in 0..=u8::MAX {
            assert_eq!(parity_of(value).map(parity), Some(value).filter(|value| (1..=5).contains(value)));
            assert_eq!(stop_of(value).map(stop), Some(value).filter(|value| (1..=3).contains(value)));
            assert_eq!(flow_of(value).map(flow), Some(value).filter(|value| (1..=3).contains(value)));
            assert_eq!(purge_of(value).map(purge), Some(value).filter(|value| (1..=3).contains(value)));
            let (of, on) = signal_of(value).unzip();
            let back = on.flatten().map(|on| signal(of.unwrap_or(Signal::Dtr), on));
            assert_eq!(back, Some(value).filter(|value| matches!(value, 5 | 6 | 8 | 9 | 11 | 12)));
            assert_eq!(data_of(value), Some(value).filter(|value| (5..=8).contains(value)));
        }
        assert_eq!(baud_of(b"\x00\x00\x4b\x00\x00\x00\x00\x00"), Some(19200), "four zeros too many");
        assert_eq!(baud_of(b"\x00\x4b"), None);
    }

    #[test]
    fn states_say_what_is_and_what_has_changed() {
        let all = Modem { cts: true, dsr: true, ri: true, cd: true };
        assert_eq!(modem_state(all, all), 0xf0);
        assert_eq!(modem_state(all, Modem::default()), 0xfb, "a ring that begins is no trailing edge");
        assert_eq!(modem_state(Modem::default(), all), 0x0f);
        assert_eq!(modem_of(0xff), all);
        assert_eq!(modem_of(0x0f), Modem::default());
        let one = Errors { framing: 1, parity: 2, breaks: 3, overruns: 4 };
        assert_eq!(line_state(one, Errors::default()), line_state::ERRORS);
        assert_eq!(line_state(one, Errors { overruns: 3, ..one }), line_state::OVERRUN);
        let mut counted = Errors::default();
        count(0xff, &mut counted);
        count(0x61, &mut counted);
        assert_eq!(counted, Errors { framing: 1, parity: 1, breaks: 1, overruns: 1 });
    }
}
