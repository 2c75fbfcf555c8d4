// The live page: states arrive as server-sent events; the history of an open link is fetched.
"use strict";
const SVG = document.querySelector("svg").namespaceURI;
const id = (name) => document.getElementById(name);
const SPANS = document.body.dataset.spans.split(" ");
const SPAN_NAMES = { "10min": "10 min", "1h": "1 h", "1d": "1 day", "2w": "2 weeks", "90d": "90 days", "1y": "1 year" };
/// Spans whose columns are in the memory of the monitor: they change with each state.
const QUICK_SPANS = ["10min", "1h"];
/// Other spans are fetched again after this time, in ms.
const SLOW_REFRESH = 60000;
/// With more links, those without trouble are folded.
const MAX_UNFOLDED = 12;
/// With more links, none is opened unasked.
const MAX_OPENED = 3;
/// Time in ms before a closed stream is opened again, and after which a silent one is reported.
const RECONNECT = 3000;
const SILENCE = 40000;
/// As in columns.rs.
const CELLS_PER_DECADE = 24;

const make = (parent, name, properties = {}) => parent.appendChild(Object.assign(document.createElement(name), properties));
const time = (seconds, style = { timeStyle: "medium" }) => new Intl.DateTimeFormat(undefined, style).format(seconds * 1000);
const moment = (seconds) => time(seconds, { dateStyle: "short", timeStyle: "medium" });
const UNITS = { time: [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]], rate: [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"], [1, "bit/s"]] };
const quantity = (value, units) => {
  const [size, unit] = units.find(([size]) => value >= size) || units[units.length - 1];
  return `${Number((value / size).toPrecision(3))} ${unit}`;
};
/// A percentile: absent was not measured, null is a lost probe.
const latency = (value) => (value === undefined ? "–" : value === null ? "lost" : quantity(value, UNITS.time));
const percent = (part, all) => (all ? `${Number(((100 * part) / all).toPrecision(2))} %` : "–");
const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

/// How much attention a link needs: lower is more.
const RANKS = ["down", "alarm", "lossy", "unknown", "up"];
const stateOf = (link) => (link.state === "up" && link.lost > 0 ? "lossy" : link.state);
/// Links of one state: the share of lost probes, worst first.
const lossOf = (link) => (link.due ? link.lost / link.due : 0);
const WORDS = { alarm: "ALARM", down: "DOWN", lossy: "loss", unknown: "–", up: "up" };

/// One history on a canvas: a heat map with percentiles, and the losses below it.
class Plot {
  constructor(parent) {
    this.canvas = make(parent, "canvas", { className: "plot", tabIndex: 0 });
    this.canvas.setAttribute("role", "img");
    this.readout = make(parent, "p", { className: "readout" });
    this.at = null;
    this.canvas.addEventListener("pointermove", (event) => this.point(event.offsetX));
    this.canvas.addEventListener("pointerleave", () => this.select(null));
    this.canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step || !this.history) return;
      const last = this.history.columns.length - 1;
      this.select(Math.min(last, Math.max(0, (this.at ?? last + 1) + step)));
      event.preventDefault();
    });
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }
  show(history) {
    this.history = history;
    if (this.at !== null && this.at >= history.columns.length) this.at = null;
    this.draw();
    this.describe();
  }
  place() {
    const box = { width: this.canvas.clientWidth, height: this.canvas.clientHeight };
    const left = 62;
    const right = box.width - 8;
    const { from, until } = this.history;
    return { ...box, left, right, top: 8, middle: box.height - 84, loss: box.height - 68, bottom: box.height - 22,
      x: (second) => left + ((second - from) / (until - from)) * (right - left) };
  }
  point(x) {
    if (!this.history) return;
    const { x: place } = this.place();
    const found = this.history.columns.findIndex((column) => x >= place(column.start) && x < place(column.start + column.seconds));
    this.select(found < 0 ? null : found);
  }
  select(index) {
    this.at = index;
    this.draw();
    this.describe();
  }
  describe() {
    const { columns, link, span } = this.history || { columns: [] };
    const column = columns[this.at ?? columns.length - 1];
    if (!column) {
      this.readout.textContent = this.history ? "Nothing was measured in this time." : "";
      return;
    }
    const style = column.seconds < 3600 ? { timeStyle: "medium" } : { dateStyle: "medium", timeStyle: "short" };
    const gap = column.measured_ms < 900 * column.seconds ? `, ${count(Math.round(column.measured_ms / 1000), "second")} measured` : "";
    const figures = column.lost === column.due ? "no reply, " : `p50 ${latency(column.p50_ns)}, p99 ${latency(column.p99_ns)}, max ${latency(column.max_ns)}, `;
    this.readout.textContent = `${time(column.start, style)}: ${figures}loss ${percent(column.lost, column.due)} (${column.lost} of ${count(column.due, "probe")}${gap})`;
    this.canvas.setAttribute("aria-label", `Round-trip times of ${link}, ${SPAN_NAMES[span]}. Latest: ${this.readout.textContent}`);
  }
  draw() {
    const { canvas, history } = this;
    if (!history || !canvas.clientWidth) return;
    const scale = devicePixelRatio || 1;
    const place = this.place();
    canvas.width = Math.round(place.width * scale);
    canvas.height = Math.round(place.height * scale);
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    const style = getComputedStyle(canvas);
    const colour = (name) => style.getPropertyValue(`--${name}`);
    pen.font = `12px ${style.fontFamily}`;
    const cells = history.columns.flatMap((column) => column.cells.map(([cell]) => cell));
    let [low, high] = cells.length ? [cells.reduce((a, b) => Math.min(a, b)) - 1, cells.reduce((a, b) => Math.max(a, b)) + 2] : [96, 168];
    const missing = Math.max(0, CELLS_PER_DECADE / 2 - (high - low));
    [low, high] = [low - Math.floor(missing / 2), high + Math.ceil(missing / 2)];
    const y = (cell) => place.middle - ((cell - low) / (high - low)) * (place.middle - place.top);
    const view = { pen, colour, place, low, high, y, columns: history.columns };
    drawGround(view);
    drawAxes(view, history);
    drawSmoke(view);
    drawLine(view, "p50_ns", "s1", []);
    drawLine(view, "p99_ns", "s2", [5, 3]);
    drawLoss(view);
    const column = history.columns[this.at];
    if (column) {
      pen.strokeStyle = colour("soft");
      const middle = Math.round(place.x(column.start + column.seconds / 2)) + 0.5;
      pen.strokeRect(middle, place.top, 0, place.bottom - place.top);
    }
  }
}

/// Left and right edge of a column, on whole pixels, so that columns touch.
const edges = (place, column) => [Math.max(place.left, Math.round(place.x(column.start))), Math.min(place.right, Math.round(place.x(column.start + column.seconds)))];

/// Hatched where nothing was measured.
const drawGround = ({ pen, colour, place, columns }) => {
  pen.save();
  pen.beginPath();
  pen.rect(place.left, place.top, place.right - place.left, place.bottom - place.top);
  pen.clip();
  pen.strokeStyle = colour("grid");
  pen.beginPath();
  for (let x = place.left - place.height; x < place.right; x += 8) {
    pen.moveTo(x, place.bottom);
    pen.lineTo(x + place.height, place.bottom - place.height);
  }
  pen.stroke();
  pen.fillStyle = colour("card");
  for (const column of columns) {
    const [left, right] = edges(place, column);
    if (column.due) pen.fillRect(left, place.top, Math.max(1, right - left), place.bottom - place.top);
  }
  pen.restore();
};

/// Darkness is the share of the probes of a column; a single reply is visible.
const drawSmoke = ({ pen, colour, place, y, columns }) => {
  pen.fillStyle = colour("smoke");
  for (const column of columns) {
    const [left, right] = edges(place, column);
    for (const [cell, replies] of column.cells) {
      pen.globalAlpha = 0.1 + 0.6 * (replies / column.due) ** 0.5;
      const [top, bottom] = [Math.round(y(cell + 1)), Math.round(y(cell))];
      pen.fillRect(left, top, Math.max(1, right - left), Math.max(1, bottom - top));
    }
  }
  pen.globalAlpha = 1;
};

const TIME_STEPS = [60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 5184000];

const drawAxes = ({ pen, colour, place, low, high, y }, { from, until }) => {
  pen.strokeStyle = colour("rule");
  pen.fillStyle = colour("soft");
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  const factors = high - low > 3 * CELLS_PER_DECADE ? [1] : [1, 2, 5];
  for (let power = Math.floor(low / CELLS_PER_DECADE); power <= high / CELLS_PER_DECADE; power += 1) {
    for (const factor of factors) {
      const cell = (power + Math.log10(factor)) * CELLS_PER_DECADE;
      if (cell < low || cell > high) continue;
      const line = Math.round(y(cell)) + 0.5;
      pen.strokeRect(place.left, line, place.right - place.left, 0);
      pen.fillText(quantity(factor * 10 ** power, UNITS.time), place.left - 6, line);
    }
  }
  pen.textAlign = "center";
  const most = Math.max(2, Math.floor((place.right - place.left) / 90));
  const step = TIME_STEPS.find((seconds) => (until - from) / seconds <= most) || TIME_STEPS[TIME_STEPS.length - 1];
  const zone = -new Date(from * 1000).getTimezoneOffset() * 60;
  const style = step >= 86400 ? { month: "short", day: "numeric" } : { hour: "2-digit", minute: "2-digit" };
  for (let second = Math.ceil((from + zone) / step) * step - zone; second <= until; second += step) {
    const line = Math.round(place.x(second)) + 0.5;
    pen.strokeRect(line, place.top, 0, place.bottom - place.top);
    if (line > place.left + 20 && line < place.right - 16) pen.fillText(time(second, style), line, place.bottom + 12);
  }
};

/// A line that ends at gaps and where the percentile is a lost probe.
const drawLine = ({ pen, colour, place, y, columns }, name, hue, dashes) => {
  pen.strokeStyle = colour(hue);
  pen.lineWidth = 1.8;
  pen.setLineDash(dashes);
  pen.beginPath();
  let end = null;
  for (const column of columns) {
    const value = column[name];
    if (value === undefined || value === null) {
      end = null;
      continue;
    }
    const [left, right] = edges(place, column);
    const level = y(Math.log10(value) * CELLS_PER_DECADE);
    if (end === column.start) pen.lineTo(left, level);
    else pen.moveTo(left, level);
    pen.lineTo(right, level);
    end = column.start + column.seconds;
  }
  pen.stroke();
  pen.setLineDash([]);
  pen.lineWidth = 1;
};

const drawLoss = ({ pen, colour, place, columns }) => {
  const share = (column) => (column.due ? column.lost / column.due : 0);
  const most = columns.reduce((most, column) => Math.max(most, share(column)), 0);
  const top = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5].find((limit) => most <= limit) || 1;
  pen.fillStyle = colour("bad");
  for (const column of columns) {
    const [left, right] = edges(place, column);
    const height = Math.ceil((share(column) / top) * (place.bottom - place.loss));
    if (column.lost) pen.fillRect(left, place.bottom - Math.max(2, height), Math.max(1, right - left), Math.max(2, height));
  }
  pen.strokeStyle = colour("rule");
  pen.strokeRect(place.left, place.loss + 0.5, place.right - place.left, 0);
  pen.strokeRect(place.left, place.bottom + 0.5, place.right - place.left, 0);
  pen.fillStyle = colour("soft");
  pen.textAlign = "right";
  pen.fillText(`${100 * top} %`, place.left - 6, place.loss);
  pen.fillText("loss", place.left - 6, (place.loss + place.bottom) / 2);
  pen.fillText("0", place.left - 6, place.bottom);
};

/// Draws values over the whole width, with gaps at `null`. Returns those that are known.
const drawSpark = (spark, values) => {
  const known = values.filter((value) => value !== null);
  const most = Math.max(1, ...known);
  const runs = [[]];
  values.forEach((value, place) => {
    const level = (19 - (18 * value) / most).toFixed(1);
    if (value === null) runs.push([]);
    else runs[runs.length - 1].push(`${place},${level} ${place + 1},${level}`);
  });
  spark.setAttribute("viewBox", `0 0 ${Math.max(1, values.length)} 20`);
  spark.replaceChildren(...runs.filter((run) => run.length).map((run) => {
    const line = document.createElementNS(SVG, "polyline");
    line.setAttribute("points", run.join(" "));
    return line;
  }));
  return known;
};

const makeSpark = (parent, name) => {
  const spark = parent.appendChild(document.createElementNS(SVG, "svg"));
  spark.setAttribute("class", name);
  spark.setAttribute("role", "img");
  spark.setAttribute("preserveAspectRatio", "none");
  return spark;
};

/// Headline figure of a run, in bit/s or ns.
const figureOf = (metric, value) => {
  if (typeof value !== "number") return null;
  return metric === "rate" ? quantity(value, UNITS.rate) : quantity(value, UNITS.time);
};

/// The three figures of a row: title and text. The one before `null` takes its place as well.
const figuresOf = (link) => {
  const loss = ["loss", percent(link.lost, link.due)];
  if (link.down_since !== undefined) return [["down since", time(link.down_since, sinceStyle(link.down_since))], null, link.is_tested ? ["", ""] : loss];
  const rate = link.bits_per_second;
  const times = link.workload === "throughput" ? [["", ""], ["", ""]] : [["p50", latency(link.p50_ns)], ["p99", latency(link.p99_ns)]];
  return [...times, rate === undefined ? loss : ["rate", quantity(rate, UNITS.rate)]];
};

/// An outage of another day is shown with its date.
const sinceStyle = (second) => (Date.now() - second * 1000 < 72e6 ? { timeStyle: "medium" } : { dateStyle: "short", timeStyle: "short" });

/// The headline figures of the latest tests of a link.
class TestChart {
  constructor(parent) {
    this.spark = makeSpark(parent, "spark tests");
    this.readout = make(parent, "p", { className: "readout" });
  }
  /// Runs as listed, latest first.
  show(runs) {
    const latest = [...runs].reverse();
    const known = drawSpark(this.spark, latest.map(({ value }) => value ?? null));
    const of = (value) => figureOf(runs[0].metric, value);
    this.readout.textContent = known.length
      ? `${of(known[known.length - 1])} in the last test, ${of(Math.min(...known))} to ${of(Math.max(...known))} in ${count(known.length, "test")}`
      : "No test was saved yet.";
  }
  draw() {}
}

/// A link: its line, and what opens below it.
class Row {
  constructor() {
    this.box = Object.assign(document.createElement("details"), { className: "link" });
    const line = make(this.box, "summary");
    this.state = make(line, "span", { className: "state" });
    const name = make(line, "span", { className: "name" });
    this.name = make(name, "strong");
    this.endpoint = make(name, "small");
    this.spark = makeSpark(line, "spark");
    this.figures = ["p50", "p99", "loss"].map((title) => {
      const figure = make(line, "span", { className: "figure" });
      make(figure, "small", { textContent: title });
      return make(figure, "span");
    });
    this.box.addEventListener("toggle", () => this.box.open && this.unfold());
  }
  update(link, index) {
    Object.assign(this, { link, index });
    const state = stateOf(link);
    this.box.dataset.state = state;
    this.state.textContent = WORDS[state];
    this.name.textContent = link.name;
    this.endpoint.textContent = link.name === link.endpoint ? link.protocol : link.endpoint;
    figuresOf(link).forEach((figure, place, all) => {
      const box = this.figures[place].parentNode;
      box.hidden = !figure;
      box.classList.toggle("wide", all[place + 1] === null);
      [box.firstChild.textContent, box.lastChild.textContent] = figure || ["", ""];
    });
    const [values, units, each] = link.is_tested ? [link.spark_bps || [], UNITS.rate, "rate of each test"] : [link.spark_ns, UNITS.time, "median of each minute"];
    const known = drawSpark(this.spark, values);
    this.spark.classList.toggle("empty", !known.length);
    this.spark.setAttribute("aria-label", known.length ? `${each}: ${quantity(Math.min(...known), units)} to ${quantity(Math.max(...known), units)}` : "nothing was measured");
    if (this.about) this.refresh();
  }
  unfold() {
    if (!this.about) {
      const inside = make(this.box, "div", { className: "inside" });
      this.about = make(inside, "p", { className: "about" });
      this.plot = this.link.is_tested ? new TestChart(inside) : new Plot(inside);
      const legend = make(inside, "p", { className: "legend axis", hidden: this.link.is_tested });
      for (const [key, text] of [["p50", "p50"], ["p99", "p99 (from 100 probes)"], ["loss", "lost probes"]]) {
        const entry = make(legend, "span");
        make(entry, "i", { className: `key ${key}` });
        entry.append(text);
      }
      const columns = make(inside, "div", { className: "columns" });
      this.lists = ["Alarms and changes", "Saved runs"].map((title) => {
        const part = make(columns, "section");
        make(part, "h3", { textContent: title });
        return make(part, "ol", { className: "list" });
      });
    }
    this.loaded = 0;
    this.refresh();
  }
  refresh() {
    const { link } = this;
    this.about.textContent = [`${link.endpoint}, ${link.protocol}, ${link.workload}`, ...link.alarms.map((rule) => `Alarm: ${rule}`), link.failure].filter(Boolean).join(". ");
    if (!this.box.open || !this.box.checkVisibility()) return;
    const isDue = !link.is_tested && QUICK_SPANS.includes(page.span) || Date.now() - (this.loaded || 0) > SLOW_REFRESH;
    if (isDue) this.load();
    const event = page.overview.events.find((event) => event.link === link.name);
    const latest = `${this.index} ${event ? `${event.at} ${event.text}` : ""}`;
    if (this.listed !== latest) {
      this.listed = latest;
      this.loadLists();
    }
  }
  async load() {
    if (this.isLoading || this.link.is_tested) return;
    this.isLoading = true;
    const { span } = page;
    try {
      const history = await get(`history?link=${this.index}&span=${span}`);
      if (history.link === this.link.name && span === page.span) this.plot.show(history);
      this.loaded = Date.now();
    } catch (error) {
      this.plot.readout.textContent = `The history cannot be read: ${error.message}.`;
    }
    this.isLoading = false;
    if (span !== page.span) this.load();
  }
  async loadLists() {
    try {
      const { incidents, runs, link } = await get(`incidents?link=${this.index}`);
      if (link !== this.link.name) return;
      const events = page.overview.events.filter((event) => event.link === link);
      const shown = incidents.length ? incidents : events;
      fillList(this.lists[0], shown.map(({ at, text, kind }) => [at, !kind || ["learnt", "level"].includes(kind) ? text : `${kind}: ${text}`]), "none");
      if (this.link.is_tested) this.plot.show(runs);
      fillList(this.lists[1], runs.map(({ at, id, title, complete, metric, value }) => [at, [title || "test", figureOf(metric, value), complete ? null : "incomplete"].filter(Boolean).join(", "), id]), "none");
    } catch (error) {
      this.listed = null;
    }
  }
}

const get = async (path) => {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`the server responds ${response.status}`);
  return response.json();
};

/// Entries: time, text, and the id of a run.
const fillList = (list, entries, none) => {
  list.replaceChildren();
  for (const [at, text, run] of entries) {
    const entry = make(list, "li");
    make(entry, "time", { textContent: moment(at), dateTime: new Date(at * 1000).toISOString() });
    if (run) make(entry, "a", { href: `run/${run}`, textContent: text });
    else entry.append(text);
  }
  if (!entries.length) make(list, "li", { textContent: none, className: "about" });
};

const page = {
  rows: new Map(),
  overview: null,
  span: null,
  received: 0,
  show(overview) {
    if (overview.version !== document.body.dataset.version) return location.reload();
    const isFirst = !this.overview || !this.overview.links.length;
    this.overview = overview;
    this.received = Date.now();
    const { links } = overview;
    if (!this.span && links.length) this.choose(overview.at - overview.since < 900 ? "10min" : "1h");
    id("host").textContent = overview.host || "this host";
    const names = new Set(links.map(({ name }) => name));
    for (const [name, row] of this.rows) {
      if (names.has(name)) continue;
      row.box.remove();
      this.rows.delete(name);
    }
    links.forEach((link, index) => {
      if (!this.rows.has(link.name)) this.rows.set(link.name, new Row());
      this.rows.get(link.name).update(link, index);
    });
    id("answer").textContent = answer(links);
    const bad = links.filter(({ state }) => state === "alarm" || state === "down").length;
    document.title = `${bad ? `(${bad}) ` : ""}Links from ${overview.host}`;
    id("filter").hidden = links.length <= MAX_UNFOLDED;
    if (isFirst) id("rest").open = links.length <= MAX_UNFOLDED;
    this.arrange();
    if (isFirst && links.length <= MAX_OPENED) for (const row of this.rows.values()) row.box.open = true;
    fillList(id("events"), overview.events.map(({ at, text, run }) => [at, text, run]), "none since the monitor started");
    this.tick();
  },
  /// Puts the rows in order, most urgent first; rows that stay are not touched.
  arrange() {
    const wanted = id("filter").value.toLowerCase();
    if (wanted) id("rest").open = true;
    const rank = ({ link }) => RANKS.indexOf(stateOf(link));
    const rows = [...this.rows.values()].sort((a, b) => rank(a) - rank(b) || lossOf(b.link) - lossOf(a.link) || a.index - b.index);
    const isUrgent = (row) => rank(row) < RANKS.indexOf("unknown");
    for (const [parent, part] of [[id("trouble"), rows.filter(isUrgent)], [id("others"), rows.filter((row) => !isUrgent(row))]]) {
      part.forEach((row, place) => {
        if (parent.children[place] !== row.box) parent.insertBefore(row.box, parent.children[place] || null);
      });
    }
    for (const { box, link } of rows) box.hidden = !`${link.name} ${link.endpoint}`.toLowerCase().includes(wanted);
    const others = rows.filter((row) => !isUrgent(row) && !row.box.hidden).length;
    id("rest-title").textContent = `${count(others, "link")} without loss`;
    id("rest").hidden = others === 0;
  },
  choose(span) {
    this.span = span;
    for (const button of id("spans").children) button.setAttribute("aria-pressed", String(button.value === span));
    for (const row of this.rows.values()) if (row.about && row.box.open) row.load();
  },
  /// How old the state is.
  tick() {
    const line = id("status");
    const isLost = source.readyState !== EventSource.OPEN || Date.now() - this.received > SILENCE;
    line.classList.toggle("lost", isLost && this.received > 0);
    const state = this.received ? `State of ${moment(this.overview.at)}` : "connecting";
    line.textContent = isLost && this.received ? `${state}. The monitor does not respond; this page tries again.` : state;
  },
};

const answer = (links) => {
  const measured = links.filter(({ state }) => state !== "unknown");
  const bad = links.filter(({ state }) => state === "alarm" || state === "down");
  const unknown = links.length - measured.length;
  const rest = unknown ? ` ${count(unknown, "link")} not measured yet.` : "";
  if (!measured.length) return links.length ? `No link was measured yet (${links.length}).` : "Waiting for the first measurement.";
  if (!bad.length) return `${measured.length === 1 ? "The link replies" : `All ${measured.length} links reply`}.${rest}`;
  const shown = bad.slice(0, 3).map(({ name, state }) => `${name} ${state === "down" ? "is down" : "has an alarm"}`);
  const more = bad.length > 3 ? ` and ${bad.length - 3} more` : "";
  return `${bad.length} of ${count(links.length, "link")} ${bad.length === 1 ? "needs" : "need"} attention: ${shown.join(", ")}${more}.${rest}`;
};

for (const span of SPANS) {
  const button = make(id("spans"), "button", { type: "button", value: span, textContent: SPAN_NAMES[span] || span });
  button.addEventListener("click", () => page.choose(span));
}
id("filter").addEventListener("input", () => page.arrange());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const row of page.rows.values()) if (row.plot) row.plot.draw();
});

let source;
const connect = () => {
  source = new EventSource("events");
  const own = source;
  own.onmessage = (event) => page.show(JSON.parse(event.data));
  own.onerror = () => {
    page.tick();
    // The browser gives up after a refusal, as while another program has the port.
    if (own.readyState === EventSource.CLOSED) setTimeout(() => source === own && connect(), RECONNECT);
  };
};
document.addEventListener("visibilitychange", () => {
  source.close();
  if (!document.hidden) connect();
});
connect();
setInterval(() => page.tick(), 5000);
