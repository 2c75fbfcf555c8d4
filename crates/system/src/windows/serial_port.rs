//! A serial port of this host (`COM3`), used exclusively. Its state is restored on close.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::AsRawHandle;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use windows_sys::Win32::Devices::Communication::{
    CE_BREAK, CE_FRAME, CE_OVERRUN, CE_RXOVER, CE_RXPARITY, CLRBREAK, CLRDTR, CLRRTS, COMMTIMEOUTS, COMSTAT,
    ClearCommError, DCB, EscapeCommFunction, GetCommModemStatus, GetCommState, GetCommTimeouts, MS_CTS_ON,
    MS_DSR_ON, MS_RING_ON, MS_RLSD_ON, PURGE_RXABORT, PURGE_RXCLEAR, PURGE_TXABORT, PURGE_TXCLEAR, PurgeComm,
    SETBREAK, SETDTR, SETRTS, SetCommState, SetCommTimeouts,
};
use windows_sys::Win32::Foundation::{
    CloseHandle, ERROR_ACCESS_DENIED, ERROR_FILE_NOT_FOUND, ERROR_IO_PENDING, ERROR_PATH_NOT_FOUND,
    ERROR_SHARING_VIOLATION, HANDLE,
};
use windows_sys::Win32::Storage::FileSystem::{FILE_FLAG_OVERLAPPED, ReadFile, WriteFile};
use windows_sys::Win32::System::IO::{GetOverlappedResult, OVERLAPPED};
use windows_sys::Win32::System::Threading::CreateEventW;

use super::error::Errno;
use super::line_modes::{line_of, settings_of};
use super::poll_flags::PollFlags;
use crate::serial_port::{PortError, Rs485};
use crate::serial_settings::{ModemLines, OutputSignal, PurgeTarget, SerialSettings, UartErrors};

/// An open port.
#[derive(Debug)]
pub struct SerialPort {
    file: File,
    path: PathBuf,
    before: Saved,
    /// Bytes that a wait for input has read.
    ahead: Mutex<Vec<u8>>,
    errors: Mutex<UartErrors>,
}

/// State to restore on close.
struct Saved {
    line: DCB,
    timeouts: COMMTIMEOUTS,
}

impl std::fmt::Debug for Saved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Saved").field("rate", &self.line.BaudRate).finish_non_exhaustive()
    }
}

/// The name of a port in a path, like `COM3`.
pub(crate) fn port_name(path: &Path) -> Option<String> {
    let text = path.as_os_str().to_str()?;
    let name =
        text.strip_prefix(r"\\.\").unwrap_or(text).trim_start_matches(['/', '\\']).to_ascii_uppercase();
    let number = name.strip_prefix("COM")?;
    number.parse::<u8>().is_ok_and(|number| number > 0).then_some(name)
}

/// What the address of a port is.
pub const PORT_ADDRESS: &str = "the name of a port: serial://COM3";

/// Whether a text can be the address of a port.
pub fn is_port_address(text: &str) -> bool {
    port_name(Path::new(text)).is_some()
}

/// A port without its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortHandle(usize);

impl PortHandle {
    fn handle(self) -> HANDLE {
        self.0 as HANDLE
    }

    /// Errors since the last call, and the queues.
    fn status(self) -> Option<(u32, COMSTAT)> {
        // SAFETY: a C structure of integers.
        let mut status: COMSTAT = unsafe { std::mem::zeroed() };
        let mut errors = 0;
        // SAFETY: the call writes one number and one structure.
        let result = unsafe { ClearCommError(self.handle(), &mut errors, &mut status) };
        (result != 0).then_some((errors, status))
    }

    /// What of `wanted` is so now. A port that is gone has ended.
    pub(crate) fn readiness(self, wanted: PollFlags) -> PollFlags {
        let Some((_, status)) = self.status() else { return PollFlags::HUP };
        let mut ready = PollFlags::empty();
        if wanted.contains(PollFlags::IN) && status.cbInQue > 0 {
            ready |= PollFlags::IN;
        }
        if wanted.contains(PollFlags::OUT) {
            ready |= PollFlags::OUT;
        }
        ready
    }
}

/// A write ends after this time, whatever the flow control says, with what it has written.
const WRITE_TIMEOUT_MS: u32 = 100;

/// Timeouts of the port with which a read waits for its first byte, at most this long.
fn timeouts(millis: u32) -> COMMTIMEOUTS {
    COMMTIMEOUTS {
        ReadIntervalTimeout: u32::MAX,
        ReadTotalTimeoutMultiplier: u32::MAX,
        ReadTotalTimeoutConstant: millis.clamp(1, u32::MAX - 1),
        WriteTotalTimeoutMultiplier: 0,
        WriteTotalTimeoutConstant: WRITE_TIMEOUT_MS,
    }
}

/// An event for one operation of the port.
struct Event(HANDLE);

impl Event {
    fn new() -> Result<Event, Errno> {
        // SAFETY: the call takes no pointers that it uses.
        let event = unsafe { CreateEventW(std::ptr::null(), 1, 0, std::ptr::null()) };
        if event.is_null() { Err(Errno::last()) } else { Ok(Event(event)) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the handle is that of an event of ours.
        unsafe { CloseHandle(self.0) };
    }
}

impl SerialPort {
    /// Opens the port, whose settings stay as they are.
    ///
    /// # Errors
    ///
    /// [`PortError`].
    pub fn open(path: &Path) -> Result<SerialPort, PortError> {
        let name = port_name(path).ok_or(PortError::NotFound)?;
        let path = PathBuf::from(format!(r"\\.\{name}"));
        let mut options = OpenOptions::new();
        options.read(true).write(true).share_mode(0).custom_flags(FILE_FLAG_OVERLAPPED);
        let file = options.open(&path).map_err(|error| match error.raw_os_error().unwrap_or(0) as u32 {
            ERROR_ACCESS_DENIED | ERROR_SHARING_VIOLATION => PortError::InUse,
            ERROR_FILE_NOT_FOUND | ERROR_PATH_NOT_FOUND => PortError::NotFound,
            _ => PortError::Open(error),
        })?;
        // SAFETY: C structures of integers.
        let (mut line, mut saved): (DCB, COMMTIMEOUTS) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        line.DCBlength = size_of::<DCB>() as u32;
        // SAFETY: the calls write one structure each; the handle belongs to `file`.
        let results = unsafe {
            [
                GetCommState(file.as_raw_handle(), &mut line),
                GetCommTimeouts(file.as_raw_handle(), &mut saved),
                SetCommTimeouts(file.as_raw_handle(), &timeouts(1)),
            ]
        };
        if results.contains(&0) {
            return Err(PortError::NotAPort);
        }
        let before = Saved { line, timeouts: saved };
        Ok(SerialPort {
            file,
            path: PathBuf::from(name),
            before,
            ahead: Mutex::default(),
            errors: Mutex::default(),
        })
    }

    pub(crate) fn raw(&self) -> PortHandle {
        PortHandle(self.file.as_raw_handle() as usize)
    }

    fn handle(&self) -> HANDLE {
        self.file.as_raw_handle()
    }

    /// Whether no other program has used the port: the system opens a port once only.
    pub fn lock(&self) -> bool {
        true
    }

    /// The name of the port.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Numbers of the device, which this system does not have.
    pub fn device_number(&self) -> (u32, u32) {
        (0, 0)
    }

    /// Whether a program is at the other side, which this system does not tell.
    pub fn is_pseudo_terminal(&self) -> bool {
        false
    }

    /// The effective settings of the line.
    ///
    /// # Errors
    ///
    /// The port is gone.
    pub fn settings(&self) -> io::Result<SerialSettings> {
        Ok(settings_of(&self.line()?))
    }

    fn line(&self) -> io::Result<DCB> {
        // SAFETY: a C structure of integers.
        let mut line: DCB = unsafe { std::mem::zeroed() };
        line.DCBlength = size_of::<DCB>() as u32;
        // SAFETY: the call writes one structure.
        match unsafe { GetCommState(self.handle(), &mut line) } {
            0 => Err(io::Error::last_os_error()),
            _ => Ok(line),
        }
    }

    /// Sets the line; returns the effective settings, which may be others: some drivers replace a rate that they lack.
    ///
    /// # Errors
    ///
    /// The driver refuses them, or the port is gone.
    pub fn configure(&self, wanted: &SerialSettings) -> io::Result<SerialSettings> {
        let line = line_of(self.line()?, wanted);
        // SAFETY: the call reads one structure.
        match unsafe { SetCommState(self.handle(), &line) } {
            0 => Err(io::Error::last_os_error()),
            _ => self.settings(),
        }
    }

    /// Whether the driver delivers received data at once, which this system does not tell.
    pub fn is_low_latency(&self) -> Option<bool> {
        None
    }

    /// Makes the driver deliver received data at once.
    ///
    /// # Errors
    ///
    /// Always: it is a setting of the device manager.
    pub fn set_low_latency(&mut self, _on: bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Way in which the driver switches a half-duplex line, which this system does not tell.
    pub fn rs485(&self) -> Option<Rs485> {
        None
    }

    /// Makes the driver switch a half-duplex line.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn set_rs485(&mut self, _wanted: Rs485) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sets or clears an output.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Unsupported`] if the port lacks it.
    pub fn set_signal(&self, signal: OutputSignal, on: bool) -> io::Result<()> {
        let function = match (signal, on) {
            (OutputSignal::Dtr, true) => SETDTR,
            (OutputSignal::Dtr, false) => CLRDTR,
            (OutputSignal::Rts, true) => SETRTS,
            (OutputSignal::Rts, false) => CLRRTS,
            (OutputSignal::Break, true) => SETBREAK,
            (OutputSignal::Break, false) => CLRBREAK,
        };
        // SAFETY: the call takes numbers.
        match unsafe { EscapeCommFunction(self.handle(), function) } {
            0 => Err(io::ErrorKind::Unsupported.into()),
            _ => Ok(()),
        }
    }

    /// The inputs, if the port has any.
    pub fn modem_lines(&self) -> Option<ModemLines> {
        let mut lines = 0;
        // SAFETY: the call writes one number.
        let result = unsafe { GetCommModemStatus(self.handle(), &mut lines) };
        let is_on = |line: u32| lines & line != 0;
        (result != 0).then(|| ModemLines {
            cts: is_on(MS_CTS_ON),
            dsr: is_on(MS_DSR_ON),
            ri: is_on(MS_RING_ON),
            cd: is_on(MS_RLSD_ON),
        })
    }

    /// The calls since the port was opened that reported an error: the system counts no characters.
    pub fn uart_errors(&self) -> Option<UartErrors> {
        self.status()?;
        Some(*lock(&self.errors))
    }

    /// The queues; counts the errors that the system reports with them, once.
    fn status(&self) -> Option<COMSTAT> {
        let (reported, status) = self.raw().status()?;
        if reported != 0 {
            let mut errors = lock(&self.errors);
            let has = |error: u32| u64::from(reported & error != 0);
            errors.framing += has(CE_FRAME);
            errors.parity += has(CE_RXPARITY);
            errors.breaks += has(CE_BREAK);
            errors.overruns += has(CE_OVERRUN) + has(CE_RXOVER);
        }
        Some(status)
    }

    /// Bytes that wait to be read.
    pub(crate) fn unread_bytes(&self) -> Option<u64> {
        Some(u64::from(self.status()?.cbInQue) + lock(&self.ahead).len() as u64)
    }

    /// Bytes that wait to be sent.
    pub(crate) fn unsent_bytes(&self) -> Option<u64> {
        Some(self.status()?.cbOutQue.into())
    }

    /// Discards the contents of the port's buffers.
    ///
    /// # Errors
    ///
    /// The port is gone.
    pub fn purge(&self, target: PurgeTarget) -> io::Result<()> {
        let (received, to_send) = (PURGE_RXABORT | PURGE_RXCLEAR, PURGE_TXABORT | PURGE_TXCLEAR);
        let flags = match target {
            PurgeTarget::Received => received,
            PurgeTarget::ToSend => to_send,
            PurgeTarget::Both => received | to_send,
        };
        if target != PurgeTarget::ToSend {
            lock(&self.ahead).clear();
        }
        // SAFETY: the call takes numbers.
        match unsafe { PurgeComm(self.handle(), flags) } {
            0 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Waits until the port is ready for what is wanted, at most this long.
    pub(crate) fn wait(&self, wanted: PollFlags, within: Duration) -> PollFlags {
        let ready = self.readiness(wanted);
        if !ready.is_empty() || within.is_zero() {
            return ready;
        }
        if !wanted.contains(PollFlags::IN) {
            std::thread::sleep(within);
            return self.readiness(wanted);
        }
        let millis = u32::try_from(within.as_micros().div_ceil(1000)).unwrap_or(u32::MAX);
        let mut first = [0];
        // SAFETY: the call reads one structure.
        unsafe { SetCommTimeouts(self.handle(), &timeouts(millis)) };
        match self.read_now(&mut first) {
            Ok(0) => PollFlags::empty(),
            Ok(_) => {
                lock(&self.ahead).extend(first);
                PollFlags::IN
            }
            Err(_) => PollFlags::HUP,
        }
    }

    /// What of `wanted` is so now.
    pub(crate) fn readiness(&self, wanted: PollFlags) -> PollFlags {
        let ready = self.raw().readiness(wanted);
        let has_ahead = wanted.contains(PollFlags::IN) && !lock(&self.ahead).is_empty();
        if has_ahead { ready | PollFlags::IN } else { ready }
    }

    /// Writes what the port takes in a short time.
    ///
    /// # Errors
    ///
    /// [`Errno::AGAIN`] if it takes nothing.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        /// The port may take its time for each byte.
        const MAX_PART: usize = 1024;
        let part = &bytes[..bytes.len().min(MAX_PART)];
        let written = self.operate(|handle, overlapped| {
            // SAFETY: `part` lives until the operation is complete, for which `operate` waits.
            unsafe { WriteFile(handle, part.as_ptr(), part.len() as u32, std::ptr::null_mut(), overlapped) }
        })?;
        if written == 0 && !part.is_empty() { Err(Errno::AGAIN) } else { Ok(written) }
    }

    /// Reads what has arrived.
    ///
    /// # Errors
    ///
    /// [`Errno::AGAIN`] if nothing has arrived.
    pub fn read(&self, into: &mut [u8]) -> Result<usize, Errno> {
        let mut ahead = lock(&self.ahead);
        let first = ahead.len().min(into.len());
        into[..first].copy_from_slice(&ahead[..first]);
        ahead.drain(..first);
        drop(ahead);
        let waiting = self.status().ok_or(Errno::IO)?.cbInQue as usize;
        let rest = &mut into[first..];
        let more = waiting.min(rest.len());
        let more = if more > 0 { self.read_now(&mut rest[..more])? } else { 0 };
        if first + more == 0 { Err(Errno::AGAIN) } else { Ok(first + more) }
    }

    /// Reads at least one byte, unless the timeout of the port passes.
    fn read_now(&self, into: &mut [u8]) -> Result<usize, Errno> {
        self.operate(|handle, overlapped| {
            // SAFETY: `into` lives until the operation is complete, for which `operate` waits.
            unsafe {
                ReadFile(handle, into.as_mut_ptr(), into.len() as u32, std::ptr::null_mut(), overlapped)
            }
        })
    }

    /// Starts an operation and waits until it is complete. Reads and writes do not wait for each other.
    fn operate(&self, start: impl FnOnce(HANDLE, *mut OVERLAPPED) -> i32) -> Result<usize, Errno> {
        let event = Event::new()?;
        // SAFETY: a C structure of integers and pointers.
        let mut overlapped: OVERLAPPED = unsafe { std::mem::zeroed() };
        overlapped.hEvent = event.0;
        if start(self.handle(), &mut overlapped) == 0 {
            let errno = Errno::last();
            if errno.raw_os_error() as u32 != ERROR_IO_PENDING {
                return Err(gone(errno));
            }
        }
        let mut bytes = 0;
        // SAFETY: the operation was started with this structure, which lives until it is complete.
        match unsafe { GetOverlappedResult(self.handle(), &overlapped, &mut bytes, 1) } {
            0 => Err(gone(Errno::last())),
            _ => Ok(bytes as usize),
        }
    }
}

/// The error of a port that is gone has several numbers.
fn gone(errno: Errno) -> Errno {
    match errno.raw_os_error() as u32 {
        ERROR_ACCESS_DENIED => Errno::IO,
        _ => errno,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for SerialPort {
    fn drop(&mut self) {
        let _ = self.purge(PurgeTarget::Both);
        let _ = self.set_signal(OutputSignal::Break, false);
        // SAFETY: the calls read one structure each.
        unsafe {
            SetCommState(self.handle(), &self.before.line);
            SetCommTimeouts(self.handle(), &self.before.timeouts);
        }
    }
}

/// The names of the ports of this host.
pub fn port_names() -> Vec<String> {
    (1..=u8::MAX).map(|number| format!("COM{number}")).filter(|name| is_device(OsStr::new(name))).collect()
}

fn is_device(name: &OsStr) -> bool {
    use std::os::windows::ffi::OsStrExt;
    use windows_sys::Win32::Storage::FileSystem::QueryDosDeviceW;
    let name: Vec<u16> = name.encode_wide().chain([0]).collect();
    let mut target = [0u16; 512];
    // SAFETY: the name ends in zero; `target` is valid for writes of the stated length.
    unsafe { QueryDosDeviceW(name.as_ptr(), target.as_mut_ptr(), target.len() as u32) > 0 }
}
