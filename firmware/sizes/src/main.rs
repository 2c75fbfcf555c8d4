//! An image with one service and nothing else, so that its sections are those of the service: `firmware/measure`.
#![no_std]
#![no_main]

use core::hint::black_box;

use linkgauge_responder::{Discard, chargen, linx, session, stamp};

const DEVICE: session::Device = session::Device { max_message_bytes: 1472, tick_ns: 80 };

static mut DISCARD: Discard = Discard { bytes: 0 };
static mut GENERATOR: Option<chargen::Generator> = None;
static mut CHECKER: Option<chargen::LineChecker> = None;
static mut STAMP: stamp::TestReflector<8> = stamp::TestReflector::new(1);
static mut STREAM: session::StreamSessions = session::StreamSessions::new(DEVICE);
static mut PACKETS: session::PacketSessions<4> = session::PacketSessions::new(DEVICE);
static mut LINX: linx::DeviceNode<{ 16 * 1024 + 4 }, 1> = linx::DeviceNode::new([0; 6]);

/// A mutable reference to a static of this file.
macro_rules! state {
    ($name:ident) => {{
        let state = &raw mut $name;
        // SAFETY: nothing runs this image.
        unsafe { &mut *state }
    }};
}

#[unsafe(no_mangle)]
extern "C" fn reset(input: &mut [u8; 1514], output: &mut [u8; 1514], length: usize, now: u64) {
    let length = length.min(1514);
    if cfg!(feature = "echo") {
        black_box(linkgauge_responder::echo(&input[..length], output));
    }
    if cfg!(feature = "discard") {
        state!(DISCARD).on_bytes(&input[..length]);
    }
    if cfg!(feature = "chargen") {
        state!(GENERATOR).get_or_insert_default().fill(&mut output[..length]);
    }
    if cfg!(feature = "check") {
        black_box(state!(CHECKER).get_or_insert_default().count_wrong(&input[..length]));
    }
    if cfg!(feature = "stamp") {
        black_box(state!(STAMP).on_packet(now, length as u32, &mut input[..length]));
        stamp::set_sent(input, now);
    }
    if cfg!(feature = "device-stream") {
        black_box(state!(STREAM).on_bytes(now, &input[..length], output));
    }
    if cfg!(feature = "device-packets") {
        black_box(state!(PACKETS).on_packet(now, length as u32, &mut input[..length]));
    }
    if cfg!(feature = "linx") {
        state!(LINX).on_frame(now, &input[..length]);
        black_box(state!(LINX).poll(now, output));
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
