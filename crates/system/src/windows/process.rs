//! This process, its limits, and others that it ends.

use std::ffi::OsString;
use std::io;
use std::os::windows::ffi::OsStringExt;
use std::os::windows::io::AsRawHandle;
use std::os::windows::process::CommandExt;
use std::process::{Child, Command};

use windows_sys::Win32::Security::Cryptography::{BCRYPT_USE_SYSTEM_PREFERRED_RNG, BCryptGenRandom};
use windows_sys::Win32::System::Console::{CTRL_BREAK_EVENT, GenerateConsoleCtrlEvent};
use windows_sys::Win32::System::Pipes::{PIPE_NOWAIT, SetNamedPipeHandleState};
use windows_sys::Win32::System::SystemInformation::{
    ComputerNamePhysicalDnsHostname, GetComputerNameExW, GetNativeSystemInfo, OSVERSIONINFOW,
    PROCESSOR_ARCHITECTURE_AMD64, PROCESSOR_ARCHITECTURE_ARM64, SYSTEM_INFO,
};
use windows_sys::Win32::System::Threading::CREATE_NEW_PROCESS_GROUP;

/// A number for the user whose rights this process has: users have no numbers here, and 0 is root elsewhere.
pub fn effective_user() -> u32 {
    1
}

/// A number for the user who started this process.
pub fn real_user() -> u32 {
    effective_user()
}

/// The name of this host.
pub fn host_name() -> Option<String> {
    let mut name = [0u16; 256];
    let mut characters = name.len() as u32;
    // SAFETY: `name` is valid for writes of the stated length.
    let result =
        unsafe { GetComputerNameExW(ComputerNamePhysicalDnsHostname, name.as_mut_ptr(), &mut characters) };
    let text = name.get(..characters as usize).filter(|_| result != 0)?;
    OsString::from_wide(text).into_string().ok()
}

/// The version and the build of the system.
pub fn kernel_release() -> Option<String> {
    #[link(name = "ntdll")]
    unsafe extern "system" {
        fn RtlGetVersion(version: *mut OSVERSIONINFOW) -> i32;
    }
    // SAFETY: a C structure of integers.
    let mut version: OSVERSIONINFOW = unsafe { std::mem::zeroed() };
    version.dwOSVersionInfoSize = size_of::<OSVERSIONINFOW>() as u32;
    // SAFETY: the call writes one structure of the stated size.
    let result = unsafe { RtlGetVersion(&mut version) };
    let OSVERSIONINFOW { dwMajorVersion: major, dwMinorVersion: minor, dwBuildNumber: build, .. } = version;
    (result == 0).then(|| format!("{major}.{minor}.{build}"))
}

/// The architecture of the CPU.
pub fn architecture() -> Option<String> {
    // SAFETY: a C structure of integers and pointers.
    let mut system: SYSTEM_INFO = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes one structure; its union consists of integers.
    let kind = unsafe {
        GetNativeSystemInfo(&mut system);
        system.Anonymous.Anonymous.wProcessorArchitecture
    };
    match kind {
        PROCESSOR_ARCHITECTURE_AMD64 => Some("x86_64".to_owned()),
        PROCESSOR_ARCHITECTURE_ARM64 => Some("aarch64".to_owned()),
        _ => None,
    }
}

/// Does nothing: connections are not limited as open files are.
pub fn raise_open_file_limit() {}

/// Any number of files.
pub fn open_file_limits() -> [Option<u64>; 2] {
    [None; 2]
}

/// The highest real-time priority that this process may give itself, which this system does not limit by a number.
pub fn max_real_time_priority() -> Option<u64> {
    None
}

/// The signal of a closed terminal, which this system does not have.
pub const HANGUP_SIGNAL: Option<i32> = None;

/// Ends this process as by the signal that asks programs to end.
pub fn end_this_process() {
    unsafe extern "C" {
        fn raise(signal: i32) -> i32;
    }
    /// `SIGTERM` of signal.h.
    const TERMINATE: i32 = 15;
    // SAFETY: the call takes a number.
    unsafe { raise(TERMINATE) };
}

/// Starts the program in a process group of its own, so that Ctrl-C in the terminal does not reach it.
pub fn in_own_group(command: &mut Command) -> &mut Command {
    command.creation_flags(CREATE_NEW_PROCESS_GROUP)
}

/// Asks a child that leads a process group to end.
pub fn ask_to_end(child: &Child) {
    // SAFETY: the call takes numbers.
    unsafe { GenerateConsoleCtrlEvent(CTRL_BREAK_EVENT, child.id()) };
}

/// Ends a child.
pub fn kill_group(child: &Child) {
    // SAFETY: the handle belongs to the child, which is borrowed.
    unsafe { windows_sys::Win32::System::Threading::TerminateProcess(child.as_raw_handle(), 1) };
}

/// Unpredictable random bytes from the system.
///
/// # Panics
///
/// The system gives none.
pub fn random_bytes<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    // SAFETY: `bytes` is valid for writes of its length.
    let result = unsafe {
        BCryptGenRandom(
            std::ptr::null_mut(),
            bytes.as_mut_ptr(),
            BYTES as u32,
            BCRYPT_USE_SYSTEM_PREFERRED_RNG,
        )
    };
    assert_eq!(result, 0, "the system gives no random bytes");
    bytes
}

/// Makes reads and writes of a pipe return at once.
///
/// # Errors
///
/// The system refuses.
pub fn set_nonblocking<T: AsRawHandle>(pipe: &T) -> io::Result<()> {
    // SAFETY: the call reads one number; the handle is borrowed.
    let result = unsafe {
        SetNamedPipeHandleState(pipe.as_raw_handle(), &PIPE_NOWAIT, std::ptr::null(), std::ptr::null())
    };
    if result == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
