// What a place on a chart means, in words, where the pointer is. The charts can be read without it.
"use strict";
// Of the drawing, up to its last pixels; report/svg.rs has the margins.
const FIELD = { left: 104, right: 41, top: 10, bottom: 31 };
const STEPS = {
  ns: [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]],
  "bit/s": [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"], [1, "bit/s"]],
  B: [[1e6, "MB"], [1e3, "kB"], [1, "B"]],
};
// A drawing has a few hundred places an axis: more digits would be made up.
function digits(value) { return String(Number(value.toPrecision(3))); }
function axis(text) {
  const [low, high, scale, unit] = text.split(" ");
  return { low: Number(low), high: Number(high), scale, unit: unit || "" };
}
function words(axis, share) {
  const at = axis.low + (axis.high - axis.low) * share;
  if (axis.scale === "names") return "";
  if (axis.scale === "nines") return `${Number((100 - 100 * 10 ** -at).toFixed(Math.max(1, Math.floor(at))))} %`;
  const value = axis.scale === "log" ? 10 ** at : at;
  if (axis.unit === "port") return `port ${Math.round(value)}`;
  const step = (STEPS[axis.unit] || []).find(([size]) => value >= size) || [1, axis.unit];
  return `${digits(value / step[0])} ${step[1]}`.trim();
}
function places(svg) {
  const places = [];
  for (const line of svg.querySelectorAll("polyline:not(.axis-line)")) {
    for (const pair of line.getAttribute("points").trim().split(/\s+/)) places.push(pair.split(",").map(Number));
  }
  for (const dot of svg.querySelectorAll("circle:not(.here), use")) {
    const at = (name) => Number(dot.getAttribute(name) || dot.getAttribute(`c${name}`));
    places.push([at("x"), at("y")]);
  }
  return places;
}
for (const svg of document.querySelectorAll("svg.chart")) {
  const [x, y] = [axis(svg.dataset.x), axis(svg.dataset.y)];
  const { width, height } = svg.viewBox.baseVal;
  const all = places(svg);
  if (all.length === 0) continue;
  const make = (name) => svg.appendChild(document.createElementNS(svg.namespaceURI, name));
  const [dot, text] = [make("circle"), make("text")];
  dot.setAttribute("class", "here");
  dot.setAttribute("r", "6");
  text.setAttribute("class", "here");
  const hide = (hidden) => [dot, text].forEach((one) => one.toggleAttribute("hidden", hidden));
  hide(true);
  svg.addEventListener("pointerleave", () => hide(true));
  svg.addEventListener("pointermove", (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const distance = ([px, py]) => (px - at.x) ** 2 + (py - at.y) ** 2;
    const [px, py] = all.reduce((best, one) => (distance(one) < distance(best) ? one : best));
    const share = [(px - FIELD.left) / (width - FIELD.left - FIELD.right),
      (height - FIELD.bottom - py) / (height - FIELD.bottom - FIELD.top)];
    text.textContent = `≈ ${[words(x, share[0]), words(y, share[1])].filter(Boolean).join(": ")}`;
    const left = px > width / 2;
    text.setAttribute("text-anchor", left ? "end" : "start");
    text.setAttribute("x", px + (left ? -10 : 10));
    text.setAttribute("y", Math.max(py - 10, 22));
    dot.setAttribute("cx", px);
    dot.setAttribute("cy", py);
    hide(false);
  });
}
