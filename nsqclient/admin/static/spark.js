// Lines over the last minutes, as SVG. null: nothing was measured, a gap.
import {el, fill} from "./dom.js";
import {moment} from "./format.js";

const TICKS = 4;
const isKnown = (value) => value !== null && value !== undefined;

const svg = (name, attributes, ...children) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};

// Paints lines over xs, from 0 to 1, with an area below the first one. breaks: no line leads there from the point before.
const paint = (xs, lines, label, width, height, breaks = new Set()) => {
  const top = Math.max(...lines.flat().map((value) => value ?? 0), 1e-9);
  const paths = lines.map((values) => values.map((value, i) => {
    if (!isKnown(value)) return "";
    const begins = !i || !isKnown(values[i - 1]) || breaks.has(i);
    return `${begins ? "M" : "L"}${(xs[i] * width).toFixed(1)} ${(height - 1.5 - (value / top) * (height - 3)).toFixed(1)}${begins ? "h0.1" : ""}`;
  }).join(""));
  const area = paths[0].split("M").slice(1).map((part) => {
    const points = part.split("L");
    return `M${part}L${parseFloat(points.at(-1))} ${height}L${parseFloat(part)} ${height}Z`;
  });
  return svg("svg", {
    viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", width, height, role: "img", "aria-label": label,
    class: lines.flat().some(Boolean) ? "" : "flat",
  }, svg("path", {class: "area", d: area.join("")}),
  ...paths.map((d, i) => svg("path", {class: i ? "spark second" : "spark", d})));
};

const summary = (values, format) => {
  const known = values.filter(isKnown);
  return known.length ? `now ${format(known.at(-1))}, highest ${format(Math.max(...known))}` : "nothing measured";
};

// A small line whose points have equal distances, for a cell.
export const spark = (values, label, format) => {
  const shown = values.length > 1 ? values : [0, 0];
  return paint(shown.map((_, i) => i / (shown.length - 1)), [shown], `${label}: ${summary(values, format)}`, 120, 26);
};

// Shows the values at the pointer.
const showTip = (parent, event) => {
  const {times, xs, lines, format} = parent.shown;
  const box = parent.firstElementChild.getBoundingClientRect();
  const at = (event.clientX - box.left) / box.width;
  const nearest = xs.reduce((best, x, i) => (Math.abs(x - at) < Math.abs(xs[best] - at) ? i : best), 0);
  const tip = parent.querySelector(".tip");
  tip.hidden = event.type === "pointerleave" || !xs.length;
  if (tip.hidden) return;
  tip.textContent = `${moment(times[nearest])}  ${Object.entries(lines).map(([name, values]) => `${name} ${format(values[nearest])}`.trim()).join(", ")}`;
  tip.style.left = `${xs[nearest] * 100}%`;
  tip.classList.toggle("left", xs[nearest] > 0.5);
};

// Lines over time, with the time below and the highest value beside them. times: seconds since the epoch. lines: name ->
// values; the name of a single line is empty. No line leads over a time without a page, when nothing was measured.
export const chart = (parent, times, lines, label, format) => {
  const from = times[0] ?? 0;
  const span = Math.max(1, (times.at(-1) ?? 1) - from);
  const xs = times.map((time) => (time - from) / span);
  const steps = times.slice(1).map((time, i) => time - times[i]).sort((a, b) => a - b);
  const usual = steps[steps.length >> 1] ?? 1;
  const breaks = new Set(times.map((_, i) => i).filter((i) => i && times[i] - times[i - 1] > 3 * usual + 1));
  const texts = Object.entries(lines).map(([name, values]) => `${name} ${summary(values, format)}`.trim());
  const highest = Math.max(0, ...Object.values(lines).flat().filter(isKnown));
  const ticks = Array.from({length: TICKS}, (_, i) => (times.length > 1 ? moment(from + (i * span) / (TICKS - 1)) : ""));
  const spans = (name, all) => el("div", {class: name}, ...all.map((text) => el("span", {}, text)));
  if (!parent.shown) {
    parent.addEventListener("pointermove", (event) => showTip(parent, event));
    parent.addEventListener("pointerleave", (event) => showTip(parent, event));
  }
  parent.shown = {times, xs, lines, format};
  fill(parent, [paint(xs, Object.values(lines), `${label}: ${texts.join("; ")}`, 600, 92, breaks),
    spans("scale", [highest ? format(highest) : "", "0"]), spans("times", ticks),
    parent.querySelector(".tip") ?? el("div", {class: "tip", hidden: ""})]);
};
