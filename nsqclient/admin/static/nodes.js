// The page of all nsqds.
import {perform} from "./actions.js";
import {byId, el, mayAct, path, serverState, show, setText} from "./dom.js";
import {count, since} from "./format.js";
import {live} from "./live.js";
import {DataTable, asLink, asNumber, asText, emptyNote} from "./table.js";

let lookupds = [];

const knownTo = (cell, row) => {
  const key = lookupds.map((each) => `${each} ${row.lookupds.includes(each)}`).join();
  if (cell.dataset.key === key) return;
  cell.dataset.key = key;
  const missing = lookupds.filter((each) => !row.lookupds.includes(each));
  cell.title = missing.length ? `Not known to ${missing.join(", ")}` : row.lookupds.join(", ");
  cell.replaceChildren(missing.length
    ? el("span", {class: "badge warn"}, `${row.lookupds.length} of ${lookupds.length}`)
    : lookupds.length === 1 ? "registered" : `all ${lookupds.length}`);
};

const drawState = serverState(since);
const state = (cell, row) => {
  drawState(cell, row);
  if (row.cause !== "gone" || !mayAct || cell.querySelector("button")) return;
  cell.append(" ", el("button", {
    type: "button", class: "quiet", "aria-label": `Forget ${row.address}`,
    onclick: () => perform(`Forgot ${row.address}`, "POST", "/api/live/forget", {node: row.address}),
  }, "Forget"));
};

const nodes = new DataTable("nodes", {
  key: (row) => row.address,
  empty: emptyNote("No nsqd", "None is registered. Start one with ", el("code", {}, "nsqclient nsqd --lookupd-tcp-address=…"), ", or see the problems that this page reports."),
  columns: {
    address: {draw: asLink((row) => path("nodes", row.address), (row) => row.address, (row) =>
      [...(row.reached_at && row.reached_at !== row.address ? [[`asked at ${row.reached_at}`, "", "Rewritten, or given on the command line"]] : []),
        ...(row.announced ? [[`announces ${row.announced}`, "", "The address that it reports itself, unchecked"]] : [])])},
    hostname: {draw: asText()},
    state: {draw: state, value: (row) => (row.is_up ? "1" : "0")},
    tcp_port: {draw: asNumber(String), minor: true},
    version: {draw: (cell, row) => {
      setText(cell, row.version);
      if (row.out_of_date) cell.append(" ", el("span", {class: "badge warn", title: "Another nsqd is newer"}, "older"));
    }},
    topics: {draw: asNumber(count)},
    lookupds: {draw: knownTo},
  },
});

live(() => "/api/live/nodes", (values) => {
  lookupds = values.lookupds;
  const silent = values.silent.map((each) => ({address: each.address, hostname: "", is_up: false, is_waiting: each.is_waiting, reason: each.reason, cause: each.cause, since: each.since, version: "", topics: null, tcp_port: null, lookupds: []}));
  const all = [...values.list, ...silent];
  const up = all.filter((each) => each.is_up).length;
  show("up", `${count(up)} of ${count(all.length)}`);
  show("versions", [...new Set(all.map((each) => each.version).filter(Boolean))].sort().join(", ") || "–");
  show("lookupds", count(lookupds.length));
  nodes.set(all.map((row) => ({...row, tcp_port: row.tcp_port || "–"})));
  const failing = all.find((each) => !each.is_up && each.cause === "unreachable");
  byId("unreached").hidden = !failing;
  if (failing) show("rewrite-example", `nsqclient nsqadmin --rewrite-address=${failing.address}=127.0.0.1:14151 …`);
});
