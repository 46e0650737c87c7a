// Elements, the settings of the page, and values that the browser keeps.
export const page = document.body.dataset;
export const mayAct = page.mayAct === "yes";
export const hasLookupds = page.hasLookupds === "yes";
export const byId = (id) => document.getElementById(id);

// Makes an element. Functions become listeners; attributes that are null are left out.
export const el = (name, attributes = {}, ...children) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
};

export const badge = (text, kind = "", title = null) => el("span", {class: `badge ${kind}`, title}, text);

const replace = (old, element) => {
  const controls = "a, button, input";
  const focused = [...old.querySelectorAll(controls)].indexOf(document.activeElement);
  old.replaceWith(element);
  if (focused >= 0) element.querySelectorAll(controls)[focused]?.focus({preventScroll: true});
};

// Gives an element these children; those that are equal already stay. Rows with one data-key are compared cell by cell.
export const fill = (parent, children) => {
  children.forEach((child, i) => {
    const old = parent.children[i];
    if (!old) parent.append(child);
    else if (child.dataset.key && child.dataset.key === old.dataset.key) fill(old, [...child.children]);
    else if (!old.isEqualNode(child)) replace(old, child);
  });
  while (parent.children.length > children.length) parent.lastElementChild.remove();
};

export const setText = (element, text) => {
  if (element.textContent !== text) element.textContent = text;
};

// Shows numbers: [id, label, explanation, text] each.
export const showCards = (cards) => fill(byId("cards"), cards.map(([id, label, title, text]) =>
  el("div", {class: "card"}, el("dt", {title}, label), el("dd", {id}, text))));

// Offers names in a select, behind its own options; the choice stays.
export const offer = (field, names, label = (name) => name) => {
  const chosen = field.value;
  for (const old of field.querySelectorAll(".offered")) old.remove();
  field.append(...names.map((name) => el("option", {value: name, class: "offered"}, label(name))));
  if ([...field.options].some((option) => option.value === chosen)) field.value = chosen;
};

// Addresses of pages and of their API; every part is one segment.
const join = (start, parts) => `${start}/${parts.filter(Boolean).map(encodeURIComponent).join("/")}`;
export const path = (...parts) => join(page.base, parts);
export const api = (...parts) => join("/api", parts);

export const stored = (name) => {
  try { return localStorage.getItem(name) || ""; } catch { return ""; }
};
export const store = (name, text) => {
  try { localStorage.setItem(name, text); } catch { /* until the next page */ }
};
