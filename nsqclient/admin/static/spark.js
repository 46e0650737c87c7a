// Lines over the last minutes, as SVG. null: nothing was measured, a gap.
import {moment} from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const TICKS = 4;

const svg = (name, attributes) => {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
};

// The parts of a line between gaps, as lists of [x, y]. xs: from 0 to 1. breaks: no line leads there from the point before.
const parts = (xs, values, width, height, breaks) => {
  const top = Math.max(...values.map((value) => value ?? 0), 1e-9);
  const found = [];
  let part = null;
  values.forEach((value, i) => {
    if (value === null || value === undefined) { part = null; return; }
    if (!part || breaks.has(i)) found.push(part = []);
    part.push([(xs[i] * width).toFixed(1), (height - 1.5 - (value / top) * (height - 3)).toFixed(1)]);
  });
  return found;
};

const lineOf = (part) => `M${part.map((point) => point.join(" ")).join("L")}${part.length === 1 ? "h0.1" : ""}`;
const areaOf = (part, height) => `${lineOf(part)}L${part.at(-1)[0]} ${height}L${part[0][0]} ${height}Z`;

const paint = (parent, xs, values, label, width, height, breaks = new Set()) => {
  let image = parent.firstElementChild;
  if (!image || image.tagName !== "svg") {
    image = svg("svg", {viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", width, height, role: "img"});
    image.append(svg("path", {class: "area"}), svg("path", {class: "spark"}));
    parent.replaceChildren(image);
  }
  image.setAttribute("aria-label", label);
  image.classList.toggle("flat", !values.some(Boolean));
  const found = parts(xs, values, width, height, breaks);
  image.lastElementChild.setAttribute("d", found.map(lineOf).join(""));
  image.firstElementChild.setAttribute("d", found.map((part) => areaOf(part, height)).join(""));
};

// Draws into `parent`, in place: nothing else moves. Points have equal distances.
export const draw = (parent, values, label, width = 120, height = 26) => {
  const shown = values.length > 1 ? values : [0, 0];
  paint(parent, shown.map((_, i) => i / (shown.length - 1)), shown, label, width, height);
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
    element = document.createElement("div");
    element.className = name;
    element.append(...texts.map(() => document.createElement("span")));
    parent.append(element);
  }
  texts.forEach((text, i) => { if (element.children[i].textContent !== text) element.children[i].textContent = text; });
};

// A line over time, with the time below and the highest value beside it. times: seconds since the epoch.
export const chart = (parent, times, values, label, format) => {
  const from = times[0] ?? 0;
  const span = Math.max(1, (times.at(-1) ?? 1) - from);
  const known = values.filter((value) => value !== null && value !== undefined);
  const highest = Math.max(0, ...known);
  const now = known.length ? `, now ${format(known.at(-1))}, highest ${format(highest)}` : "";
  paint(parent, times.map((time) => (time - from) / span), values, `${label}${now}`, 600, 92, breaksIn(times));
  axis(parent, "scale", [highest ? format(highest) : "", "0"]);
  const ticks = Array.from({length: TICKS}, (_, i) => (times.length > 1 ? moment(from + (i * span) / (TICKS - 1)) : ""));
  axis(parent, "times", ticks);
};
