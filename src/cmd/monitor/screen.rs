//! The terminal view of a monitor: takes the whole screen, reads keys, and gives the screen back whatever happens.
//!
//! It draws only when something has changed, and only the cells that differ: a slow link carries some hundred bytes every ten
//! seconds.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Result, bail};
use jiff::tz::TimeZone;
use linkgauge::monitor::Live;
use linkgauge::system::{terminal_size, wait_for_keys};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

use super::view::{self, View};
use crate::cmd::output::supports_unicode;

/// How often the view looks for a new state. Keys are noticed at once.
const TICK: Duration = Duration::from_millis(200);

/// Checks that there is a terminal to draw on and to read keys from.
pub fn check() -> Result<()> {
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        bail!("--tui needs a terminal for input and output. Try without it, or the live page");
    }
    Ok(())
}

/// Shows the monitor until a key ends it or `stop` is set; sets `stop` at its end. Fails if the terminal has gone.
pub fn show(live: Arc<Live>, stop: &AtomicBool) -> io::Result<()> {
    let _ending = Ending(stop);
    let mut screen = TerminalScreen::enter()?;
    run(&mut screen.terminal, View::new(live, supports_unicode(), TimeZone::system()), stop)
}

/// Ends the monitor with its view, even after a panic.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

type ScreenTerminal = Terminal<CrosstermBackend<BufWriter<Stdout>>>;

/// The terminal while it belongs to the view.
struct TerminalScreen {
    // Without a destructor: that of ratatui panics where a terminal has gone.
    terminal: ManuallyDrop<ScreenTerminal>,
    _restoring: Restoring,
}

impl TerminalScreen {
    fn enter() -> io::Result<TerminalScreen> {
        restore_before_panic_messages();
        enable_raw_mode()?;
        let restoring = Restoring;
        execute!(io::stdout(), EnterAlternateScreen)?;
        let terminal = Terminal::new(CrosstermBackend::new(BufWriter::new(io::stdout())))?;
        Ok(TerminalScreen { terminal: ManuallyDrop::new(terminal), _restoring: restoring })
    }
}

/// Restores the terminal at its end.
struct Restoring;

impl Drop for Restoring {
    fn drop(&mut self) {
        restore();
    }
}

/// A terminal that has gone needs nothing.
fn restore() {
    let mut out = io::stdout();
    let _ = execute!(out, LeaveAlternateScreen, Show);
    let _ = out.flush();
    let _ = disable_raw_mode();
}

/// A panic of any thread is to be read on the screen that stays.
fn restore_before_panic_messages() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore();
        print(panic);
    }));
}

fn run(terminal: &mut ScreenTerminal, mut view: View, stop: &AtomicBool) -> io::Result<()> {
    let mut size = None;
    while !stop.load(Relaxed) {
        let window = terminal_size(io::stdout());
        let is_resized = std::mem::replace(&mut size, window) != window;
        if view.take_state() | is_resized {
            terminal.draw(|frame| view::draw(frame, &mut view))?;
        }
        if !wait_for_keys(TICK)? {
            continue;
        }
        while event::poll(Duration::ZERO)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release && view.press(key_of(key)) => {
                    return Ok(());
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Ctrl-C is a key while the view reads all keys.
fn key_of(key: KeyEvent) -> KeyCode {
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => KeyCode::Char('q'),
        code => code,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::process::{Command, Stdio};

    use rustix::fs::{Mode, OFlags, open};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, tcgetattr};

    use super::*;

    /// This program, called again on a terminal, panics there.
    const ON_TERMINAL: &str = "LINKGAUGE_TEST_ON_TERMINAL";

    /// This test, as the harness names it.
    const OWN_NAME: &str = "cmd::monitor::screen::tests::the_terminal_is_restored_after_a_panic";

    #[test]
    fn the_terminal_is_restored_after_a_panic() {
        if std::env::var_os(ON_TERMINAL).is_some() {
            let mut screen = TerminalScreen::enter().unwrap();
            screen.terminal.hide_cursor().unwrap();
            panic!("planted");
        }
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&terminal).and_then(|()| unlockpt(&terminal)).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let side = open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let stdio = || Stdio::from(side.try_clone().unwrap());
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "--nocapture", OWN_NAME]);
        again.env(ON_TERMINAL, "1").stdin(stdio()).stdout(stdio()).stderr(stdio());
        let status = again.spawn().unwrap().wait().unwrap();
        assert_eq!(status.code(), Some(101), "the test in it fails");
        assert!(tcgetattr(&side).unwrap().local_modes.contains(LocalModes::ICANON));
        drop((again, side));
        let mut shown = Vec::new();
        // A terminal that has no other side any more gives what is left, and then an error.
        let _ = File::from(terminal).read_to_end(&mut shown);
        let shown = String::from_utf8_lossy(&shown);
        let place = |text: &str| shown.find(text).unwrap_or_else(|| panic!("{text:?} is missing: {shown:?}"));
        let (entered, left) = (place("\u{1b}[?1049h"), place("\u{1b}[?1049l"));
        assert!(
            entered < left && left < place("planted"),
            "the message is on the screen that stays: {shown:?}"
        );
        assert!(place("\u{1b}[?25l") < shown.rfind("\u{1b}[?25h").unwrap(), "{shown:?}");
    }
}
