// A sortable table that creates only the visible rows, so that thousands of rows stay fast.
import {byId, el, page, setText} from "./dom.js";
import {compact, count, plural} from "./format.js";

const ALL = 120;    // up to so many rows all are created
const AROUND = 12;  // rows above and below the window that are created too

const compare = (a, b) => (typeof a === "string" || typeof b === "string"
  ? String(a ?? "").localeCompare(String(b ?? ""), "en", {numeric: true}) : (a ?? -1) - (b ?? -1));

export class DataTable {
  // columns: key -> {draw(td, row), value(row), minor}. key(row) names a row. empty: elements to show.
  constructor(id, {columns, key, empty}) {
    this.table = byId(id);
    this.body = this.table.tBodies[0];
    this.note = byId(`${id}-empty`);
    this.columns = columns;
    this.key = key;
    this.empty = empty;
    this.rows = [];
    this.made = new Map();
    this.heads = [...this.table.tHead.rows[0].cells];
    this.above = this.spacer();
    this.below = this.spacer();
    // The order that was chosen is kept for the next visit.
    this.store = `nsq-sort-${page.page}-${id}`;
    this.setSort(this.stored() || this.table.dataset.sort);
    for (const head of this.heads) {
      const button = head.querySelector("button");
      if (button) button.addEventListener("click", () => this.sortBy(head.dataset.key));
    }
    const redraw = () => { if (this.rows.length > ALL) requestAnimationFrame(() => this.drawWindow()); };
    addEventListener("scroll", redraw, {passive: true});
    addEventListener("resize", redraw, {passive: true});
  }

  spacer() {
    const cell = el("td", {colspan: String(this.heads.length)});
    return {row: el("tr", {class: "spacer", "aria-hidden": "true"}, cell), cell};
  }

  stored() {
    let text = "";
    try { text = localStorage.getItem(this.store) || ""; } catch { /* no storage */ }
    return this.heads.some((head) => head.dataset.key === text.replace(/^-/, "") && head.querySelector("button")) ? text : "";
  }

  chooseSort(text) {
    this.setSort(text);
    try { localStorage.setItem(this.store, text); } catch { /* until the next page */ }
  }

  setSort(text) {
    this.down = text.startsWith("-");
    this.sortKey = text.replace(/^-/, "");
    for (const head of this.heads) {
      if (head.dataset.key === this.sortKey) head.setAttribute("aria-sort", this.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
  }

  sortBy(key) {
    // Names from A, numbers from the largest.
    const first = this.heads.find((head) => head.dataset.key === key).classList.contains("num") ? "-" : "";
    const same = this.sortKey === key;
    this.chooseSort((same ? (this.down ? "" : "-") : first) + key);
    this.set(this.rows, true);
    this.onsort?.();
  }

  value(row, key) {
    const column = this.columns[key];
    return column.value ? column.value(row) : row[key];
  }

  // Rows keep their order while the pointer is over the table.
  isInUse() {
    return this.body.matches(":hover") || this.body.contains(document.activeElement);
  }

  set(rows, sortNow = false) {
    const known = new Map(this.rows.map((row, i) => [this.key(row), i]));
    const by = (a, b) => (this.down ? -1 : 1) * compare(this.value(a, this.sortKey), this.value(b, this.sortKey))
      || compare(this.key(a), this.key(b));
    if (sortNow || !this.isInUse()) this.rows = [...rows].sort(by);
    else {
      const place = (row) => known.get(this.key(row)) ?? Infinity;
      this.rows = [...rows].sort((a, b) => { const d = place(a) - place(b); return Number.isNaN(d) || d === 0 ? by(a, b) : d; });
    }
    this.note.hidden = rows.length > 0;
    this.table.hidden = rows.length === 0;
    if (!rows.length) this.note.replaceChildren(...this.empty());
    this.table.setAttribute("aria-rowcount", String(rows.length + 1));
    this.drawWindow();
  }

  drawWindow() {
    let first = 0;
    let last = this.rows.length;
    const windowed = last > ALL;
    this.table.classList.toggle("windowed", windowed);
    const height = windowed ? parseFloat(getComputedStyle(this.table).getPropertyValue("--row")) : 0;
    if (windowed) {
      const top = -this.body.getBoundingClientRect().top;
      first = Math.min(Math.max(0, Math.floor(top / height) - AROUND), last - 1);
      last = Math.min(last, Math.ceil((top + innerHeight) / height) + AROUND);
      last = Math.max(last, first + 1);
    }
    const focused = document.activeElement;
    const kept = new Map();
    const wanted = [];
    for (let i = first; i < last; i += 1) {
      const row = this.rows[i];
      const key = this.key(row);
      const made = this.made.get(key) || this.make();
      this.fill(made, row, i);
      kept.set(key, made);
      wanted.push(made.element);
    }
    this.above.cell.style.height = `${first * height}px`;
    this.below.cell.style.height = `${(this.rows.length - last) * height}px`;
    this.made = kept;
    this.place(windowed ? [this.above.row, ...wanted, this.below.row] : wanted);
    if (focused !== document.activeElement && this.body.contains(focused)) focused.focus({preventScroll: true});
  }

  // Moves only rows that are not in their place.
  place(elements) {
    const keep = new Set(elements);
    for (const child of [...this.body.children]) if (!keep.has(child)) child.remove();
    let next = this.body.firstElementChild;
    for (const element of elements) {
      if (element === next) next = next.nextElementSibling;
      else this.body.insertBefore(element, next);
    }
  }

  make() {
    const element = el("tr", {role: "row"});
    const cells = this.heads.map((head) => {
      const column = this.columns[head.dataset.key];
      const label = head.textContent.trim();
      const cell = el("td", {role: "cell", class: head.className + (column.minor ? " minor" : ""), "data-label": label});
      if (/wide|act/.test(head.className)) cell.removeAttribute("data-label");
      element.append(cell);
      return [cell, column, head.dataset.key];
    });
    return {element, cells};
  }

  fill(made, row, index) {
    if (made.index !== index) {
      made.index = index;
      made.element.setAttribute("aria-rowindex", String(index + 2));
    }
    if (made.row === row) return;
    made.row = row;
    for (const [cell, column, key] of made.cells) column.draw(cell, row, key);
  }
}

// Ways to draw a cell.
export const asText = (format = String) => (cell, row, key) => {
  const text = format(row[key], row);
  setText(cell, text);
  cell.title = text.length > 18 ? text : "";
};

export const asNumber = (format) => (cell, row, key) => {
  setText(cell, format(row[key]));
  const whole = row[key] >= 1e6 ? count(row[key]) : "";
  if (cell.title !== whole) cell.title = whole;
  cell.classList.toggle("zero", !row[key]);
};

// A depth; unserved(row): how many of these messages wait where no consumer is.
export const asDepth = (unserved) => (cell, row, key) => {
  asNumber(compact)(cell, row, key);
  const alone = unserved(row);
  cell.classList.toggle("alone", alone > 0);
  if (alone > 0) cell.title = `${plural(alone, "message")} without a consumer`;
};

// A link with labels behind it; created once, since the name of a row does not change.
export const asLink = (href, text, badges = () => []) => (cell, row) => {
  let link = cell.firstElementChild;
  if (!link) {
    // A long name breaks behind its dots and dashes.
    link = el("a", {href: href(row), class: text(row).length > 30 ? "long" : null}, ...text(row).split(/(?<=[._/-])/).flatMap((part) => [part, el("wbr")]));
    cell.append(link);
  }
  cell.title = text(row);
  const wanted = badges(row);
  const shown = wanted.map(([label]) => label).join();
  if (cell.dataset.badges !== shown) {
    cell.dataset.badges = shown;
    cell.replaceChildren(link, ...wanted.flatMap(([label, kind, why]) => [" ", el("span", {class: `badge ${kind}`, title: why}, label)]));
  }
};

export const emptyNote = (title, ...text) => () => [el("strong", {}, title), el("p", {}, ...text)];
