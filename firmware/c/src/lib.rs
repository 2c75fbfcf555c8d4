//! `linkgauge-responder` for C: one function for each of `include/linkgauge_responder.h`, which documents them.
//!
//! The unsafe code is here alone: a pointer of C becomes a reference. Each state is written whole by its init function before
//! anything else uses it, and is no larger than its struct in the header, which the assertions below check.
#![no_std]
// The header states what a caller must keep.
#![allow(clippy::missing_safety_doc)]

use core::mem::{align_of, size_of};
use core::slice::{from_raw_parts, from_raw_parts_mut};

use linkgauge_responder::chargen::Generator;
use linkgauge_responder::linx::DeviceNode;
use linkgauge_responder::session::{Device, PacketSessions, StreamSessions};
use linkgauge_responder::stamp::{TestReflector, error_estimate_of_tick, set_sent};

type Packets = PacketSessions<4>;
type Stamp = TestReflector<8>;
type Linx = DeviceNode<16_388, 1>;

/// Whether a state fits the words of its struct in C.
const fn fits<T>(words: usize) -> bool {
    size_of::<T>() <= 8 * words && align_of::<T>() <= 8
}

const _: () = assert!(fits::<StreamSessions>(24));
const _: () = assert!(fits::<Packets>(64));
const _: () = assert!(fits::<Stamp>(16));
const _: () = assert!(fits::<Generator>(1));
const _: () = assert!(fits::<Linx>(2240));

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

const fn device(max_message_bytes: u32, tick_ns: u32) -> Device {
    Device { max_message_bytes, tick_ns }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lg_stream_init(stream: *mut StreamSessions, max_message_bytes: u32, tick_ns: u32) {
    unsafe { stream.write(StreamSessions::new(device(max_message_bytes, tick_ns))) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lg_stream_on_bytes(
    stream: *mut StreamSessions,
    now_ns: u64,
    input: *const u8,
    length: usize,
    consumed: *mut usize,
    output: *mut u8,
    room: usize,
) -> usize {
    unsafe {
        let (input, output) = (from_raw_parts(input, length), from_raw_parts_mut(output, room));
        let progress = (*stream).on_bytes(now_ns, input, output);
        consumed.write(progress.consumed);
        progress.produced
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lg_packets_init(packets: *mut Packets, max_message_bytes: u32, tick_ns: u32) {
    unsafe { packets.write(Packets::new(device(max_message_bytes, tick_ns))) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lg_packets_on_packet(
    packets: *mut Packets,
    now_ns: u64,
    sender: u32,
    packet: *mut u8,
    length: usize,
) -> usize {
    unsafe { (*packets).on_packet(now_ns, sender, from_raw_parts_mut(packet, length)).unwrap_or(0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lg_stamp_init(stamp: *mut Stamp, tick_ns: u32) {
    unsafe { stamp.write(Stamp::new(error_estimate_of_tick(tick_ns))) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lg_stamp_on_packet(
    stamp: *mut Stamp,
    received_ns: u64,
    sender: u32,
    packet: *mut u8,
    length: usize,
) -> bool {
    unsafe { (*stamp).on_packet(received_ns, sender, from_raw_parts_mut(packet, length)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lg_stamp_set_sent(packet: *mut u8, length: usize, sent_ns: u64) {
    unsafe { set_sent(from_raw_parts_mut(packet, length), sent_ns) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lg_chargen_init(chargen: *mut Generator) {
    unsafe { chargen.write(Generator::default()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lg_chargen_fill(chargen: *mut Generator, output: *mut u8, length: usize) {
    unsafe { (*chargen).fill(from_raw_parts_mut(output, length)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lg_linx_init(linx: *mut Linx, mac: *const [u8; 6]) {
    unsafe { linx.write(Linx::new(*mac)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lg_linx_on_frame(linx: *mut Linx, now_ns: u64, frame: *const u8, length: usize) {
    unsafe { (*linx).on_frame(now_ns, from_raw_parts(frame, length)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lg_linx_poll(linx: *mut Linx, now_ns: u64, frame: *mut u8) -> usize {
    unsafe { (*linx).poll(now_ns, from_raw_parts_mut(frame, 1514)).unwrap_or(0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lg_linx_next_due(linx: *const Linx) -> u64 {
    unsafe { (*linx).next_due() }
}
