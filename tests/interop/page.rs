//! The HTML report as a browser shows it: Debian's Chromium, headless.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::program::{self, Running, Serving, wait_until};

/// Reads the label of every point of every chart; leaves the results in the page's title.
const PROBE: &str = r#"
const seen = [];
for (const svg of document.querySelectorAll("svg.chart")) {
  const points = [...svg.querySelectorAll("polyline")]
    .map((line) => line.getAttribute("points").split(" ").map((pair) => pair.split(",").map(Number)));
  const dots = [...svg.querySelectorAll("use")].map((dot) => ["x", "y"].map((name) => Number(dot.getAttribute(name))));
  const spoken = [...points.flat(), ...dots].map(([x, y]) => {
    const at = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM());
    svg.dispatchEvent(new PointerEvent("pointermove", { clientX: at.x, clientY: at.y }));
    return svg.querySelector("text.here tspan").textContent;
  });
  seen.push({ title: svg.closest("figure").querySelector("strong").textContent,
    lines: points.length, dots: dots.length, spoken,
    legend: svg.closest("figure").querySelectorAll(".legend li").length });
}
document.body.textContent = "SEEN" + JSON.stringify(seen) + "NEES";
"#;

/// Of the first drawings of an overlay of the run that these tests measure. A distribution has two.
const TITLES: [&str; 6] = [
    "Rate by message size",
    "Round-trip time over time",
    "Distribution of round-trip times",
    "Distribution of round-trip times",
    "Round-trip time by percentile",
    "Port by port",
];

/// The page as Chromium renders it, and Chromium's messages.
fn chromium(page: &Path) -> (String, String) {
    let home = tempfile::tempdir().unwrap();
    let flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-dev-shm-usage",
        "--enable-logging=stderr",
        "--dump-dom",
        "--virtual-time-budget=2000",
    ];
    let (out, errors) = (home.path().join("out"), home.path().join("errors"));
    let file = |path: &Path| Stdio::from(std::fs::File::create(path).unwrap());
    let child = Command::new("chromium")
        .args(flags)
        .arg(format!("--user-data-dir={}", home.path().join("profile").display()))
        .arg(format!("file://{}", page.display()))
        .env("HOME", home.path())
        .stdin(Stdio::null())
        .stdout(file(&out))
        .stderr(file(&errors))
        .spawn()
        .unwrap_or_else(|error| panic!("chromium: {error}: ./check --all installs it"));
    let mut running = Running(child);
    let status = wait_until("the page", || running.0.try_wait().unwrap());
    let text = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
    assert!(status.success(), "{}", text(&errors));
    (text(&out), text(&errors))
}

/// A run over TCP and UDP: two ports side by side, and a sweep of sizes.
fn measure(directory: &Path) -> Value {
    let server = Serving::start(&[]);
    let (plan, json) = (directory.join("plan.toml"), directory.join("run.json"));
    let text = format!(
        "[[case]]\nurl = ['{tcp}', '{udp}']\ntogether = true\nworkload = 'latency'\ncount = 2000\nrate = '2000/s'\n\
         interval = '100ms'\n[[case]]\nurl = '{tcp}'\nworkload = 'throughput'\nsize = ['1k', '8k', '64k']\n\
         time = '500ms'\ninterval = '50ms'\n",
        tcp = server.tcp,
        udp = server.udp
    );
    std::fs::write(&plan, text).unwrap();
    let page = directory.join("page.html");
    let [plan, json, page] = [&plan, &json, &page].map(|path| path.to_str().unwrap());
    let ended = program::run(&["run", plan, "--json", json, "--html", page, "--quiet"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap()
}

/// Opens a page without errors and returns a description of its charts.
fn seen(path: &Path) -> Vec<Value> {
    let (_, errors) = chromium(path);
    let complaints: Vec<&str> = errors.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
    let page = probed(path).replace("http-equiv=\"Content-Security-Policy\"", "");
    std::fs::write(path, page).unwrap();
    let (dom, errors) = chromium(path);
    let seen = dom.split_once("SEEN").and_then(|(_, rest)| rest.split_once("NEES")).map(|(seen, _)| seen);
    serde_json::from_str(seen.unwrap_or_else(|| panic!("{errors}"))).unwrap()
}

/// The page with a script that is not its own.
fn probed(path: &Path) -> String {
    let page = std::fs::read_to_string(path).unwrap();
    page.replace("</body>", &format!("<script>{PROBE}</script></body>"))
}

#[test]
fn runs_share_charts() {
    let directory = tempfile::tempdir().unwrap();
    let run = measure(directory.path());
    let file = |name: &str| directory.path().join(name).display().to_string();
    let (json, page) = (file("run.json"), file("overlay.html"));
    let ended = program::run(&["report", &json, &json, &json, "--html", &page, "--quiet"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    let charts = seen(Path::new(&page));
    let titles: Vec<&str> = charts.iter().map(|chart| chart["title"].as_str().unwrap()).collect();
    assert_eq!(titles[..6], TITLES);
    let over_time = titles.iter().filter(|title| title.starts_with("Rate") && title.ends_with("over time"));
    assert!(over_time.count() >= 3, "{titles:?}");
    let latency = run["cases"][0]["latency_ns"].as_object().unwrap();
    let percentile = |name: &&String| name.strip_prefix('p').is_some_and(|p| p.parse::<f64>().is_ok());
    let names = latency.keys().filter(percentile).count();
    for (chart, dots) in charts.iter().zip([9, 0, 0, 0, 3 * names as u64, 6]) {
        let title = &chart["title"];
        assert_eq!(chart["legend"], 3, "{title}");
        assert_eq!(chart["lines"], if title == "Port by port" { 0 } else { 3 }, "{title}");
        assert_eq!(chart["dots"], dots, "{title}");
    }

    let ended = program::run(&["compare", &json, &json, "--html", &page]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let charts = seen(Path::new(&page));
    assert!(charts.iter().all(|chart| chart["legend"] == 2), "{charts:?}");

    // More runs than there are styles, and charts that hold one run only.
    let nine = [vec!["report"], vec![json.as_str(); 9], vec!["--html", &page]].concat();
    let (nine, junit) = (program::run(&nine), program::run(&["report", &json, &json, "--format", "junit"]));
    assert_eq!((nine.status, junit.status), (Some(2), Some(2)));
    assert!(nine.stderr.contains("a page overlays at most 8 runs"), "{}", nine.stderr);
    assert!(junit.stderr.contains("JUnit XML holds one run"), "{}", junit.stderr);
    let csv = program::run(&["report", &json, &json, "--format", "csv"]).stdout;
    assert_eq!(csv.matches("run,started,").count(), 1, "one head: {csv}");
}

#[test]
fn two_hundred_cases_are_one_page() {
    let directory = tempfile::tempdir().unwrap();
    let mut run = measure(directory.path());
    let mut cases = run["cases"].as_array().unwrap().clone();
    // The load of this host would change the length of the page.
    for case in &mut cases {
        case["warnings"] = Value::Array(Vec::new());
        case["placement"].as_object_mut().unwrap().retain(|name, _| !name.starts_with("host_"));
    }
    run["cases"] = cases.iter().cycle().take(200).cloned().collect();
    let [json, page] = ["many.json", "many.html"].map(|name| directory.path().join(name));
    std::fs::write(&json, run.to_string()).unwrap();
    let ended =
        program::run(&["report", json.to_str().unwrap(), "--html", page.to_str().unwrap(), "--quiet"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    let bytes = std::fs::metadata(&page).unwrap().len();
    assert!(bytes < 2_000_000, "{bytes} bytes");
    let (dom, errors) = chromium(&page);
    assert!(!errors.contains("CONSOLE"), "{errors}");
    assert_eq!(dom.matches("<details class=\"case\">").count(), 200);
}

#[test]
fn charts_show_values_under_the_pointer() {
    let directory = tempfile::tempdir().unwrap();
    let run = measure(directory.path());
    let path = directory.path().join("page.html");
    // The page's own policy keeps every other script out, this one too.
    let strange = directory.path().join("strange.html");
    std::fs::write(&strange, probed(&path)).unwrap();
    let (dom, errors) = chromium(&strange);
    assert!(!dom.contains("SEEN[") && errors.contains("CONSOLE"), "a strange script ran");
    let seen = seen(&path);

    for chart in &seen {
        for spoken in chart["spoken"].as_array().unwrap() {
            let spoken = spoken.as_str().unwrap();
            assert!(spoken.starts_with("≈ ") && !spoken.contains("NaN"), "{spoken} in {}", chart["title"]);
        }
    }
    let find = |title: &str| seen.iter().find(|chart| chart["title"] == title).unwrap();
    let (sizes, ports) = (find("Rate by message size"), find("Port by port"));
    assert_eq!(sizes["dots"], 3, "one for every size");
    assert_eq!(ports["dots"], 4, "p50 and p99 of two ports");
    // The label under the pointer is the figure, to the width of a point.
    let spoken = |chart: &Value, point: usize| read(chart["spoken"][point].as_str().unwrap());
    for (index, size) in [1000.0, 8000.0, 64_000.0].into_iter().enumerate() {
        assert!(
            (spoken(sizes, index).0 / size - 1.0).abs() < 0.01,
            "{} is not {size}",
            sizes["spoken"][index]
        );
    }
    let parts = run["cases"][0]["per_port"].as_array().unwrap();
    let figure = |port: usize, name: &str| parts[port]["latency_ns"][name].as_f64().unwrap();
    let highest = figure(0, "p99").max(figure(1, "p99"));
    for port in [0, 1] {
        let (spoken, median) = (spoken(ports, port).1, figure(port, "p50"));
        assert!((spoken - median).abs() < highest / 100.0, "{spoken} is not {median}");
    }
}

/// Presses keys and buttons on the first chart; leaves what became of it in the page.
const USE: &str = r#"
const [chart] = Chart.all;
const press = (key) => chart.svg.dispatchEvent(new KeyboardEvent("keydown", { key, cancelable: true }));
const range = () => [chart.x.low, chart.x.high];
const found = { before: range() };
press("ArrowRight"); press("ArrowRight");
found.spoken = chart.figure.querySelector("[aria-live]").textContent;
press("+");
found.zoomed = range();
press("Escape");
found.reset = range();
press("l");
found.scale = chart.y.scale;
press("l");
const [entry] = chart.figure.querySelectorAll(".legend button");
entry.click();
found.hidden = chart.visible().length;
entry.click();
found.shown = chart.visible().length;
found.csv = csv(chart.figure);
const image = new Image();
image.onload = () => {
  found.image = [image.width, image.height];
  document.body.textContent = "SEEN" + JSON.stringify(found) + "NEES";
};
image.src = `data:image/svg+xml,${encodeURIComponent(drawing(chart.figure).text)}`;
"#;

#[test]
fn charts_obey_keys_and_buttons() {
    let directory = tempfile::tempdir().unwrap();
    measure(directory.path());
    let path = directory.path().join("page.html");
    let page = std::fs::read_to_string(&path).unwrap().replace("http-equiv=\"Content-Security-Policy\"", "");
    std::fs::write(&path, page.replace("</body>", &format!("<script>{USE}</script></body>"))).unwrap();
    let (dom, errors) = chromium(&path);
    let found = dom.split_once("SEEN").and_then(|(_, rest)| rest.split_once("NEES")).map(|(found, _)| found);
    let found: Value = serde_json::from_str(found.unwrap_or_else(|| panic!("{errors}"))).unwrap();
    let width = |name: &str| found[name][1].as_f64().unwrap() - found[name][0].as_f64().unwrap();
    assert!(width("zoomed") < width("before") * 0.6 && found["reset"] == found["before"], "{found}");
    assert!(found["spoken"].as_str().unwrap().starts_with("≈ "), "{found}");
    assert_eq!(found["scale"], "log");
    assert_eq!(found["shown"].as_u64().unwrap(), found["hidden"].as_u64().unwrap() + 1, "{found}");
    assert!(found["csv"].as_str().unwrap().starts_with("chart,series,x,y\n"), "{found}");
    assert!(found["image"][0].as_f64().unwrap() > 300.0, "{found}");
}

/// The two values in the label of a point, in their smallest units.
fn read(spoken: &str) -> (f64, f64) {
    let value = |text: &str| {
        let words: Vec<&str> = text.trim_start_matches("≈ ").split(' ').collect();
        let at =
            words.iter().position(|word| word.parse::<f64>().is_ok()).unwrap_or_else(|| panic!("{spoken}"));
        let number: f64 = words[at].parse().unwrap();
        let scale = match words.get(at + 1).copied().unwrap_or_default() {
            "kB" | "µs" => 1e3,
            "MB" | "ms" => 1e6,
            "s" | "Gbit/s" => 1e9,
            _ => 1.0,
        };
        number * scale
    };
    let (x, y) = spoken.split_once(": ").unwrap_or_else(|| panic!("{spoken}"));
    (value(x), value(y))
}
