//! The live page of `monitor` in Debian's Chromium: it updates by itself, survives a restart, and stays readable with 200 links.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use linkgauge::monitor::{Config, Live, MonitorEvent, Site, SiteServer, WatchState};
use linkgauge::sample::{Window, WindowCounts};
use rustix::process::Signal;

use super::browser::Browser;
use super::client::free_port;
use super::program::{Running, Serving};

/// The script of the page has started.
const IS_READY: &str = "typeof page === 'object'";

/// The picture of a page as the documents show it, written when they are updated.
fn update_picture(name: &str, browser: &mut Browser) {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
        std::fs::write(path, browser.screenshot()).unwrap();
    }
}

fn monitor(url: &str, listen: &str, store: &Path) -> Running {
    let store = store.display().to_string();
    let mut monitor =
        Running::start(&["monitor", url, "--rate", "50/s", "--listen", listen, "--store", &store]);
    let mut line = String::new();
    BufReader::new(monitor.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("metrics: http://"), "{line}");
    monitor
}

#[test]
fn the_page_updates_itself_and_survives_a_restart() {
    let place = tempfile::tempdir().unwrap();
    let (serving, address) = (Serving::start(&[]), format!("127.0.0.1:{}", free_port()));
    let store = place.path().join("runs.sqlite");
    let mut first = monitor(serving.tcp.as_str(), &address, &store);
    let mut browser = Browser::start();
    browser.look(400, "dark");
    browser.open(&format!("http://{address}/"), IS_READY);
    browser.wait_for("document.getElementById('answer').textContent === 'The link replies.'");
    browser.wait_for("/p50 .*loss 0 %/.test(document.querySelector('.readout').textContent)");
    let due = browser.evaluate("page.overview.at").as_i64().unwrap();
    browser.wait_for(&format!("page.overview.at > {due}"));
    let inked = "(() => { const c = document.querySelector('canvas'); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; \
        return new Set(new Uint32Array(d.buffer)).size; })()";
    assert!(browser.evaluate(inked).as_u64() > Some(8), "the heat map is drawn");
    assert_eq!(browser.evaluate("document.documentElement.scrollWidth"), 400);
    assert_eq!(browser.evaluate("getComputedStyle(document.body).backgroundColor"), "rgb(20, 24, 27)");
    assert_eq!(browser.complaints, []);

    first.signal(Signal::INT);
    first.wait();
    browser.wait_for("document.getElementById('status').textContent.includes('does not respond')");
    let since = browser.evaluate("page.overview.since").as_i64().unwrap();
    let _second = monitor(serving.tcp.as_str(), &address, &store);
    browser.wait_for(&format!("page.overview.since > {since}"));
    browser.wait_for("!document.getElementById('status').textContent.includes('does not respond')");
    browser.evaluate("page.choose('1d')");
    browser.wait_for("/p50 .*loss 0 %/.test(document.querySelector('.readout').textContent)");
    let complaints: Vec<_> = browser.complaints.iter().filter(|(source, _)| source != "network").collect();
    assert!(complaints.is_empty(), "{complaints:?}");
}

/// The time of the states of a made monitor.
const NOW: i64 = 1_790_000_000;

/// A link with an hour of slices. Numbers decide how it behaves.
fn made_link(number: usize) -> WatchState {
    let url = format!("mem://10.0.{}.{}", number / 100, number % 100);
    let text = format!("[[watch]]\nname = \"branch {number:03}\"\nurl = \"{url}\"\nprotocol = \"echo\"");
    let mut state = WatchState::new(&Config::from_toml(&text).unwrap().watches[0]);
    let mut random = fastrand::Rng::with_seed(number as u64);
    let base = 2e6 + 1e6 * random.f64();
    let mut slices = VecDeque::new();
    // An hour of those that are looked at.
    let first = if [17, 42].contains(&number) { 0 } else { 350 };
    for slice in first..360 {
        let is_bad = number == 17 && slice > 290 || number == 42 && slice % 60 == 7;
        let lost = if is_bad { random.u64(2..9) } else { 0 };
        let counts = WindowCounts { measured_ms: 10_000, due: 100, lost, ..WindowCounts::default() };
        let mut window = Window::new(counts);
        let shift = if number == 17 && slice > 180 { 1.6 } else { 1.0 };
        for _ in lost..100 {
            let tail = if random.u8(..) < 6 { 4.0 } else { 1.0 };
            window.record((base * shift * tail * (1.0 + 0.15 * random.f64())) as u64);
        }
        slices.push_back((NOW - 3600 + 10 * slice, window));
    }
    state.recent = slices;
    state.is_up = Some(number != 99);
    state.failure = (number == 99).then(|| "10.0.0.99: connection refused".to_owned());
    state
}

#[test]
fn two_hundred_links_are_readable() {
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    let live = Arc::new(Live::new("office".to_owned(), at(NOW - 86_400)));
    let states: Vec<WatchState> = (0..200).map(made_link).collect();
    let down = MonitorEvent::Down { name: "branch 099".to_owned(), reason: None };
    live.note(at(NOW - 700), &down, "branch 099: down: connection refused".to_owned());
    let overview = live.update(&states, at(NOW));
    let site = Arc::new(Site::new(live, Box::new(|_| None)));
    site.publish(&overview);
    let server = SiteServer::start("127.0.0.1:0".parse().unwrap(), None, site).unwrap();
    let mut browser = Browser::start();
    browser.look(400, "light");
    browser.open(&format!("http://{}/", server.address()), IS_READY);
    let answer = "1 of 200 links needs attention: branch 099 is down.";
    browser.wait_for(&format!("document.getElementById('answer').textContent === '{answer}'"));
    assert_eq!(browser.evaluate("document.documentElement.scrollWidth"), 400);
    assert_eq!(browser.evaluate("page.rows.size"), 200);
    let urgent =
        "[...document.querySelectorAll('#trouble .name strong')].map((name) => name.textContent).join()";
    assert_eq!(browser.evaluate(urgent), "branch 099,branch 017");
    assert_eq!(browser.evaluate("document.getElementById('rest').open"), false);
    assert!(browser.evaluate("document.documentElement.scrollHeight").as_u64() < Some(1_500), "it is short");
    browser.evaluate("page.rows.get('branch 017').box.open = true");
    browser.wait_for("/p99 .*loss/.test(document.querySelector('.link[open] .readout').textContent)");
    update_picture("live-page-narrow.png", &mut browser);
    browser.look(400, "dark");
    browser.wait_for("getComputedStyle(document.body).backgroundColor === 'rgb(20, 24, 27)'");
    browser.evaluate("document.getElementById('rest').open = true");
    assert_eq!(browser.evaluate("document.documentElement.scrollWidth"), 400, "also with all links");
    browser.evaluate("document.getElementById('rest').open = false");
    browser.look(1000, "light");
    browser.wait_for("document.querySelector('.link[open] canvas').width > 800");
    update_picture("live-page.png", &mut browser);
    browser.evaluate(
        "document.getElementById('filter').value = 'branch 15'; document.getElementById('filter').dispatchEvent(new Event('input'))",
    );
    let shown = "[...page.rows.values()].filter((row) => !row.box.hidden).length";
    assert_eq!(browser.evaluate(shown), 10);
    assert_eq!(browser.complaints, []);
}
