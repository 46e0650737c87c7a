// Lines over the last minutes, as SVG.
const SVG = "http://www.w3.org/2000/svg";

const svg = (name, attributes) => {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
};

const course = (values, width, height) => {
  const top = Math.max(...values, 1e-9);
  const step = width / Math.max(1, values.length - 1);
  return values.map((value, i) => `${(i * step).toFixed(1)} ${(height - 1.5 - (value / top) * (height - 3)).toFixed(1)}`);
};

// Draws into `parent`, in place: nothing else moves.
export const draw = (parent, values, label, width = 120, height = 26) => {
  let image = parent.firstElementChild;
  if (!image || image.tagName !== "svg") {
    image = svg("svg", {viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", width, height, role: "img"});
    image.append(svg("path", {class: "area"}), svg("path", {class: "spark"}));
    parent.replaceChildren(image);
  }
  image.setAttribute("aria-label", label);
  image.classList.toggle("flat", !values.some(Boolean));
  const points = values.length > 1 ? course(values, width, height) : [`0 ${height - 1.5}`, `${width} ${height - 1.5}`];
  const line = `M${points.join("L")}`;
  image.lastElementChild.setAttribute("d", line);
  image.firstElementChild.setAttribute("d", `${line}L${width} ${height}L0 ${height}Z`);
};

export const chart = (parent, values, label, format) => {
  draw(parent, values, label, 600, 92);
  let peak = parent.querySelector(".peak");
  if (!peak) {
    peak = document.createElement("span");
    peak.className = "peak";
    parent.append(peak);
  }
  const highest = Math.max(0, ...values);
  peak.textContent = highest ? `highest ${format(highest)}` : "";
};
