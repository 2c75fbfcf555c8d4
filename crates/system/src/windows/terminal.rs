//! The terminal of the program.

use std::io;
use std::os::windows::io::{AsHandle, AsRawHandle};
use std::time::Duration;

use windows_sys::Win32::Foundation::{ERROR_BROKEN_PIPE, ERROR_NO_DATA, WAIT_FAILED, WAIT_OBJECT_0};
use windows_sys::Win32::System::Console::{CONSOLE_SCREEN_BUFFER_INFO, GetConsoleScreenBufferInfo};
use windows_sys::Win32::System::Threading::WaitForSingleObject;

/// Columns and rows of a terminal.
pub fn terminal_size(terminal: impl AsHandle) -> Option<(u16, u16)> {
    // SAFETY: a C structure of integers.
    let mut info: CONSOLE_SCREEN_BUFFER_INFO = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes one structure; the handle is borrowed.
    let result = unsafe { GetConsoleScreenBufferInfo(terminal.as_handle().as_raw_handle(), &mut info) };
    let window = info.srWindow;
    let side = |from: i16, to: i16| u16::try_from(i32::from(to) - i32::from(from) + 1).ok();
    (result != 0).then_some(())?;
    Some((side(window.Left, window.Right)?, side(window.Top, window.Bottom)?))
}

/// Whether an error means that no program reads the standard output any more.
pub fn is_reader_gone(error: &io::Error) -> bool {
    let code = error.raw_os_error().unwrap_or(0) as u32;
    error.kind() == io::ErrorKind::BrokenPipe || [ERROR_BROKEN_PIPE, ERROR_NO_DATA].contains(&code)
}

/// Waits for input of the terminal at the standard input, at most this long. Returns whether there is any.
///
/// # Errors
///
/// The system refuses.
pub fn wait_for_keys(within: Duration) -> io::Result<bool> {
    let millis = u32::try_from(within.as_millis()).unwrap_or(u32::MAX - 1);
    let stdin = io::stdin();
    // SAFETY: the call takes numbers; the handle is borrowed.
    match unsafe { WaitForSingleObject(stdin.as_handle().as_raw_handle(), millis) } {
        WAIT_FAILED => Err(io::Error::last_os_error()),
        result => Ok(result == WAIT_OBJECT_0),
    }
}
