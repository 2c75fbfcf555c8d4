// Crosshair, zoom, scales, series and export of the charts. The page can be read and printed without this script.
"use strict";
// Margins of the static drawing, which report/svg.rs makes.
const DRAWN = { left: 104, right: 40, top: 10, bottom: 30 };
const STEPS = {
  ns: [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]],
  "bit/s": [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"], [1, "bit/s"]],
  B: [[1e6, "MB"], [1e3, "kB"], [1, "B"]],
};
const SVG = document.querySelector(".marks").namespaceURI;
/// Axes of numbered things.
const COUNTED = ["port", "repetition"];
const make = (parent, name, attributes = {}) => {
  const node = parent.appendChild(document.createElementNS(SVG, name));
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
};
const round = (value) => Math.round(value * 100) / 100;

/// One axis. A place is a position on the scale: the value itself, or its logarithm.
class Axis {
  constructor(text) {
    const [low, high, scale, unit] = text.split(" ");
    Object.assign(this, { low: Number(low), high: Number(high), scale, unit: unit || "", ticks: [] });
    this.initial = { low: this.low, high: this.high, scale };
  }
  get isSwitchable() { return ["linear", "log"].includes(this.initial.scale) && !COUNTED.includes(this.unit); }
  get isInitial() { return ["low", "high", "scale"].every((key) => this[key] === this.initial[key]); }
  value(place, scale = this.scale) { return scale === "log" ? 10 ** place : place; }
  place(value) { return this.scale === "log" ? Math.log10(Math.max(value, this.unit === "ns" ? 1 : 1e-3)) : value; }
  share(value) { return (this.place(value) - this.low) / (this.high - this.low); }
  words(value) {
    if (this.scale === "names") return "";
    if (this.scale === "nines") {
      return `${Number((100 - 100 * 10 ** -value).toFixed(Math.max(1, Math.floor(value))))} %`;
    }
    if (COUNTED.includes(this.unit)) return `${this.unit} ${Math.round(value)}`;
    const step = (STEPS[this.unit] || []).find(([size]) => value >= size) || [1, this.unit];
    return `${Number((value / step[0]).toPrecision(3))} ${step[1]}`.trim();
  }
  /// Places and names of grid lines, at most about `count`.
  grid(count) {
    if (this.isInitial || !this.isSwitchable) {
      return this.ticks.filter(([value]) => this.share(value) > -0.001 && this.share(value) < 1.001);
    }
    const [from, to] = [this.value(this.low), this.value(this.high)];
    const values = [];
    if (this.scale === "log" && this.high - this.low > 0.8) {
      const steps = this.high - this.low > count / 3 ? [1] : [1, 2, 5];
      for (let power = Math.floor(this.low); power <= this.high; power += 1) {
        values.push(...steps.map((step) => step * 10 ** power));
      }
    } else {
      const rough = (to - from) / count;
      const decade = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].find((n) => n * decade >= rough) * decade;
      for (let n = Math.ceil(from / step); n * step <= to; n += 1) values.push(n * step);
    }
    return values.filter((value) => value >= from && value <= to).map((value) => [value, value === 0 ? "0" : this.words(value)]);
  }
}

class Chart {
  constructor(svg) {
    Object.assign(this, { svg, figure: svg.closest("figure"), x: new Axis(svg.dataset.x), y: new Axis(svg.dataset.y) });
    this.drawn = { width: svg.viewBox.baseVal.width, height: svg.viewBox.baseVal.height };
    this.kind = `${this.figure.querySelector(".axis.x").textContent} ${this.x.unit}`;
    const value = (axis, share) => axis.value(axis.low + (axis.high - axis.low) * share);
    const field = { width: this.drawn.width - DRAWN.left - DRAWN.right, height: this.drawn.height - DRAWN.top - DRAWN.bottom };
    const at = (x, y) => [value(this.x, (x - DRAWN.left) / field.width), value(this.y, 1 - (y - DRAWN.top) / field.height)];
    const number = (node, name) => Number(node.getAttribute(name));
    for (const text of svg.querySelectorAll(".x-tick")) this.x.ticks.push([at(number(text, "x"), 0)[0], text.textContent]);
    for (const text of svg.querySelectorAll(".y-tick")) this.y.ticks.push([at(0, number(text, "y"))[1], text.textContent]);
    // Shapes are points in values, so that they can be drawn on any scale.
    this.series = [...svg.querySelectorAll("g")].map((group) => ({
      group,
      name: group.dataset.name || "",
      shapes: [...group.children].map((node) => {
        const text = node.getAttribute("points");
        const points = text ? text.split(" ").map((pair) => at(...pair.split(",").map(Number))) : [at(number(node, "x"), number(node, "y"))];
        return { node, points, isBand: node.tagName === "polygon", isEvent: node.classList.contains("event-line") };
      }),
    }));
    this.points = this.series.flatMap((series) =>
      series.shapes.filter((shape) => !shape.isBand).flatMap((shape) => shape.points.map(([x, y]) => ({ x, y, series, isEvent: shape.isEvent }))));
    this.clip = `clip-${Chart.all.length}`;
    this.clipRect = make(make(make(svg, "defs"), "clipPath", { id: this.clip }), "rect");
    for (const { group } of this.series) group.setAttribute("clip-path", `url(#${this.clip})`);
    this.line = make(svg, "path", { class: "here" });
    this.marks = make(svg, "g", { class: "here-marks" });
    this.label = make(svg, "text", { class: "here" });
    this.selection = make(svg, "rect", { class: "selection" });
    this.hide();
    svg.setAttribute("tabindex", "0");
    this.listen();
    Chart.all.push(this);
    new ResizeObserver(() => requestAnimationFrame(() => { if (svg.clientWidth !== this.width) this.draw(); })).observe(svg);
  }
  visible() { return this.series.filter((series) => !series.group.hasAttribute("hidden")); }
  shownPoints() { return this.points.filter((point) => !point.series.group.hasAttribute("hidden")); }
  /// The panels of the figure, and charts of the same kind that are on the screen.
  companions() {
    return Chart.all.filter((other) => {
      if (other.figure === this.figure) return true;
      const { top, bottom } = other.svg.getBoundingClientRect();
      return other.kind === this.kind && bottom > Math.max(0, top) && top < window.innerHeight;
    });
  }
  /// In the size at which the chart is shown, so that text has its size at every width.
  draw() {
    const width = this.svg.clientWidth;
    if (width === 0) return;
    this.width = width;
    const isNarrow = width < 520;
    const height = Math.max(this.drawn.height, isNarrow ? width * 0.8 : 0);
    const yTicks = this.yGrid();
    // Panels of a figure have one left edge.
    const panels = Chart.all.filter((other) => other.figure === this.figure);
    const widest = Math.max(3, ...panels.flatMap((panel) => panel.yGrid().map(([, name]) => name.length)));
    this.field = { left: 14 + widest * 6.6, top: 10, right: width - (isNarrow ? 14 : 40), bottom: height - 30 };
    this.svg.setAttribute("viewBox", `0 0 ${width} ${round(height)}`);
    const { left, top, right, bottom } = this.field;
    for (const [name, value] of Object.entries({ x: left - 1, y: top - 8, width: right - left + 8, height: bottom - top + 9 })) {
      this.clipRect.setAttribute(name, round(value));
    }
    this.drawGrid(yTicks);
    for (const { shapes } of this.series) {
      for (const { node, points, isEvent } of shapes) {
        const places = points.map(([x, y]) => [round(this.px(x)), isEvent ? top : round(this.py(y))]);
        if (node.hasAttribute("points")) node.setAttribute("points", places.map((place) => place.join(",")).join(" "));
        else ["x", "y"].forEach((name, index) => node.setAttribute(name, places[0][index]));
      }
    }
    this.hide();
  }
  yGrid() { return this.y.grid(Math.max(3, this.drawn.height / 60)); }
  px(value) { return this.field.left + this.x.share(value) * (this.field.right - this.field.left); }
  py(value) { return this.field.bottom - this.y.share(value) * (this.field.bottom - this.field.top); }
  drawGrid(yTicks) {
    const { left, top, right, bottom } = this.field;
    this.svg.querySelectorAll(".x-tick, .y-tick").forEach((old) => old.remove());
    let path = "";
    let free = -Infinity;
    for (const [value, name] of this.x.grid(Math.max(3, (right - left) / 90))) {
      const x = round(this.px(value));
      path += `M${x} ${top}V${bottom}`;
      const half = name.length * 3.7 + 1;
      // A name at the edge moves inwards, so that nothing of it is cut off.
      const middle = round(Math.max(half, Math.min(x, this.width - half)));
      if (middle - half < free) continue;
      free = middle + half + 6;
      make(this.svg, "text", { x: middle, y: bottom, class: "x-tick" }).textContent = name;
    }
    for (const [value, name] of yTicks) {
      const y = round(this.py(value));
      path += `M${round(left)} ${y}H${right}`;
      make(this.svg, "text", { x: round(left), y, class: "y-tick" }).textContent = name;
    }
    this.svg.querySelector(".grid-line").setAttribute("d", path);
    this.svg.querySelector(".axis-line").setAttribute("d", `M${round(left)} ${top}V${bottom}H${right}`);
  }
  hide() {
    for (const node of [this.line, this.marks, this.label, this.selection]) node.toggleAttribute("hidden", true);
  }
  /// The crosshair at a value, with the nearest point of each series; `chosen` comes first.
  show(x, chosen) {
    const near = this.visible().map((series) => {
      const own = this.points.filter((point) => point.series === series);
      return own.length ? own.reduce((best, point) => (Math.abs(this.px(point.x) - this.px(x)) < Math.abs(this.px(best.x) - this.px(x)) ? point : best)) : null;
    }).filter((point) => point && Math.abs(this.px(point.x) - this.px(x)) < 24 && point !== chosen);
    const others = near.filter((point) => !chosen || point.series !== chosen.series);
    const shown = [...(chosen ? [chosen] : []), ...others].slice(0, 6);
    if (shown.length === 0) return this.hide();
    const at = this.px(shown[0].x);
    this.line.setAttribute("d", `M${round(at)} ${this.field.top}V${this.field.bottom}`);
    this.marks.replaceChildren();
    this.label.replaceChildren();
    const isLeft = at > (this.field.left + this.field.right) / 2;
    const y = chosen ? Math.max(this.py(chosen.y) - 10, 22) : 22;
    const lines = shown.map((point, index) => {
      const words = point.isEvent ? "" : this.y.words(point.y);
      const first = index === 0 ? `≈ ${[this.x.words(point.x), words].filter(Boolean).join(": ")}` : words;
      return `${first}${point.series.name ? ` ${point.series.name}` : ""}`.trim();
    });
    const top = Math.max(14, Math.min(y, this.field.bottom - 16 * lines.length));
    lines.forEach((words, index) => {
      make(this.label, "tspan", { x: at + (isLeft ? -10 : 10), y: top + 16 * index }).textContent = words;
    });
    for (const point of shown.filter((one) => !one.isEvent)) {
      make(this.marks, "circle", { cx: round(this.px(point.x)), cy: round(this.py(point.y)), r: 5 });
    }
    this.label.setAttribute("text-anchor", isLeft ? "end" : "start");
    for (const node of [this.line, this.marks, this.label]) node.toggleAttribute("hidden", false);
    this.chosen = shown[0];
    return lines;
  }
  showAll(point) {
    const lines = this.show(point.x, point);
    for (const other of this.companions()) if (other !== this) other.show(point.x);
    return lines;
  }
  nearest(x, y) {
    const far = (point) => (this.px(point.x) - x) ** 2 + (point.isEvent ? 0 : (this.py(point.y) - y) ** 2);
    const points = this.shownPoints().filter((point) => this.x.share(point.x) >= 0 && this.x.share(point.x) <= 1);
    return points.length ? points.reduce((best, point) => (far(point) < far(best) ? point : best)) : null;
  }
  /// Fits the vertical axis to the points that are shown.
  fit() {
    const y = this.y;
    if (!y.isSwitchable) return;
    const inside = this.visible().flatMap((series) => series.shapes).filter((shape) => !shape.isEvent).flatMap((shape) => shape.points)
      .filter(([x]) => this.x.share(x) >= 0 && this.x.share(x) <= 1).map(([, value]) => value);
    if (inside.length === 0) return;
    const positive = inside.filter((value) => value > 0);
    const most = Math.max(...inside);
    if (y.scale === "log" && positive.length) {
      [y.low, y.high] = [y.place(Math.min(...positive)) - 0.08, y.place(most) + 0.08];
    } else {
      [y.low, y.high] = [0, most > 0 ? most * 1.04 : 1];
    }
  }
  zoom(from, to) {
    const isTurned = this.x.scale !== this.x.initial.scale;
    const low = isTurned ? from : Math.max(from, this.x.initial.low);
    const high = isTurned ? to : Math.min(to, this.x.initial.high);
    for (const chart of this.companions()) {
      if (high > low) Object.assign(chart.x, { low, high, scale: this.x.scale });
      chart.fit();
      chart.draw();
    }
  }
  reset() {
    for (const chart of this.companions()) {
      for (const axis of [chart.x, chart.y]) Object.assign(axis, axis.initial);
      chart.draw();
    }
  }
  /// Between a linear and a logarithmic scale.
  turn(name) {
    const axis = this[name];
    if (!axis.isSwitchable) return;
    const scale = axis.scale === "log" ? "linear" : "log";
    if (scale === axis.initial.scale) {
      Object.assign(axis, axis.initial);
    } else {
      const values = this.points.map((point) => point[name]).filter((value) => scale === "linear" || value > 0);
      axis.scale = scale;
      const [least, most] = [Math.min(...values), Math.max(...values)];
      [axis.low, axis.high] = scale === "log" ? [axis.place(least) - 0.03, axis.place(most) + 0.03] : [name === "y" ? 0 : least, most];
    }
    if (name === "y") this.fit();
    this.draw();
  }
  listen() {
    const { svg } = this;
    let from = null;
    const place = (event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const inside = (x) => Math.min(Math.max(x, this.field.left), this.field.right);
    const at = (x) => this.x.low + ((inside(x) - this.field.left) / (this.field.right - this.field.left)) * (this.x.high - this.x.low);
    svg.addEventListener("pointerleave", () => this.companions().forEach((chart) => chart.hide()));
    svg.addEventListener("pointerdown", (event) => { if (event.button === 0) from = inside(place(event).x); });
    svg.addEventListener("pointermove", (event) => {
      if (!this.field) this.draw();
      const { x, y } = place(event);
      if (from !== null && event.buttons === 1 && Math.abs(x - from) > 8) {
        const [left, right] = [Math.min(from, inside(x)), Math.max(from, inside(x))];
        const size = { x: left, y: this.field.top, width: right - left, height: this.field.bottom - this.field.top };
        for (const [name, value] of Object.entries(size)) this.selection.setAttribute(name, value);
        this.selection.toggleAttribute("hidden", false);
        return;
      }
      const point = this.nearest(x, y);
      if (point) this.showAll(point);
    });
    svg.addEventListener("pointerup", (event) => {
      const to = place(event).x;
      if (from !== null && Math.abs(to - from) > 8) this.zoom(...[at(from), at(to)].sort((a, b) => a - b));
      from = null;
      this.selection.toggleAttribute("hidden", true);
    });
    svg.addEventListener("dblclick", () => this.reset());
    svg.addEventListener("keydown", (event) => { if (this.key(event)) event.preventDefault(); });
    svg.addEventListener("blur", () => this.companions().forEach((chart) => chart.hide()));
  }
  /// True if the key is one of ours.
  key({ key, ctrlKey, metaKey, altKey }) {
    if (ctrlKey || metaKey || altKey) return false;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
    const other = { ArrowUp: -1, ArrowDown: 1 }[key];
    if (step || other) {
      const all = this.visible().filter((series) => this.points.some((point) => point.series === series));
      let series = this.chosen && all.includes(this.chosen.series) ? this.chosen.series : all[0];
      if (!series) return false;
      if (other) series = all[(all.indexOf(series) + other + all.length) % all.length];
      const own = this.points.filter((point) => point.series === series).sort((a, b) => a.x - b.x);
      const far = (point) => Math.abs(point.x - this.chosen.x);
      const here = this.chosen && own.reduce((best, point) => (far(point) < far(best) ? point : best));
      const index = this.chosen ? own.indexOf(step && own.includes(this.chosen) ? this.chosen : here) : -1;
      const next = own[Math.min(Math.max(index + (step || 0), 0), own.length - 1)];
      this.say(this.showAll(next));
      return true;
    }
    const [width, middle] = [this.x.high - this.x.low, this.chosen ? this.x.place(this.chosen.x) : (this.x.low + this.x.high) / 2];
    const actions = {
      "+": () => this.zoom(middle - width / 4, middle + width / 4),
      "-": () => this.zoom(Math.max(middle - width, this.x.initial.low), Math.min(middle + width, this.x.initial.high)),
      Escape: () => this.reset(),
      0: () => this.reset(),
      l: () => this.turn("y"),
      x: () => this.turn("x"),
    };
    const action = actions[key];
    if (action) action();
    return Boolean(action);
  }
  say(lines) {
    const live = this.figure.querySelector("[aria-live]");
    if (live && lines) live.textContent = lines.join(", ");
  }
}
Chart.all = [];

/// The charts of a figure as one drawing, in light colours.
function drawing(figure) {
  const charts = Chart.all.filter((chart) => chart.figure === figure);
  const root = document.createElementNS(SVG, "svg");
  const text = (words, x, y, size, weight) => { make(root, "text", { x, y, "font-size": size, "font-weight": weight, class: "text" }).textContent = words; };
  const isOurs = (rule) => rule.selectorText && /root|line|fill|band|tick|use|svg/.test(rule.selectorText);
  const rules = [...document.styleSheets[0].cssRules].filter(isOurs).map((rule) => rule.cssText).join("\n");
  make(root, "style").textContent = `${rules}\nsvg { overflow: visible } .text { fill: var(--ink) }`;
  root.appendChild(document.querySelector(".marks defs").cloneNode(true));
  const width = Math.max(...charts.map((chart) => chart.svg.viewBox.baseVal.width));
  const back = make(root, "rect", { width: "100%", height: "100%", fill: "#fff" });
  let top = 26;
  text(figure.querySelector("figcaption strong").textContent, 12, top, 16, 600);
  top += 20;
  text(figure.querySelector("figcaption span").textContent, 12, top, 12, 400);
  for (const chart of charts) {
    const { height } = chart.svg.viewBox.baseVal;
    text(chart.svg.previousElementSibling.textContent, 12, top + 24, 12, 400);
    const copy = root.appendChild(chart.svg.cloneNode(true));
    copy.querySelectorAll(".here, .here-marks, .selection, [hidden]").forEach((node) => node.remove());
    for (const [name, value] of Object.entries({ x: 0, y: top + 30, width, height })) copy.setAttribute(name, value);
    top += 30 + height;
  }
  text(figure.querySelector(".axis.x").textContent, width / 2, top + 16, 12, 400);
  top += 30;
  const entries = [...figure.querySelectorAll(".legend button:not([aria-pressed=false])")];
  for (const entry of entries) {
    const key = entry.querySelector("svg").cloneNode(true);
    for (const [name, value] of Object.entries({ x: 12, y: top, width: 30, height: 10 })) key.setAttribute(name, value);
    root.appendChild(key);
    text(entry.textContent.trim(), 50, top + 9, 12, 400);
    top += 20;
  }
  const height = Math.round(top + 8);
  for (const [name, value] of Object.entries({ xmlns: root.namespaceURI, width, height, "font-family": "sans-serif" })) root.setAttribute(name, value);
  back.setAttribute("height", height);
  return { text: new XMLSerializer().serializeToString(root), width, height };
}
function save(figure, ending, blob) {
  const title = figure.querySelector("figcaption strong").textContent.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${title}.${ending}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
function savePng(figure) {
  const { text, width, height } = drawing(figure);
  const image = new Image();
  image.onload = () => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [2 * width, 2 * height];
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(figure, "png", blob));
  };
  image.src = `data:image/svg+xml,${encodeURIComponent(text)}`;
}
/// The drawn points in base units, to four digits.
function csv(figure) {
  const quote = (text) => `"${text.replaceAll('"', '""')}"`;
  const rows = [["chart", "series", "x", "y"].join(",")];
  for (const chart of Chart.all.filter((one) => one.figure === figure)) {
    const label = `${chart.svg.previousElementSibling.textContent} [${chart.y.unit}] by ${figure.querySelector(".axis.x").textContent} [${chart.x.unit}]`;
    for (const { x, y, series, isEvent } of chart.points) {
      rows.push([quote(label), quote(series.name), Number(x.toPrecision(4)), isEvent ? "" : Number(y.toPrecision(4))].join(","));
    }
  }
  return `${rows.join("\n")}\n`;
}
function equip(figure) {
  const charts = Chart.all.filter((chart) => chart.figure === figure);
  const tools = document.createElement("div");
  tools.className = "tools";
  const button = (name, title, action) => {
    const node = tools.appendChild(document.createElement("button"));
    Object.assign(node, { type: "button", textContent: name, title });
    node.addEventListener("click", action);
    return node;
  };
  if (charts.some((chart) => chart.x.isSwitchable && chart.x.unit !== "s")) button("log x", "Switch the horizontal axis between linear and logarithmic (key x)", () => charts.forEach((chart) => chart.turn("x")));
  if (charts.some((chart) => chart.y.isSwitchable)) button("log y", "Switch the vertical axis between linear and logarithmic (key l)", () => charts.forEach((chart) => chart.turn("y")));
  button("reset", "Show everything (double click, or Escape). Drag across a chart, or press + and −, to zoom", () => charts.forEach((chart) => chart.reset()));
  button("PNG", "Save as an image", () => savePng(figure));
  button("SVG", "Save as a drawing", () => save(figure, "svg", new Blob([drawing(figure).text], { type: "image/svg+xml" })));
  button("CSV", "Save the drawn points", () => save(figure, "csv", new Blob([csv(figure)], { type: "text/csv" })));
  figure.appendChild(tools);
  const live = figure.appendChild(document.createElement("p"));
  live.className = "unseen";
  live.setAttribute("aria-live", "polite");
  for (const entry of figure.querySelectorAll(".legend li")) {
    const name = entry.textContent.trim();
    const toggle = document.createElement("button");
    Object.assign(toggle, { type: "button", title: "Show or hide" });
    toggle.setAttribute("aria-pressed", "true");
    toggle.append(...entry.childNodes);
    entry.appendChild(toggle);
    toggle.addEventListener("click", () => {
      const isShown = toggle.getAttribute("aria-pressed") === "false";
      toggle.setAttribute("aria-pressed", String(isShown));
      for (const chart of charts) {
        chart.series.filter((series) => series.name === name).forEach(({ group }) => group.toggleAttribute("hidden", !isShown));
        chart.fit();
        chart.draw();
      }
    });
  }
}
for (const svg of document.querySelectorAll("svg.chart")) new Chart(svg);
Chart.all.forEach((chart) => chart.draw());
new Set(Chart.all.map((chart) => chart.figure)).forEach(equip);
