// Lines over the last minutes, as SVG. null: nothing was measured, a gap.
import {el} from "./dom.js";
import {moment} from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const TICKS = 4;

const svg = (name, attributes) => {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
};

const isKnown = (value) => value !== null && value !== undefined;

// The parts of a line between gaps, as lists of [x, y]. xs: from 0 to 1. breaks: no line leads there from the point before.
const parts = (xs, values, top, width, height, breaks) => {
  const found = [];
  let part = null;
  values.forEach((value, i) => {
    if (!isKnown(value)) { part = null; return; }
    if (!part || breaks.has(i)) found.push(part = []);
    part.push([(xs[i] * width).toFixed(1), (height - 1.5 - (value / top) * (height - 3)).toFixed(1)]);
  });
  return found;
};

const lineOf = (part) => `M${part.map((point) => point.join(" ")).join("L")}${part.length === 1 ? "h0.1" : ""}`;
const areaOf = (part, height) => `${lineOf(part)}L${part.at(-1)[0]} ${height}L${part[0][0]} ${height}Z`;

// The first line has an area below it.
const paint = (parent, xs, lines, label, width, height, breaks = new Set()) => {
  let image = parent.firstElementChild;
  if (!image || image.tagName !== "svg") {
    image = svg("svg", {viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", width, height, role: "img"});
    image.append(svg("path", {class: "area"}), ...lines.map((_, i) => svg("path", {class: i ? "spark second" : "spark"})));
    parent.replaceChildren(image);
  }
  image.setAttribute("aria-label", label);
  image.classList.toggle("flat", !lines.flat().some(Boolean));
  const top = Math.max(...lines.flat().map((value) => value ?? 0), 1e-9);
  const found = lines.map((values) => parts(xs, values, top, width, height, breaks));
  image.firstElementChild.setAttribute("d", found[0].map((part) => areaOf(part, height)).join(""));
  found.forEach((line, i) => image.children[i + 1].setAttribute("d", line.map(lineOf).join("")));
};

// Draws into `parent`, in place: nothing else moves. Points have equal distances.
export const draw = (parent, values, label, format, width = 120, height = 26) => {
  const shown = values.length > 1 ? values : [0, 0];
  const known = values.filter(isKnown);
  const now = known.length ? `: now ${format(known.at(-1))}, lowest ${format(Math.min(...known))}, highest ${format(Math.max(...known))}` : "";
  paint(parent, shown.map((_, i) => i / (shown.length - 1)), [shown], `${label}${now}`, width, height);
  parent.title = `${label}${now}`;
};

// Rounds without a page are no rounds: no line leads over the time between.
const breaksIn = (times) => {
  const steps = times.slice(1).map((time, i) => time - times[i]).sort((a, b) => a - b);
  const usual = steps[Math.floor(steps.length / 2)] || 1;
  return new Set(times.map((_, i) => i).filter((i) => i && times[i] - times[i - 1] > 3 * usual + 1));
};

const axis = (parent, name, texts) => {
  let element = parent.querySelector(`.${name}`);
  if (!element) {
    element = el("div", {class: name}, ...texts.map(() => el("span")));
    parent.append(element);
  }
  texts.forEach((text, i) => { if (element.children[i].textContent !== text) element.children[i].textContent = text; });
};

// Shows the values at the pointer.
const follow = (parent) => {
  const tip = el("div", {class: "tip", hidden: ""});
  parent.append(tip);
  parent.addEventListener("pointermove", (event) => {
    const {times, xs, lines, format} = parent.shown;
    const box = parent.firstElementChild.getBoundingClientRect();
    const at = (event.clientX - box.left) / box.width;
    const nearest = xs.reduce((best, x, i) => (Math.abs(x - at) < Math.abs(xs[best] - at) ? i : best), 0);
    tip.hidden = !xs.length;
    if (tip.hidden) return;
    const values = Object.entries(lines).map(([name, values]) => `${name} ${format(values[nearest])}`.trim());
    tip.textContent = `${moment(times[nearest])}  ${values.join(", ")}`;
    tip.style.left = `${xs[nearest] * 100}%`;
    tip.classList.toggle("left", xs[nearest] > 0.5);
  });
  parent.addEventListener("pointerleave", () => { tip.hidden = true; });
};

// Lines over time, with the time below and the highest value beside them. times: seconds since the epoch. lines: name ->
// values; the name of a single line is empty.
export const chart = (parent, times, lines, label, format) => {
  const from = times[0] ?? 0;
  const span = Math.max(1, (times.at(-1) ?? 1) - from);
  const xs = times.map((time) => (time - from) / span);
  const now = Object.entries(lines).flatMap(([name, values]) => {
    const known = values.filter(isKnown);
    return known.length ? [`, ${name ? `${name} ` : ""}now ${format(known.at(-1))}, highest ${format(Math.max(...known))}`] : [];
  });
  const highest = Math.max(0, ...Object.values(lines).flat().filter(isKnown));
  paint(parent, xs, Object.values(lines), `${label}${now.join("")}`, 600, 92, breaksIn(times));
  axis(parent, "scale", [highest ? format(highest) : "", "0"]);
  const ticks = Array.from({length: TICKS}, (_, i) => (times.length > 1 ? moment(from + (i * span) / (TICKS - 1)) : ""));
  axis(parent, "times", ticks);
  if (!parent.shown) follow(parent);
  parent.shown = {times, xs, lines, format};
};
