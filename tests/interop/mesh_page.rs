//! The page of a mesh in Debian's Chromium: at the width of a phone, light and dark, with a way from a pair to its case.
//!
//! Agents save nothing, and inherit an empty LINKGAUGE_STORE.

use std::path::Path;

use linkgauge::run::Run;
use serde_json::Value;

use crate::browser::Browser;
use crate::program::{command, run_within};

/// A mesh of six agents of this machine, in two groups; one is slow.
fn measure(place: &Path) -> (String, Run) {
    let agent = env!("CARGO_BIN_EXE_linkgauge");
    let host = |index: usize| {
        let limit = if index == 4 { ", \"--max-rate\", \"4M\"" } else { "" };
        format!(
            "[[host]]\nname = \"host-{index}.example\"\naddress = \"127.0.0.1\"\ngroup = \"site {}\"\n\
             command = [\"{agent}\", \"agent\", \"--stdio\"{limit}]\n",
            index % 2
        )
    };
    let head = "title = \"two sites\"\ntest.latency.time = \"500ms\"\ntest.throughput.time = \"300ms\"\n\
                test.throughput.bit_rate = \"16M\"\n";
    let name = |name: &str| place.join(name).display().to_string();
    let (file, page, json) = (name("hosts.toml"), name("mesh.html"), name("mesh.json"));
    std::fs::write(&file, format!("{head}{}", (0..6).map(host).collect::<String>())).unwrap();
    let mut mesh = command(&["mesh", &file, "--html", &page, "--json", &json, "--quiet"]);
    let ended = run_within(std::time::Duration::from_secs(120), &mut mesh);
    assert_eq!(ended.status, Some(0), "{}{}", ended.stdout, ended.stderr);
    (page, Run::from_json(&std::fs::read_to_string(&json).unwrap()).unwrap())
}

/// Elements outside boxes that scroll whose text is wider than the screen.
const CUT: &str = "[...document.querySelectorAll('body *')].filter((element) => !element.closest('.scroll, svg, pre') \
    && element.getClientRects().length && element.getBoundingClientRect().right > innerWidth + 1) \
    .map((element) => element.outerHTML.slice(0, 80)).join()";

/// The text of the cell with the worst rate, the place that it leads to, and what is open there.
const FOLLOW: &str = "(() => { const cell = document.querySelector('#mesh table.matrix td.worse a'); cell.click(); \
    const place = document.querySelector(cell.getAttribute('href')); \
    return { text: cell.textContent, found: !!place, isOpen: !!place && (place.open ?? place.closest('details')?.open ?? true), \
    summary: place ? (place.closest('details') ?? place).textContent.slice(0, 200) : '' }; })()";

/// The contrast of texts of the matrix with their background: the smallest ratio of luminances.
const CONTRAST: &str = "(() => { const parts = (text) => text.match(/[\\d.]+/g).map(Number); \
    const light = ([r, g, b]) => { const f = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; \
        return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); }; \
    const ground = (element) => { for (let at = element; at; at = at.parentElement) { \
        const colour = parts(getComputedStyle(at).backgroundColor); if (colour.length < 4 || colour[3] > 0.99) return colour; } \
        return [255, 255, 255]; }; \
    return Math.min(...[...document.querySelectorAll('#mesh td, #mesh th, #mesh p, #mesh a')].map((element) => { \
        const [a, b] = [light(parts(getComputedStyle(element).color)), light(ground(element))]; \
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); })); })()";

#[test]
fn the_page_of_a_mesh_fits_a_phone_and_leads_to_its_cases() {
    let place = tempfile::tempdir().unwrap();
    let (page, run) = measure(place.path());
    let mut browser = Browser::start();
    for scheme in ["light", "dark"] {
        browser.look(400, scheme);
        browser.open(&format!("file://{page}"), "document.querySelectorAll('table.matrix').length >= 2");
        assert_eq!(browser.evaluate("document.documentElement.scrollWidth"), 400, "{scheme}");
        assert_eq!(browser.evaluate(CUT), "", "{scheme}");
        let contrast = browser.evaluate(CONTRAST).as_f64().unwrap();
        assert!(contrast >= 4.5, "{scheme}: contrast {contrast:.2}");
        save_picture(&mut browser, &format!("mesh-{scheme}.png"));
    }
    let followed: Value = browser.evaluate(FOLLOW);
    assert_eq!((&followed["found"], &followed["isOpen"]), (&true.into(), &true.into()), "{followed}");
    assert!(followed["summary"].as_str().unwrap().contains("host-4.example"), "{followed}");
    assert_eq!(browser.complaints, []);
    let mesh = run.mesh.unwrap();
    assert_eq!(mesh.served.unwrap().overlapping, 0);
}

/// Pictures to look at, where the caller asks for them.
fn save_picture(browser: &mut Browser, name: &str) {
    if let Some(place) = std::env::var_os("LINKGAUGE_PICTURES") {
        std::fs::write(Path::new(&place).join(name), browser.screenshot()).unwrap();
    }
}
