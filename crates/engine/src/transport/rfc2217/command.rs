//! The commands of Telnet option 44: codes, and the values of settings and states as RFC 2217 numbers them.
//!
//! `server.rs` and `client.rs` implement the protocol.

use super::telnet::{option, write_subnegotiation};
use crate::link::serial_line::{
    FlowControl, ModemLines, OutputSignal, Parity, PurgeTarget, StopBits, UartErrors,
};

/// Commands of a client. Servers reply with the same code plus [`REPLY_OFFSET`].
pub(crate) mod code {
    /// Text that identifies the sender, or a request for it if it is empty.
    pub(crate) const SIGNATURE: u8 = 0;
    /// Rate in bit/s, four bytes.
    pub(crate) const BAUD: u8 = 1;
    /// Data bits of a character, 5 to 8.
    pub(crate) const DATA: u8 = 2;
    /// The parity bit; see [`encode_parity`](super::encode_parity).
    pub(crate) const PARITY: u8 = 3;
    /// Stop bits; see [`encode_stop_bits`](super::encode_stop_bits).
    pub(crate) const STOP: u8 = 4;
    /// Flow control, outputs and break.
    pub(crate) const CONTROL: u8 = 5;
    /// State of the line. Only servers send it, with [`super::REPLY_OFFSET`]; some clients use it as a request.
    pub(crate) const LINE_STATE: u8 = 6;
    /// State of the modem inputs. Only servers send it, with [`super::REPLY_OFFSET`]; some clients use it as a request.
    pub(crate) const MODEM_STATE: u8 = 7;
    /// The sender has no room: send no more data.
    pub(crate) const SUSPEND: u8 = 8;
    /// The sender has room again.
    pub(crate) const RESUME: u8 = 9;
    /// Bits of the line state that the server reports.
    pub(crate) const LINE_STATE_MASK: u8 = 10;
    /// Bits of the modem state that the server reports.
    pub(crate) const MODEM_STATE_MASK: u8 = 11;
    /// Buffers to empty; see [`encode_purge`](super::encode_purge).
    pub(crate) const PURGE: u8 = 12;
}

/// Offset that is added to the code of a command in the server's reply.
pub(crate) const REPLY_OFFSET: u8 = 100;

/// Values of [`code::CONTROL`] other than flow controls and signals.
pub(crate) mod control {
    /// Requests the flow control of sent data.
    pub(crate) const QUERY_FLOW_CONTROL: u8 = 0;
    /// Requests the flow control of received data.
    pub(crate) const QUERY_INBOUND_FLOW_CONTROL: u8 = 13;
    /// Flow control of sent data by DCD.
    pub(crate) const BY_DCD: u8 = 17;
    /// Flow control of received data by DTR.
    pub(crate) const BY_DTR: u8 = 18;
    /// Flow control of sent data by DSR.
    pub(crate) const BY_DSR: u8 = 19;
}

/// Error bits of a line state.
pub(crate) mod line_state_bit {
    /// A break.
    pub(crate) const BREAK: u8 = 0x10;
    /// A character without a valid stop bit.
    pub(crate) const FRAMING: u8 = 0x08;
    /// A character with the wrong parity bit.
    pub(crate) const PARITY: u8 = 0x04;
    /// A character lost because the UART had no room.
    pub(crate) const OVERRUN: u8 = 0x02;
    /// All errors.
    pub(crate) const ERRORS: u8 = BREAK | FRAMING | PARITY | OVERRUN;
}

/// Writes a command or a reply.
pub(crate) fn write_command(code: u8, value: &[u8], out: &mut Vec<u8>) {
    write_subnegotiation(option::COM_PORT, code, value, out);
}

/// Reads the rate from the first four bytes of a value; at least one server appends zeros.
pub(crate) fn decode_baud(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// Data bits are encoded as their number.
pub(crate) fn decode_data_bits(value: u8) -> Option<u8> {
    (5..=8).contains(&value).then_some(value)
}

/// The value of [`code::PARITY`].
pub(crate) fn encode_parity(parity: Parity) -> u8 {
    match parity {
        Parity::None => 1,
        Parity::Odd => 2,
        Parity::Even => 3,
        Parity::Mark => 4,
        Parity::Space => 5,
    }
}

/// The parity bit of a value; `None` for a value of no meaning.
pub(crate) fn decode_parity(value: u8) -> Option<Parity> {
    Parity::ALL.into_iter().find(|&known| encode_parity(known) == value)
}

/// The value of [`code::STOP`].
pub(crate) fn encode_stop_bits(stop: StopBits) -> u8 {
    match stop {
        StopBits::One => 1,
        StopBits::Two => 2,
        StopBits::OneAndHalf => 3,
    }
}

/// The stop bits of a value; `None` for a value of no meaning.
pub(crate) fn decode_stop_bits(value: u8) -> Option<StopBits> {
    StopBits::ALL.into_iter().find(|&known| encode_stop_bits(known) == value)
}

/// Flow control as a value of [`code::CONTROL`].
pub(crate) fn encode_flow_control(flow: FlowControl) -> u8 {
    match flow {
        FlowControl::None => 1,
        FlowControl::XonXoff => 2,
        FlowControl::RtsCts => 3,
    }
}

/// The flow control of a value of [`code::CONTROL`]; `None` for the others.
pub(crate) fn decode_flow_control(value: u8) -> Option<FlowControl> {
    FlowControl::ALL.into_iter().find(|&known| encode_flow_control(known) == value)
}

/// Flow control of received data only.
pub(crate) fn encode_inbound_flow_control(flow: FlowControl) -> u8 {
    match flow {
        FlowControl::None => 14,
        FlowControl::XonXoff => 15,
        FlowControl::RtsCts => 16,
    }
}

/// The signals in the order of their values of [`code::CONTROL`]: each has a query, on and off.
const SIGNAL_ORDER: [OutputSignal; 3] = [OutputSignal::Break, OutputSignal::Dtr, OutputSignal::Rts];
/// The first of these values: queries the state of BREAK.
const QUERY_BREAK: u8 = 4;

/// A signal as a value of [`code::CONTROL`].
pub(crate) fn encode_signal(signal: OutputSignal, on: bool) -> u8 {
    let index = SIGNAL_ORDER.iter().take_while(|&&known| known != signal).count() as u8;
    QUERY_BREAK + 3 * index + if on { 1 } else { 2 }
}

/// The signal of a [`code::CONTROL`] value, and its new state; `None` is a query.
pub(crate) fn decode_signal(value: u8) -> Option<(OutputSignal, Option<bool>)> {
    let value = value.checked_sub(QUERY_BREAK)?;
    let signal = SIGNAL_ORDER.get(usize::from(value / 3))?;
    Some((*signal, [None, Some(true), Some(false)][usize::from(value % 3)]))
}

/// The value of [`code::PURGE`].
pub(crate) fn encode_purge(purge: PurgeTarget) -> u8 {
    match purge {
        PurgeTarget::Received => 1,
        PurgeTarget::ToSend => 2,
        PurgeTarget::Both => 3,
    }
}

/// The buffers of a value; `None` for a value of no meaning.
pub(crate) fn decode_purge(value: u8) -> Option<PurgeTarget> {
    [PurgeTarget::Received, PurgeTarget::ToSend, PurgeTarget::Both]
        .into_iter()
        .find(|&known| encode_purge(known) == value)
}

/// The inputs as bits, with the changes since `before` (for RI: its end).
pub(crate) fn encode_modem_state(now: ModemLines, before: ModemLines) -> u8 {
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

/// The inputs in a modem state.
pub(crate) fn decode_modem_state(state: u8) -> ModemLines {
    let on = |bit| state & bit != 0;
    ModemLines { cd: on(0x80), ri: on(0x40), dsr: on(0x20), cts: on(0x10) }
}

/// The line state that reports the errors since `before`.
pub(crate) fn encode_line_state(now: UartErrors, before: UartErrors) -> u8 {
    let bit = |now: u64, before: u64, bit| if now > before { bit } else { 0 };
    bit(now.breaks, before.breaks, line_state_bit::BREAK)
        | bit(now.framing, before.framing, line_state_bit::FRAMING)
        | bit(now.parity, before.parity, line_state_bit::PARITY)
        | bit(now.overruns, before.overruns, line_state_bit::OVERRUN)
}

/// Adds the errors of a line state. The counts are lower bounds, because a server may combine several errors.
pub(crate) fn count_errors(state: u8, errors: &mut UartErrors) {
    let one = |bit| u64::from(state & bit != 0);
    errors.breaks += one(line_state_bit::BREAK);
    errors.framing += one(line_state_bit::FRAMING);
    errors.parity += one(line_state_bit::PARITY);
    errors.overruns += one(line_state_bit::OVERRUN);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command as sent over the network.
    fn written(code: u8, value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        write_command(code, value, &mut out);
        out
    }

    #[test]
    fn ff_is_doubled() {
        assert_eq!(written(1, &9600u32.to_be_bytes()), b"\xff\xfa\x2c\x01\x00\x00\x25\x80\xff\xf0");
        assert_eq!(written(1, &65535u32.to_be_bytes()), b"\xff\xfa\x2c\x01\x00\x00\xff\xff\xff\xff\xff\xf0");
        assert_eq!(written(1, &130_816u32.to_be_bytes()), b"\xff\xfa\x2c\x01\x00\x01\xff\xff\x00\xff\xf0");
        assert_eq!(written(code::MODEM_STATE_MASK, &[0xff]), b"\xff\xfa\x2c\x0b\xff\xff\xff\xf0");
        assert_eq!(written(code::SIGNATURE, &[]), b"\xff\xfa\x2c\x00\xff\xf0");
    }

    #[test]
    fn values_follow_the_standard_and_round_trip() {
        assert_eq!(Parity::ALL.map(encode_parity), [1, 2, 3, 4, 5]);
        assert_eq!(StopBits::ALL.map(encode_stop_bits), [1, 3, 2]);
        assert_eq!(FlowControl::ALL.map(encode_flow_control), [1, 3, 2]);
        assert_eq!(FlowControl::ALL.map(encode_inbound_flow_control), [14, 16, 15]);
        for value in 0..=u8::MAX {
            assert_eq!(
                decode_parity(value).map(encode_parity),
                Some(value).filter(|value| (1..=5).contains(value))
            );
            assert_eq!(
                decode_stop_bits(value).map(encode_stop_bits),
                Some(value).filter(|value| (1..=3).contains(value))
            );
            assert_eq!(
                decode_flow_control(value).map(encode_flow_control),
                Some(value).filter(|value| (1..=3).contains(value))
            );
            assert_eq!(
                decode_purge(value).map(encode_purge),
                Some(value).filter(|value| (1..=3).contains(value))
            );
            let (of, on) = decode_signal(value).unzip();
            let encoded = on.flatten().map(|on| encode_signal(of.unwrap_or(OutputSignal::Dtr), on));
            assert_eq!(encoded, Some(value).filter(|value| matches!(value, 5 | 6 | 8 | 9 | 11 | 12)));
            assert_eq!(decode_data_bits(value), Some(value).filter(|value| (5..=8).contains(value)));
        }
        assert_eq!(decode_baud(b"\x00\x00\x4b\x00\x00\x00\x00\x00"), Some(19200), "four zeros too many");
        assert_eq!(decode_baud(b"\x00\x4b"), None);
    }

    #[test]
    fn states_have_current_and_changed_bits() {
        let all = ModemLines { cts: true, dsr: true, ri: true, cd: true };
        assert_eq!(encode_modem_state(all, all), 0xf0);
        assert_eq!(
            encode_modem_state(all, ModemLines::default()),
            0xfb,
            "a ring that begins is no trailing edge"
        );
        assert_eq!(encode_modem_state(ModemLines::default(), all), 0x0f);
        assert_eq!(decode_modem_state(0xff), all);
        assert_eq!(decode_modem_state(0x0f), ModemLines::default());
        let one = UartErrors { framing: 1, parity: 2, breaks: 3, overruns: 4 };
        assert_eq!(encode_line_state(one, UartErrors::default()), line_state_bit::ERRORS);
        assert_eq!(encode_line_state(one, UartErrors { overruns: 3, ..one }), line_state_bit::OVERRUN);
        let mut counted = UartErrors::default();
        count_errors(0xff, &mut counted);
        count_errors(0x61, &mut counted);
        assert_eq!(counted, UartErrors { framing: 1, parity: 1, breaks: 1, overruns: 1 });
    }
}
