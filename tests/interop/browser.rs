//! Debian's Chromium, headless, driven over its two pipes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::program::{PATIENCE, Running, wait_until};

/// A page of a browser that is driven over its two pipes.
pub struct Browser {
    input: ChildStdin,
    messages: Receiver<Value>,
    session: String,
    last_id: u64,
    /// What the page complained about: the source of the complaint, and its text.
    pub complaints: Vec<(String, String)>,
    _process: Running,
    _home: tempfile::TempDir,
}

/// The browser expects its commands at descriptor 3 and replies at 4.
const START: &str = "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null";

const FLAGS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
];

impl Browser {
    /// Starts Chromium with an empty page.
    pub fn start() -> Browser {
        let home = tempfile::tempdir().unwrap();
        let mut child: Child = Command::new("sh")
            .args(["-c", START, "sh", "chromium"])
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", home.path().join("profile").display()))
            .env("HOME", home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(output).split(0) {
                let Ok(message) = message else { return };
                if sender.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
            }
        });
        let (session, complaints) = (String::new(), Vec::new());
        let mut browser = Browser {
            input,
            messages,
            session,
            last_id: 0,
            complaints,
            _process: Running(child),
            _home: home,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        browser.session =
            browser.call("Target.attachToTarget", attach)["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Runtime", "Log", "Page"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// The result of a command. Events that arrive before it are noted.
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let mut message = json!({ "id": self.last_id, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.input.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let received = self.messages.recv_timeout(PATIENCE).unwrap_or_else(|error| {
                panic!("{method}: {error}: chromium is needed: ./check --all installs it")
            });
            if received["id"] == self.last_id {
                assert!(received.get("error").is_none(), "{method}: {received}");
                return received["result"].clone();
            }
            self.note(&received);
        }
    }

    fn note(&mut self, event: &Value) {
        let about = &event["params"];
        let complaint = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => Some(("exception", about.to_string())),
            Some("Runtime.consoleAPICalled") if about["type"] == "error" => {
                Some(("console", about.to_string()))
            }
            Some("Log.entryAdded") if about["entry"]["level"] == "error" => {
                Some((about["entry"]["source"].as_str().unwrap_or_default(), about["entry"].to_string()))
            }
            _ => None,
        };
        self.complaints.extend(complaint.map(|(source, text)| (source.to_owned(), text)));
    }

    /// The value of an expression in the page.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let result =
            self.call("Runtime.evaluate", json!({ "expression": expression, "returnByValue": true }));
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub fn wait_for(&mut self, expression: &str) {
        wait_until(expression, || (self.evaluate(expression) == true).then_some(()));
    }

    /// The width of the window, and the colour scheme.
    pub fn look(&mut self, width: u32, scheme: &str) {
        let metrics = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        self.call("Emulation.setScrollbarsHidden", json!({ "hidden": true }));
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", features);
    }

    /// Opens an address, and waits until an expression of the page is true.
    pub fn open(&mut self, url: &str, is_ready: &str) {
        self.call("Page.navigate", json!({ "url": url }));
        self.wait_for(&format!("document.readyState === 'complete' && {is_ready}"));
    }

    /// The visible part of the page as PNG.
    pub fn screenshot(&mut self) -> Vec<u8> {
        let image = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        STANDARD.decode(image["data"].as_str().unwrap()).unwrap()
    }
}
