//! The board: vectors, start, clock, UARTs and the Ethernet MAC. This is what a port to another board replaces.
//!
//! Registers as in the data sheet of the LM3S6965 and in QEMU's `stellaris_enet`. A real board needs its clocks and pins
//! switched on first, which QEMU does not.

use core::ptr::{read_volatile, write_volatile};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Nanoseconds of one tick of the system timer: 12.5 MHz.
pub const TICK_NS: u32 = 80;
/// The timer has 24 bits.
const TIMER_MASK: u32 = (1 << 24) - 1;

const UART_BASES: [usize; 3] = [0x4000_c000, 0x4000_d000, 0x4000_e000];
const ETHERNET: usize = 0x4004_8000;
const SYSTICK: usize = 0xe000_e010;

fn read(address: usize) -> u32 {
    // SAFETY: the addresses of this file are those of registers.
    unsafe { read_volatile(address as *const u32) }
}

fn write(address: usize, value: u32) {
    // SAFETY: as for `read`.
    unsafe { write_volatile(address as *mut u32, value) }
}

/// What no vector serves, and a panic, end here; a debugger shows which.
extern "C" fn halt() {
    loop {
        core::hint::spin_loop();
    }
}

unsafe extern "C" {
    static mut data_start: u32;
    static data_end: u32;
    static data_image: u32;
    static mut bss_start: u32;
    static bss_end: u32;
}

/// The vectors behind the first, which is the end of the stack.
#[unsafe(link_section = ".vectors")]
#[used]
static VECTORS: [extern "C" fn(); 15] = {
    let mut vectors: [extern "C" fn(); 15] = [halt; 15];
    vectors[0] = reset;
    vectors
};

#[unsafe(no_mangle)]
extern "C" fn reset() {
    // SAFETY: nothing runs yet; the linker script gives the bounds.
    unsafe {
        let (start, image) = (&raw mut data_start, &raw const data_image);
        for word in 0..(&raw const data_end).offset_from(start) {
            start.offset(word).write_volatile(image.offset(word).read());
        }
        let start = &raw mut bss_start;
        for word in 0..(&raw const bss_end).offset_from(start) {
            start.offset(word).write_volatile(0);
        }
    }
    write(SYSTICK + 4, TIMER_MASK);
    write(SYSTICK + 8, 0);
    write(SYSTICK, 5);
    crate::run()
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// Nanoseconds since the start. The timer counts down from 2²⁴ − 1, again and again, so that this is called at least once a second;
/// no interrupt is needed, and the time never goes back.
pub fn now_ns() -> u64 {
    static LATEST: AtomicU32 = AtomicU32::new(TIMER_MASK);
    static TICKS: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];
    let value = read(SYSTICK + 8) & TIMER_MASK;
    let passed = LATEST.load(Relaxed).wrapping_sub(value) & TIMER_MASK;
    LATEST.store(value, Relaxed);
    let [low, high] = &TICKS;
    let (sum, carry) = low.load(Relaxed).overflowing_add(passed);
    low.store(sum, Relaxed);
    high.store(high.load(Relaxed) + u32::from(carry), Relaxed);
    (u64::from(high.load(Relaxed)) << 32 | u64::from(sum)) * u64::from(TICK_NS)
}

/// A serial port, polled.
#[derive(Clone, Copy)]
pub struct Uart(usize);

impl Uart {
    /// Switches a port on.
    pub fn open(number: usize) -> Uart {
        write(UART_BASES[number] + 0x30, 0x301);
        Uart(UART_BASES[number])
    }

    /// Reads what has arrived, as much as fits.
    pub fn read(self, into: &mut [u8]) -> usize {
        let mut count = 0;
        while count < into.len() && read(self.0 + 0x18) & 1 << 4 == 0 {
            into[count] = read(self.0) as u8;
            count += 1;
        }
        count
    }

    /// Writes everything; waits for the line.
    pub fn write(self, bytes: &[u8]) {
        for byte in bytes {
            while read(self.0 + 0x18) & 1 << 5 != 0 {}
            write(self.0, u32::from(*byte));
        }
    }
}

/// Switches the MAC on and sets its address.
pub fn open_ethernet(mac: [u8; 6]) {
    write(ETHERNET + 0x14, u32::from_le_bytes([mac[0], mac[1], mac[2], mac[3]]));
    write(ETHERNET + 0x18, u32::from(mac[4]) | u32::from(mac[5]) << 8);
    write(ETHERNET + 0x08, 1);
    write(ETHERNET + 0x0c, 1);
}

/// Takes a received frame out of the MAC; returns its length, without the checksum.
pub fn receive_frame(into: &mut [u8]) -> Option<usize> {
    if read(ETHERNET + 0x34) & 0x3f == 0 {
        return None;
    }
    // The first word has the length, which counts itself and the checksum, and the first two bytes.
    let first = read(ETHERNET + 0x10);
    let length = ((first & 0xffff) as usize).saturating_sub(6);
    if let Some(place) = into.get_mut(..2) {
        place.copy_from_slice(&first.to_le_bytes()[2..]);
    }
    // The FIFO is read to its end: length and checksum fill whole words.
    for word in 0..(length + 4 + 2).div_ceil(4) - 1 {
        let bytes = read(ETHERNET + 0x10).to_le_bytes();
        if let Some(place) = into.get_mut(2 + 4 * word..6 + 4 * word) {
            place.copy_from_slice(&bytes);
        }
    }
    (length <= into.len()).then_some(length)
}

/// Sends a frame; short ones are padded.
pub fn send_frame(frame: &[u8]) {
    let length = frame.len().max(60);
    let byte = |at: usize| frame.get(at).copied().unwrap_or(0);
    let [low, high] = ((length - 14) as u16).to_le_bytes();
    write(ETHERNET + 0x10, u32::from_le_bytes([low, high, byte(0), byte(1)]));
    for at in (2..length).step_by(4) {
        let whole = frame.get(at..).and_then(|rest| rest.first_chunk()).copied();
        let bytes = whole.unwrap_or_else(|| [byte(at), byte(at + 1), byte(at + 2), byte(at + 3)]);
        write(ETHERNET + 0x10, u32::from_le_bytes(bytes));
    }
    write(ETHERNET + 0x38, 1);
}
