// Small helpers: elements, texts that change only when they must, settings of the page.
export const page = document.body.dataset;
export const mayAct = page.mayAct === "yes";
export const mayPeek = page.mayPeek === "yes";
export const hasLookupds = page.hasLookupds === "yes";
export const byId = (id) => document.getElementById(id);

export const el = (name, attributes = {}, ...children) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") element.addEventListener("click", value);
    else if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
};

// The badge of a server: it answers, it fails, or it was asked and has not answered yet.
export const serverBadge = (row) => {
  const [kind, text] = row.is_up ? ["good", "up"] : row.is_waiting ? ["warn", "waiting"] : ["bad", "fails"];
  return el("span", {class: `badge ${kind}`}, text);
};

export const setText = (element, text) => {
  if (element.textContent !== text) element.textContent = text;
};

export const show = (id, text) => setText(byId(id), text);

// A path of this page: every part is one segment.
export const path = (...parts) => `${page.base}/${parts.map(encodeURIComponent).join("/")}`;

export const topicPath = (topic, channel) => (channel ? path("topics", topic, channel) : path("topics", topic));
