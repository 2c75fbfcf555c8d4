//! Settings of a serial line from and to those of the system.

use windows_sys::Win32::Devices::Communication::{
    DCB, EVENPARITY, MARKPARITY, NOPARITY, ODDPARITY, ONE5STOPBITS, ONESTOPBIT, SPACEPARITY, TWOSTOPBITS,
};

use crate::serial_settings::{FlowControl, Parity, SerialSettings, StopBits, XOFF, XON};

/// The bits of the structure, in the order of its documents.
const BINARY: u32 = 1;
const PARITY: u32 = 1 << 1;
const CTS_FLOW: u32 = 1 << 2;
const XON_XOFF_OUT: u32 = 1 << 8;
const XON_XOFF_IN: u32 = 1 << 9;
/// DTR and RTS on; RTS by the state of the buffer.
const DTR_ON: u32 = 1 << 4;
const RTS_ON: u32 = 1 << 12;
const RTS_FLOW: u32 = 2 << 12;

/// The settings of a line.
pub(crate) fn settings_of(line: &DCB) -> SerialSettings {
    let flow_control = if line._bitfield & CTS_FLOW != 0 {
        FlowControl::RtsCts
    } else if line._bitfield & (XON_XOFF_IN | XON_XOFF_OUT) != 0 {
        FlowControl::XonXoff
    } else {
        FlowControl::None
    };
    SerialSettings {
        baud: line.BaudRate,
        data_bits: line.ByteSize,
        parity: match line.Parity {
            ODDPARITY => Parity::Odd,
            EVENPARITY => Parity::Even,
            MARKPARITY => Parity::Mark,
            SPACEPARITY => Parity::Space,
            _ => Parity::None,
        },
        stop_bits: match line.StopBits {
            ONE5STOPBITS => StopBits::OneAndHalf,
            TWOSTOPBITS => StopBits::Two,
            _ => StopBits::One,
        },
        flow_control,
    }
}

/// A line with these settings; what they do not name stays as it is.
pub(crate) fn line_of(before: DCB, wanted: &SerialSettings) -> DCB {
    let flow = match wanted.flow_control {
        FlowControl::None => RTS_ON,
        FlowControl::RtsCts => CTS_FLOW | RTS_FLOW,
        FlowControl::XonXoff => RTS_ON | XON_XOFF_IN | XON_XOFF_OUT,
    };
    let parity = if wanted.parity == Parity::None { 0 } else { PARITY };
    DCB {
        BaudRate: wanted.baud,
        _bitfield: BINARY | DTR_ON | flow | parity,
        ByteSize: wanted.data_bits,
        Parity: match wanted.parity {
            Parity::None => NOPARITY,
            Parity::Odd => ODDPARITY,
            Parity::Even => EVENPARITY,
            Parity::Mark => MARKPARITY,
            Parity::Space => SPACEPARITY,
        },
        StopBits: match wanted.stop_bits {
            StopBits::One => ONESTOPBIT,
            StopBits::OneAndHalf => ONE5STOPBITS,
            StopBits::Two => TWOSTOPBITS,
        },
        XonChar: XON.cast_signed(),
        XoffChar: XOFF.cast_signed(),
        ..before
    }
}
