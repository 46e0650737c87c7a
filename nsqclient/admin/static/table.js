// A table that can be sorted and searched.
import {badge, byId, el, fill, path, setText, store, stored, page} from "./dom.js";
import {compact, count, duration, plural} from "./format.js";
import {sinceWhen} from "./live.js";

const STEP = 500;  // rows that are shown at first, and more with each press of the button

const compare = (a, b) => (typeof a === "string" || typeof b === "string"
  ? String(a ?? "").localeCompare(String(b ?? ""), "en", {numeric: true}) : (a ?? -1) - (b ?? -1));

// Columns. draw(row) returns what a cell shows; value(row) is what the table is sorted by.
export const column = (key, label, kind, draw, more = {}) => ({key, label, kind, draw, value: (row) => row[key], ...more});

export const numbers = (key, label, format = compact, more = {}) => column(key, label, "num", (row) => format(row[key]), {
  title: (row) => (row[key] >= 1e6 ? count(row[key]) : null), mark: (row) => (row[key] ? "" : "zero"), ...more});

// A depth; unserved(row): how many of these messages no consumer takes.
export const depths = (key, label, unserved) => numbers(key, label, compact, {
  title: (row) => (unserved(row) ? `${plural(unserved(row), "message")} without a consumer` : null),
  mark: (row) => (unserved(row) ? "alone" : row[key] ? "" : "zero")});

export const texts = (key, label, more = {}) => column(key, label, "text", (row) => row[key] ?? "", {title: (row) => row[key], ...more});

// A link with badges behind it. A long name breaks behind its dots and dashes.
export const links = (key, label, kind, href, badges = () => [], text = (row) => row[key]) => column(key, label, kind, (row) => [
  el("a", {href: href(row)}, ...text(row).split(/(?<=[._/-])/).flatMap((part) => [part, el("wbr")])),
  ...badges(row).flatMap((each) => [" ", each]),
], {value: text, title: text});

export const paused = (row) => (row.paused ? [badge("paused", "warn", "Delivers nothing until it is unpaused")] : []);
export const tombstoned = (row) => (row.tombstoned ? [badge("tombstoned", "", "Hidden from lookups for a while")] : []);

// The state of a server: it answers, or it fails, since when and why. more(row): what follows.
export const states = (more = () => []) => column("state", "State", "text state", (row) => (row.state
  ? [badge(row.state, row.is_up || row.state === "waiting" ? "warn" : "bad"), `${sinceWhen(row).slice(row.state.length)}: ${row.reason}`, ...more(row)]
  : [badge("up", "good")]));

// Columns of connections.
export const clients = column("client", "Client", "wide client", (row) => {
  const host = row.hostname || row.remote_address;
  return [`${host} `, el("small", {}, row.client_id && row.client_id !== host ? row.client_id : row.remote_address)];
}, {value: (row) => `${row.hostname} ${row.client_id}`, title: (row) => `${row.hostname}, ${row.client_id}, ${row.remote_address}`});
export const agents = texts("user_agent", "User agent", {kind: "text agent"});
export const homes = links("node", "nsqd", "text at minor", (row) => path("nodes", row.node));
export const connected = column("connect_ts", "Connected", "num minor", (row) => duration(Math.max(0, Date.now() / 1000 - row.connect_ts)),
  {value: (row) => -row.connect_ts});
export const attributes = column("attributes", "Connection", "text", (row) => {
  const found = [
    row.tls && badge(row.tls_version || "TLS", "good", row.tls_cipher_suite || "encrypted"),
    row.deflate && badge("deflate"), row.snappy && badge("snappy"), row.sample_rate && badge(`sampled ${row.sample_rate} %`),
    row.authed && badge(row.auth_identity || "authed", "good", "authenticated"),
  ].filter(Boolean);
  return found.length ? found : [el("small", {}, "plain")];
});

export class DataTable {
  // key(row) names a row. empty: [title, ...text] of a table without rows. search(row): text that the field #search finds.
  constructor(id, {caption, columns, key, sort, empty, search = null, noun = "row"}) {
    Object.assign(this, {columns, key, empty, search, noun, all: [], rows: [], limit: STEP, store: `nsq-sort-${page.page}-${id}`});
    this.heads = columns.map((each) => el("th", {scope: "col", role: "columnheader", class: each.kind, "data-key": each.key},
      el("button", {type: "button", onclick: () => this.sortBy(each)}, each.label, el("span", {class: "arrow", "aria-hidden": "true"}))));
    this.body = el("tbody", {role: "rowgroup"});
    this.table = el("table", {class: "data", role: "table"}, el("caption", {class: "unseen"}, caption),
      el("thead", {role: "rowgroup"}, el("tr", {role: "row"}, ...this.heads)), this.body);
    this.more = el("button", {type: "button", onclick: () => { this.limit += STEP; this.draw(); }});
    this.note = el("div", {class: "empty", id: `${id}-empty`});
    byId(id).append(this.table, this.more, this.note);
    const former = stored(this.store);
    this.setSort(columns.some((each) => each.key === former.replace(/^-/, "")) ? former : sort);
    if (search) this.setUpSearch();
  }

  // The order that was chosen is kept for the next visit.
  sortBy({key, kind}) {
    const largestFirst = kind.includes("num");
    const isSame = this.sort.replace(/^-/, "") === key;
    this.setSort((isSame ? !this.sort.startsWith("-") : largestFirst) ? `-${key}` : key);
    store(this.store, this.sort);
    this.draw(true);
  }

  setSort(text) {
    this.sort = text;
    for (const head of this.heads) {
      const order = {[head.dataset.key]: "ascending", [`-${head.dataset.key}`]: "descending"}[text];
      if (order) head.setAttribute("aria-sort", order);
      else head.removeAttribute("aria-sort");
    }
  }

  // "/" focuses the field, Escape empties it, the address of the page keeps its text.
  setUpSearch() {
    const field = byId("search");
    const url = new URL(location.href);
    const changed = () => {
      url.searchParams.set("search", field.value);
      if (!field.value) url.searchParams.delete("search");
      history.replaceState(null, "", url);
      this.draw(true);
    };
    field.value = url.searchParams.get("search") || "";
    field.addEventListener("input", changed);
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && !event.target.closest?.("input, textarea, select, dialog")) {
        event.preventDefault();
        field.focus();
      } else if (event.key === "Escape" && event.target === field) {
        field.value = "";
        changed();
      }
    });
  }

  show(rows) {
    this.all = rows;
    this.draw();
  }

  // Rows keep their order while the pointer or the focus is in the table.
  draw(sortNow = false) {
    const words = this.search ? byId("search").value.toLowerCase().split(/\s+/).filter(Boolean) : [];
    const found = this.all.filter((row) => words.every((word) => this.search(row).toLowerCase().includes(word)));
    const isInUse = this.body.matches(":hover") || this.body.contains(document.activeElement);
    const places = new Map(isInUse && !sortNow ? this.rows.map((row, i) => [this.key(row), i]) : []);
    const place = (row) => places.get(this.key(row)) ?? Infinity;
    const {value} = this.columns.find((each) => each.key === this.sort.replace(/^-/, ""));
    const sign = this.sort.startsWith("-") ? -1 : 1;
    this.rows = found.sort((a, b) => place(a) - place(b) || sign * compare(value(a), value(b)) || compare(this.key(a), this.key(b)));
    fill(this.body, this.rows.slice(0, this.limit).map((row) => this.rowOf(row)));
    this.table.hidden = !found.length;
    this.note.hidden = found.length > 0;
    const [title, ...text] = words.length ? [`No ${this.noun} matches`, "Try fewer words."] : this.empty;
    fill(this.note, found.length ? [] : [el("strong", {}, title), el("p", {}, ...text)]);
    this.more.hidden = found.length <= this.limit;
    setText(this.more, `Show more than ${this.limit} of ${plural(found.length, this.noun)}`);
    if (this.search) setText(byId("shown"), `${words.length ? `${count(found.length)} of ` : ""}${plural(this.all.length, this.noun)}`);
  }

  rowOf(row) {
    return el("tr", {role: "row", "data-key": this.key(row)}, ...this.columns.map(({label, kind, draw, title, mark}) => el("td", {
      role: "cell", class: `${kind} ${mark ? mark(row) : ""}`, title: title?.(row), "data-label": /wide|act/.test(kind) ? null : label,
    }, ...[draw(row)].flat())));
  }
}
