//! Actions of a monitor at an alarm: start a command, or post to a webhook. Each has the message as its input and ends in
//! bounded time.

use super::message::MessageFormat;
use linkgauge_system as system;
use std::io::{self, ErrorKind, Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time for a command or for one attempt of a webhook, unless the action says otherwise.
pub(crate) const DEFAULT_ACTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Checks a URL of plain HTTP: what is wrong with it, and what to try.
pub(crate) fn check_http_url(url: &str) -> Result<(), &'static str> {
    let authority = url.strip_prefix("http://").and_then(|rest| rest.split(['/', '?', '#']).next());
    let host = authority.map_or("", |authority| authority.rsplit('@').next().unwrap_or(authority));
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    if name.is_empty() {
        return Err("its URL names no host: write it like http://HOST:8080/path");
    }
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    if !port.is_none_or(is_port) {
        return Err("the port of its URL is none: use 1 to 65535");
    }
    Ok(())
}

/// A URL as it is shown: a password in it is left out.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://…@{host}{}", &rest[end..]),
        None => url.to_owned(),
    }
}

/// Pauses before the second and the third attempt of a webhook.
const RETRY_PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// Interval at which a running command is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Quoted length of the error output of a failed command, from its end.
const MAX_QUOTED_BYTES: usize = 300;

/// The head of a response may have this length.
const MAX_HEAD_BYTES: usize = 16_384;

/// An action, and the time that it may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// Target of the action.
    pub target: ActionTarget,
    /// Form of its messages.
    pub format: MessageFormat,
    /// Time limit: a command that takes longer is killed; each attempt of a webhook ends by then.
    pub timeout: Duration,
}

/// Target of an action, which receives the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActionTarget {
    /// Starts this program with these arguments, without a shell. The message is its standard input.
    Command(Vec<String>),
    /// Posts the message to this URL (`http://`).
    Webhook(String),
}

/// Error of an action that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ActionError {
    /// The program could not be started or watched.
    #[error("{program}: it cannot be run: {error}")]
    NotRun {
        /// The program.
        program: String,
        /// Reason for the failure.
        error: io::Error,
    },
    /// The program reported a failure.
    #[error("{program}: it failed: {status}{quoted}")]
    Failed {
        /// The program.
        program: String,
        /// Exit status of the program.
        status: ExitStatus,
        /// The end of its error output, after a colon.
        quoted: String,
    },
    /// The program was killed.
    #[error("{program}: it was killed: it ran for longer than {} s. Set a longer 'timeout'", .limit.as_secs_f64())]
    TooSlow {
        /// The program.
        program: String,
        /// The limit.
        limit: Duration,
    },
    /// The webhook did not take the message.
    #[error("{url}: the webhook did not take the message: {why}")]
    Refused {
        /// The URL.
        url: String,
        /// The status or the error of the last attempt.
        why: String,
    },
}

impl Action {
    /// Describes the action, for people.
    pub fn describe(&self) -> String {
        match &self.target {
            ActionTarget::Command(words) => format!("runs {}", words.join(" ")),
            ActionTarget::Webhook(url) => format!("posts to {}", without_password(url)),
        }
    }

    /// The program that it starts.
    pub fn program(&self) -> Option<&str> {
        match &self.target {
            ActionTarget::Command(words) => words.first().map(String::as_str),
            ActionTarget::Webhook(_) => None,
        }
    }

    /// Passes the message on. After `stop` is set, a webhook is not tried again.
    ///
    /// # Errors
    ///
    /// The command failed or took too long; or no attempt of the webhook was successful.
    pub(crate) fn perform(&self, message: &[u8], stop: &AtomicBool) -> Result<(), ActionError> {
        match &self.target {
            ActionTarget::Command(words) => run_command(words, message, self.timeout),
            ActionTarget::Webhook(url) => {
                let mut pauses = RETRY_PAUSES.iter();
                loop {
                    let Err(error) = post(url, message, self.timeout) else { return Ok(()) };
                    let has_paused = pauses.next().is_some_and(|pause| pause_unless(stop, *pause));
                    if !has_paused {
                        return Err(error);
                    }
                }
            }
        }
    }
}

/// Pauses; returns false if `stop` was set before the pause was over.
fn pause_unless(stop: &AtomicBool, pause: Duration) -> bool {
    let until = Instant::now() + pause;
    while Instant::now() < until && !stop.load(Relaxed) {
        std::thread::sleep(POLL_INTERVAL);
    }
    !stop.load(Relaxed)
}

fn post(url: &str, message: &[u8], timeout: Duration) -> Result<(), ActionError> {
    // Its body is not read: nothing in it matters, and it may have any length.
    let response = minreq::post(url)
        .with_header("Content-Type", "application/json")
        .with_body(message)
        .with_timeout(timeout.as_secs().max(1))
        .with_max_redirects(0)
        .with_max_headers_size(MAX_HEAD_BYTES)
        .with_max_status_line_length(MAX_HEAD_BYTES)
        .send_lazy();
    let why = match response {
        Ok(response) if (200..300).contains(&response.status_code) => return Ok(()),
        Ok(response) => format!("status {} {}", response.status_code, response.reason_phrase),
        Err(error) => error.to_string(),
    };
    Err(ActionError::Refused { url: without_password(url), why })
}

fn run_command(words: &[String], message: &[u8], timeout: Duration) -> Result<(), ActionError> {
    let program = words.first().cloned().unwrap_or_default();
    let not_run = |error| ActionError::NotRun { program: program.clone(), error };
    let mut command = Command::new(&program);
    command.args(words.iter().skip(1)).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let running = system::in_own_group(&mut command).spawn().and_then(|child| Running::new(child, message));
    let mut running = running.map_err(not_run)?;
    match running.end_within(timeout).map_err(not_run)? {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(ActionError::Failed { program, status, quoted: running.quoted() }),
        None => Err(ActionError::TooSlow { program, limit: timeout }),
    }
}

/// A command at work. It neither blocks the monitor by not reading, nor itself by writing much.
struct Running<'a> {
    child: Child,
    input: Option<ChildStdin>,
    errors: Option<ChildStderr>,
    message: &'a [u8],
    said: Vec<u8>,
}

impl<'a> Running<'a> {
    pub fn new(mut child: Child, message: &'a [u8]) -> io::Result<Running<'a>> {
        let (input, errors) = (child.stdin.take(), child.stderr.take());
        if let Some(input) = &input {
            system::set_nonblocking(input)?;
        }
        if let Some(errors) = &errors {
            system::set_nonblocking(errors)?;
        }
        Ok(Running { child, input, errors, message, said: Vec::new() })
    }

    /// The status, or `None` if it was killed after this time, with all that it started in its process group.
    fn end_within(&mut self, timeout: Duration) -> io::Result<Option<ExitStatus>> {
        let until = Instant::now() + timeout;
        loop {
            self.write_input();
            let ended = self.child.try_wait()?;
            self.read_errors();
            if ended.is_some() {
                return Ok(ended);
            }
            if Instant::now() >= until {
                system::kill_group(&self.child);
                self.child.wait()?;
                return Ok(None);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Writes what the pipe takes. A command need not read.
    fn write_input(&mut self) {
        while let Some(input) = &mut self.input {
            match input.write(self.message) {
                Ok(count) if count > 0 => self.message = &self.message[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // All is written, or the command has closed its input.
                _ => self.input = None,
            }
        }
    }

    fn read_errors(&mut self) {
        let Some(errors) = &mut self.errors else { return };
        let mut block = [0; 4096];
        while let Ok(count @ 1..) = errors.read(&mut block) {
            self.said.extend(&block[..count]);
            let surplus = self.said.len().saturating_sub(MAX_QUOTED_BYTES);
            self.said.drain(..surplus);
        }
    }

    fn quoted(&self) -> String {
        let said = String::from_utf8_lossy(&self.said);
        match said.trim() {
            "" => String::new(),
            said => format!(": {said}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn shell(script: &str, timeout: Duration) -> Result<(), String> {
        let words = ["sh", "-c", script].map(str::to_owned).to_vec();
        let message = vec![b'x'; 300_000];
        let action =
            Action { target: ActionTarget::Command(words), format: MessageFormat::Linkgauge, timeout };
        action.perform(&message, &AtomicBool::new(false)).map_err(|error| error.to_string())
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_command_gets_the_whole_message() {
        assert_eq!(shell("test $(wc -c) = 300000", LONG), Ok(()));
        assert_eq!(shell("exit 0", LONG), Ok(()), "it need not read");
        assert_eq!(shell("exec 0<&-; yes error | head -c 1000000 >&2", LONG), Ok(()), "it may write much");
    }

    #[test]
    fn a_failed_command_is_quoted() {
        let failed = shell("echo no mail >&2; exit 3", LONG).unwrap_err();
        assert_eq!(failed, "sh: it failed: exit status: 3: no mail");
        let action = Action {
            target: ActionTarget::Command(vec!["/no/program".to_owned()]),
            format: MessageFormat::Linkgauge,
            timeout: LONG,
        };
        let error = action.perform(b"", &AtomicBool::new(false)).unwrap_err().to_string();
        assert!(error.starts_with("/no/program: it cannot be run: "), "{error}");
    }

    #[test]
    fn a_slow_command_is_killed_with_its_children() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("alive");
        let script = format!("(sleep 2; touch {}) & sleep 600", file.display());
        let began = Instant::now();
        let error = shell(&script, Duration::from_millis(200)).unwrap_err();
        assert_eq!(error, "sh: it was killed: it ran for longer than 0.2 s. Set a longer 'timeout'");
        assert!(began.elapsed() < Duration::from_secs(300));
        std::thread::sleep(Duration::from_secs(3));
        assert!(!file.exists(), "its child was killed, too");
    }

    /// Serves these responses, one a connection, and returns the requests.
    fn webhook(responses: &'static [&str]) -> (String, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let serve = move |response: &&str| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut block = [0; 4096];
            while !String::from_utf8_lossy(&request).ends_with("{\"a\":1}") {
                let count = stream.read(&mut block).unwrap();
                request.extend(&block[..count]);
            }
            stream.write_all(response.as_bytes()).unwrap();
            String::from_utf8(request).unwrap()
        };
        (url, std::thread::spawn(move || responses.iter().map(serve).collect()))
    }

    fn post_to(url: String, stop: bool) -> Result<(), String> {
        let action =
            Action { target: ActionTarget::Webhook(url), format: MessageFormat::Linkgauge, timeout: LONG };
        action.perform(b"{\"a\":1}", &AtomicBool::new(stop)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_url_is_checked_and_shown_without_its_password() {
        for good in
            ["http://a", "http://a:1/x", "http://[::1]", "http://[::1]:80/", "http://u:p@a:80?x=:99999"]
        {
            assert_eq!(check_http_url(good), Ok(()), "{good}");
        }
        for wrong in
            ["http://", "http://:80", "http://a:0", "http://a:99999", "http://u:p@a:x/", "http://[::1]:"]
        {
            assert!(check_http_url(wrong).is_err(), "{wrong}");
        }
        assert_eq!(without_password("http://me:secret@a:80/x@y"), "http://…@a:80/x@y");
        assert_eq!(without_password("http://a/x@y"), "http://a/x@y");
    }

    #[test]
    fn a_webhook_is_tried_again() {
        let (url, requests) =
            webhook(&["HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n"]);
        assert_eq!(post_to(url, false), Ok(()));
        let requests = requests.join().unwrap();
        assert!(
            requests.iter().all(|request| request.starts_with("POST /hook HTTP/1.1\r\n")),
            "{requests:?}"
        );
        assert!(requests[0].contains("Content-Type: application/json\r\n"), "{requests:?}");
    }

    #[test]
    fn a_webhook_that_refuses_is_reported() {
        let (url, requests) =
            webhook(&["HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n"]);
        let error = post_to(url.clone(), true).unwrap_err();
        assert!(error.starts_with(&format!("{url}: the webhook did not take the message: ")), "{error}");
        assert_eq!(requests.join().unwrap().len(), 1, "a redirect is not followed");
    }
}
