// Helpers: elements, texts that are replaced only when they differ, settings of the page.
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

// What a cause of a failure is called.
const STATES = {
  waiting: "waiting", gone: "gone", hung: "hangs", refused: "down", unreachable: "unreachable", tls: "TLS fails",
  wrong: "wrong answer", rejected: "rejects", doubtful: "doubtful", failed: "fails",
};
export const stateOf = (failure) => STATES[failure.cause] || "fails";

// The cell of a server: it answers, it fails, or its answer is outstanding; since when, and why.
export const serverState = (since) => (cell, row) => {
  const key = `${row.is_up} ${row.cause} ${row.since} ${row.reason}`;
  if (cell.dataset.key === key) return;
  cell.dataset.key = key;
  cell.title = row.reason || (row.is_up ? "answers" : "no answer");
  const [kind, text] = row.is_up ? ["good", "up"] : [row.is_waiting ? "warn" : "bad", stateOf(row)];
  cell.replaceChildren(el("span", {class: `badge ${kind}`}, text),
    row.is_up && !row.reason ? "" : `${since(row.since)}: ${cell.title}`);
};

export const setText = (element, text) => {
  if (element.textContent !== text) element.textContent = text;
};

export const show = (id, text) => setText(byId(id), text);

// Hides or shows what acts on the topic or channel of the page: there is nothing without it.
export const setKnown = (isKnown) => {
  document.body.classList.toggle("absent", !isKnown);
};

// Offers names in a select, behind the options that it has without a class; what was chosen stays.
export const offer = (field, names, label = (name) => name) => {
  if (!field || field.dataset.names === names.join()) return;
  field.dataset.names = names.join();
  const chosen = field.value;
  for (const old of field.querySelectorAll("option.offered")) old.remove();
  field.append(...names.map((name) => el("option", {value: name, class: "offered"}, label(name))));
  if ([...field.options].some((option) => option.value === chosen)) field.value = chosen;
};

// A path of this page: every part is one segment.
export const path = (...parts) => `${page.base}/${parts.map(encodeURIComponent).join("/")}`;

export const topicPath = (topic, channel) => (channel ? path("topics", topic, channel) : path("topics", topic));
