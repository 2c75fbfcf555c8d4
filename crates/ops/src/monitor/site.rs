//! The pages of a monitor: the live page with its events and histories, metrics, and the runs of its links.
//!
//! The content of the live page is ready before a client asks. Metrics and what is read from the store are made on request.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::body::Bytes;
use jiff::Timestamp;
use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::access::RequestRefusal;
use super::columns::{Column, HistorySpan, SPANS, stored_columns};
use super::families::Snapshot;
use super::ledger::tag;
use super::live::{Live, Overview};
use super::metrics::MetricsFormat;
use super::prober::ScrapeProber;
use linkgauge_model::run::Run;
use linkgauge_model::units::format_nanoseconds;
use linkgauge_store::{Filter, Store, StoreError};

/// The path of the stream of events.
pub(crate) const EVENTS_PATH: &str = "/events";

/// The path at which a client has the file read again.
pub(crate) const RELOAD_PATH: &str = "/-/reload";

/// The path of probes on request.
pub(crate) const PROBE_PATH: &str = "/probe";

/// The path of the metrics.
pub const METRICS_PATH: &str = "/metrics";

/// Incidents and runs of a link that the page lists.
const MAX_LISTED: usize = 30;

/// Time that a page waits before it connects again, in ms.
const RETRY_MS: u32 = 3_000;

const PAGE: &str = include_str!("site/page.html");
const STYLE: &str = include_str!("site/page.css");
const SCRIPT: &str = include_str!("site/page.js");

/// A page: its media type, the policy for its content, and the content.
#[derive(Debug, Clone)]
pub struct Page {
    /// The media type.
    pub(crate) media_type: &'static str,
    /// The content security policy.
    pub policy: Arc<str>,
    /// The content.
    pub body: Bytes,
    /// The content is packed with gzip.
    pub(crate) is_packed: bool,
}

/// A shorter content is sent as it is: its head is as long.
const MIN_PACKED_BYTES: usize = 1024;

/// The policy of what is no page of a browser.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

impl Page {
    pub(crate) fn new(media_type: &'static str, body: impl Into<Bytes>) -> Page {
        Page { media_type, policy: NOTHING.into(), body: body.into(), is_packed: false }
    }
}

impl Page {
    /// Packs the page with gzip, unless it is packed or short.
    pub(crate) fn packed(self) -> Page {
        if self.is_packed || self.body.len() < MIN_PACKED_BYTES {
            return self;
        }
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        match packer.write_all(&self.body).and_then(|()| packer.finish()) {
            Ok(packed) => Page { body: packed.into(), is_packed: true, ..self },
            Err(_) => self,
        }
    }
}

/// A request for a page that has to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// The metrics.
    Metrics(MetricsFormat),
    /// The columns of a link.
    History {
        /// Number of the link.
        link: usize,
        /// The time to show.
        span: &'static HistorySpan,
    },
    /// The incidents and runs of a link.
    Incidents {
        /// Number of the link.
        link: usize,
    },
    /// The page of a run.
    Run {
        /// The id.
        id: String,
    },
}

impl Lookup {
    /// Reads a path, its query, and what the client accepts. `None`: there is no such page.
    pub fn parse(path: &str, query: &str, accept: &str) -> Option<Lookup> {
        let value = |name: &str| {
            query
                .split('&')
                .find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name))
                .map(|(_, value)| value)
        };
        let link = || value("link")?.parse().ok();
        match path {
            METRICS_PATH => Some(Lookup::Metrics(MetricsFormat::accepted(accept))),
            "/history" => Some(Lookup::History { link: link()?, span: HistorySpan::named(value("span")?)? }),
            "/incidents" => Some(Lookup::Incidents { link: link()? }),
            _ => {
                let id = path.strip_prefix("/run/")?;
                let is_id =
                    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
                is_id.then(|| Lookup::Run { id: id.to_owned() })
            }
        }
    }
}

/// Makes the page of a run.
pub type RunRenderer = Box<dyn Fn(&Run) -> Option<String> + Send + Sync>;

/// The pages.
pub struct Site {
    live: Arc<Live>,
    ready: Mutex<BTreeMap<&'static str, Page>>,
    /// `None`: there is no live page.
    events: Option<watch::Sender<Bytes>>,
    metrics: Mutex<Arc<Snapshot>>,
    store: Mutex<Option<PathBuf>>,
    render_run: RunRenderer,
    prober: Arc<ScrapeProber>,
    /// Flag that a client sets to have the file read again.
    reload: Mutex<Option<Arc<AtomicBool>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The columns of a link.
#[derive(Serialize)]
struct History {
    link: String,
    span: &'static str,
    /// The shown time, in seconds since 1970.
    from: i64,
    until: i64,
    columns: Vec<Column>,
}

#[derive(Serialize)]
struct IncidentView {
    at: i64,
    kind: String,
    text: String,
}

#[derive(Serialize)]
struct RunView {
    id: String,
    at: i64,
    title: Option<String>,
    complete: bool,
    /// Name and value of the headline figure.
    metric: Option<String>,
    value: Option<f64>,
}

#[derive(Serialize, Default)]
struct Incidents {
    link: String,
    incidents: Vec<IncidentView>,
    runs: Vec<RunView>,
}

impl Site {
    /// The pages of a monitor that has measured nothing yet.
    pub fn new(live: Arc<Live>, render_run: RunRenderer) -> Site {
        let (events, _) = watch::channel(Bytes::new());
        let site = Site { live, events: Some(events), render_run, ..Site::of_metrics() };
        locked(&site.ready).insert("/", live_page());
        site.publish(&site.live.overview());
        site
    }

    /// Makes a site with metrics, and no other page.
    pub fn of_metrics() -> Site {
        let live = Arc::new(Live::new(String::new(), Timestamp::UNIX_EPOCH));
        let metrics = Mutex::new(Arc::new(Snapshot::of_families([])));
        let (ready, store, prober, reload) = Default::default();
        let render_run: RunRenderer = Box::new(|_| None);
        let site = Site { live, ready, events: None, metrics, store, render_run, prober, reload };
        site.set("/healthz", "text/plain", "ok\n".to_owned());
        site
    }

    /// Replaces a page that is ready.
    pub(crate) fn set(&self, path: &'static str, media_type: &'static str, body: String) {
        locked(&self.ready).insert(path, Page::new(media_type, body));
    }

    /// Replaces the metrics.
    pub fn set_metrics(&self, snapshot: Snapshot) {
        *locked(&self.metrics) = Arc::new(snapshot);
    }

    /// Sends a state to all open pages.
    pub fn publish(&self, overview: &Overview) {
        let Some(events) = &self.events else { return };
        let json = serde_json::to_string(overview).unwrap_or_default();
        events.send_replace(format!("retry: {RETRY_MS}\ndata: {json}\n\n").into());
    }

    /// Sets the flag with which a client with the token has the file read again.
    pub fn set_reload(&self, flag: Arc<AtomicBool>) {
        *locked(&self.reload) = Some(flag);
    }

    /// Requests that the file is read again. False: there is none.
    pub(crate) fn reload(&self) -> bool {
        locked(&self.reload).as_ref().inspect(|flag| flag.store(true, Relaxed)).is_some()
    }

    /// Performs probes on request.
    pub fn prober(&self) -> &Arc<ScrapeProber> {
        &self.prober
    }

    /// Sets the store with the runs and histories. `None`: nothing is stored.
    pub fn set_store(&self, path: Option<PathBuf>) {
        *locked(&self.store) = path;
    }

    /// The states as they are published, as messages of server-sent events. `None`: there is no live page.
    pub fn events(&self) -> Option<watch::Receiver<Bytes>> {
        self.events.as_ref().map(watch::Sender::subscribe)
    }

    /// A page that is ready.
    pub(crate) fn ready(&self, path: &str) -> Option<Page> {
        locked(&self.ready).get(path).cloned()
    }

    /// A page that has to be made. It may read the store, which takes time.
    ///
    /// # Errors
    ///
    /// No such page exists, or the store cannot be read.
    pub fn make(&self, lookup: &Lookup) -> Result<Page, RequestRefusal> {
        match lookup {
            Lookup::Metrics(format) => {
                let snapshot = locked(&self.metrics).clone();
                Ok(Page::new(format.media_type(), format.render(&snapshot)))
            }
            Lookup::History { link, span } => json_page(&self.history(*link, span)?),
            Lookup::Incidents { link } => json_page(&self.incidents(*link)?),
            Lookup::Run { id } => self.run_page(id),
        }
    }

    fn name_of(&self, link: usize) -> Result<String, RequestRefusal> {
        self.live.overview().links.get(link).map(|link| link.name.clone()).ok_or(RequestRefusal::NotFound)
    }

    fn open_store(&self) -> Option<Store> {
        let path = locked(&self.store).clone()?;
        Store::open_existing(&path).ok()
    }

    fn history(&self, link: usize, span: &'static HistorySpan) -> Result<History, RequestRefusal> {
        let name = self.name_of(link)?;
        let until = self.live.overview().at;
        let from = span.first(until);
        let mut latest = self.live.columns(link, span).unwrap_or_default();
        latest.retain(|column| column.start >= from);
        let known_from = latest.first().map_or(until + 1, |column| column.start);
        let mut columns =
            self.stored(&name, span, (from, known_from)).map_err(|_| RequestRefusal::Unreadable)?;
        columns.extend(latest);
        Ok(History { link: name, span: span.name, from, until: from + span.seconds, columns })
    }

    /// Columns that the store has of a link between two seconds.
    fn stored(&self, name: &str, span: &HistorySpan, within: (i64, i64)) -> Result<Vec<Column>, StoreError> {
        if within.0 >= within.1 || *span == SPANS[0] {
            return Ok(Vec::new());
        }
        let Some(store) = self.open_store() else { return Ok(Vec::new()) };
        let Some(series) = store.find_series(name)? else { return Ok(Vec::new()) };
        stored_columns(&store, series, span, within)
    }

    fn incidents(&self, link: usize) -> Result<Incidents, RequestRefusal> {
        let name = self.name_of(link)?;
        let Some(store) = self.open_store() else {
            return Ok(Incidents { link: name, ..Incidents::default() });
        };
        let read = || -> Result<Incidents, StoreError> {
            let incidents = match store.find_series(&name)? {
                Some(series) => store.incidents(series, MAX_LISTED)?,
                None => Vec::new(),
            };
            let filter = Filter { tag: Some(tag(&name)), limit: Some(MAX_LISTED), ..Filter::default() };
            let runs = store.runs(&filter)?.entries.into_iter().map(|run| {
                let (metric, value) = run.headline.unzip();
                let at = run.started.as_second();
                let (id, title, complete, value) = (run.id, run.title, run.complete, value.flatten());
                RunView { id, at, title, complete, metric, value }
            });
            let incidents = incidents.into_iter().map(|incident| IncidentView {
                at: incident.at.as_second(),
                text: incident_text(&incident.kind, incident.text),
                kind: incident.kind,
            });
            Ok(Incidents { link: name.clone(), incidents: incidents.collect(), runs: runs.collect() })
        };
        read().map_err(|_| RequestRefusal::Unreadable)
    }

    /// The page of a run of a watched link. Other runs of the store are not shown.
    fn run_page(&self, id: &str) -> Result<Page, RequestRefusal> {
        let store = self.open_store().ok_or(RequestRefusal::NotFound)?;
        let tags = store.tags_of(id).map_err(|_| RequestRefusal::Unreadable)?;
        let is_watched = self.live.overview().links.iter().any(|link| tags.contains(&tag(&link.name)));
        let run = is_watched.then(|| store.load(id).ok()).flatten().ok_or(RequestRefusal::NotFound)?;
        let body = (self.render_run)(&run).ok_or(RequestRefusal::Unreadable)?;
        // The page itself names its only script.
        let policy = "frame-ancestors 'none'; base-uri 'none'; form-action 'none'".into();
        Ok(Page { media_type: HTML, policy, body: body.into(), is_packed: false })
    }
}

/// Times are stored as numbers in ns: a learnt limit, and the medians before and after a change.
fn incident_text(kind: &str, text: String) -> String {
    let times: Option<Vec<String>> =
        text.split(' ').map(|time| time.parse().ok().map(format_nanoseconds)).collect();
    match (kind, times.as_deref()) {
        ("learnt", Some([p99])) => format!("the normal p99 is {p99}"),
        ("level", Some([before, after])) => format!("the median is {after}, {before} before"),
        _ => text,
    }
}

const HTML: &str = "text/html; charset=utf-8";

fn json_page(value: &impl Serialize) -> Result<Page, RequestRefusal> {
    serde_json::to_vec(value)
        .map(|json| Page::new("application/json", json))
        .map_err(|_| RequestRefusal::Unreadable)
}

fn live_page() -> Page {
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; frame-ancestors 'none'; \
         base-uri 'none'; form-action 'none'",
        hash(SCRIPT),
        hash(STYLE)
    );
    let spans: Vec<&str> = SPANS.iter().map(|span| span.name).collect();
    let body = PAGE
        .replace("{version}", env!("CARGO_PKG_VERSION"))
        .replace("{spans}", &spans.join(" "))
        .replace("{style}", STYLE)
        .replace("{script}", SCRIPT);
    Page { media_type: HTML, policy: policy.into(), body: body.into(), is_packed: false }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::monitor::{Config, WatchState};
    use linkgauge_model::sample::{Window, WindowCounts};
    use linkgauge_store::Incident;

    const NOW: i64 = 1_000_000_800;

    fn window(probes: u64) -> Window {
        let mut window =
            Window::new(WindowCounts { measured_ms: 10_000, due: probes, ..WindowCounts::default() });
        (0..probes).for_each(|_| window.record(1_000_000));
        window
    }

    /// A site of one link with a slice now and a store with a minute of half an hour ago.
    fn site(place: &std::path::Path) -> Site {
        let config =
            Config::from_toml("[[watch]]\nname = \"a link\"\nurl = \"mem://server\"\nprotocol = \"echo\"");
        let mut state = WatchState::new(&config.unwrap().watches[0]);
        state.recent.push_back((NOW - 20, window(100)));
        let live = Arc::new(Live::new("here".to_owned(), Timestamp::from_second(NOW - 20).unwrap()));
        live.update(&[state], Timestamp::from_second(NOW).unwrap());
        let path = place.join("runs.sqlite");
        let mut store = Store::open(&path).unwrap();
        let series = store.series("a link", "mem://server").unwrap();
        store.add_windows([(series, NOW - 1_800, &window(60))]).unwrap();
        let at = Timestamp::from_second(NOW - 1_800).unwrap();
        let incident = Incident { at, kind: "learnt".to_owned(), text: "1500000".to_owned() };
        store.add_incident(series, &incident).unwrap();
        for (id, name) in [("20260101-aaaa", "a_link"), ("20260101-bbbb", "private")] {
            let run = Run { id: id.to_owned(), ..linkgauge_model::run::Run::from_json(DOCUMENT).unwrap() };
            store.save(&run).unwrap();
            store.tag(id, &[name.to_owned()]).unwrap();
        }
        let site = Site::new(live, Box::new(|run| Some(format!("run {}", run.id))));
        site.set_store(Some(path));
        site
    }

    const DOCUMENT: &str = include_str!("../../../../tests/data/run-v1-latency.json");

    fn json(site: &Site, path: &str, query: &str) -> Value {
        serde_json::from_slice(&site.make(&Lookup::parse(path, query, "").unwrap()).unwrap().body).unwrap()
    }

    #[test]
    fn a_history_joins_what_is_stored_and_what_is_in_memory() {
        let place = tempfile::tempdir().unwrap();
        let site = site(place.path());
        let hour = json(&site, "/history", "link=0&span=1h");
        let due: Vec<u64> =
            hour["columns"].as_array().unwrap().iter().map(|c| c["due"].as_u64().unwrap()).collect();
        assert_eq!(due, [60, 100]);
        assert_eq!(json(&site, "/history", "span=10min&link=0")["columns"].as_array().unwrap().len(), 1);
        let year = json(&site, "/history", "link=0&span=1y");
        assert_eq!((year["link"].as_str(), year["columns"][0]["due"].as_u64()), (Some("a link"), Some(60)));
        let missing = site.make(&Lookup::parse("/history", "link=1&span=1h", "").unwrap());
        assert_eq!(missing.err(), Some(RequestRefusal::NotFound));
        site.set_store(None);
        assert_eq!(json(&site, "/history", "link=0&span=1h")["columns"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn runs_of_watched_links_are_shown_and_no_others() {
        let place = tempfile::tempdir().unwrap();
        let site = site(place.path());
        let incidents = json(&site, "/incidents", "link=0");
        assert_eq!(incidents["incidents"][0]["text"], "the normal p99 is 1.500 ms");
        assert_eq!(incidents["runs"][0]["id"], "20260101-aaaa");
        let page = |id: &str| site.make(&Lookup::Run { id: id.to_owned() });
        assert_eq!(page("20260101-aaaa").unwrap().body, "run 20260101-aaaa");
        for other in ["20260101-bbbb", "20260101", "last", "x"] {
            assert_eq!(page(other).err(), Some(RequestRefusal::NotFound), "{other}");
        }
    }

    #[test]
    fn stored_times_are_shown_with_units() {
        let text = |kind: &str, text: &str| incident_text(kind, text.to_owned());
        assert_eq!(text("level", "1500000 3000000"), "the median is 3.000 ms, 1.500 ms before");
        assert_eq!(text("alarm", "loss > 5 %"), "loss > 5 %");
    }

    #[test]
    fn only_known_pages_are_looked_up() {
        for (path, query) in [
            ("/history", ""),
            ("/history", "link=-1&span=1h"),
            ("/history", "link=0&span=2h"),
            ("/incidents", "link=99999999999999999999999"),
            ("/run/", ""),
            ("/run/../../etc/passwd", ""),
            ("/run/%2e%2e", ""),
            ("/etc/passwd", ""),
        ] {
            assert_eq!(Lookup::parse(path, query, ""), None, "{path}?{query}");
        }
    }

    #[test]
    fn the_page_names_its_only_script() {
        let page = live_page();
        let text = String::from_utf8(page.body.to_vec()).unwrap();
        let part =
            |from: &str, to: &str| text.split_once(from).unwrap().1.split_once(to).unwrap().0.to_owned();
        let hash = |text: String| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
        assert!(page.policy.contains(&hash(part("<script>", "</script>"))), "{}", page.policy);
        assert!(page.policy.contains(&hash(part("<style>", "</style>"))), "{}", page.policy);
        assert!(!text.contains("://"), "no address of another site");
    }
}
