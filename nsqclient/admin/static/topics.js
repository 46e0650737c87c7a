// The page of all topics.
import {setUpBulk} from "./bulk.js";
import {byId, el, path, show, setText, topicPath} from "./dom.js";
import {compact, count, plural, rate, timeLeft} from "./format.js";
import {live} from "./live.js";
import {matches, setUpSearch} from "./search.js";
import {draw} from "./spark.js";
import {DataTable, asDepth, asLink, asNumber} from "./table.js";

const POINTS = 90;
const FIELDS = ["name", "depth", "in_flight", "deferred", "rate", "clients", "channels", "paused", "nodes", "messages", "out_rate", "empty_in", "unserved"];
const topics = new Map();
const courses = new Map();
let serial = 0;

const badges = (row) => {
  if (!row.nodes) return [["inactive", "", "Registered at nsqlookupd; no nsqd has it yet"]];
  if (row.paused === 2) return [["paused", "warn", "The topic is paused"]];
  return row.paused ? [["channel paused", "warn", "A channel is paused"]] : [];
};

const search = setUpSearch(() => drawTable(true));
const nothing = () => search.nothing("topic",
  el("strong", {}, "No topics yet"), el("p", {}, "A topic is made by its first message, or on the page ", el("a", {href: path("lookup")}, "Lookup"), ". From a shell:"),
  el("p", {}, el("code", {}, "echo hello | nsqclient to_nsq --topic=events --nsqd-tcp-address=127.0.0.1:4150")));

const bulk = setUpBulk({
  noun: "topic", nameOf: (row) => row.name, target: (names) => ({topics: names}),
  shown: () => table.rows.map((row) => row.name),
});

const table = new DataTable("topics", {
  key: (row) => row.name,
  empty: nothing,
  columns: {
    name: {draw: asLink((row) => topicPath(row.name), (row) => row.name, badges)},
    depth: {draw: asDepth((row) => row.unserved)},
    in_flight: {draw: asNumber(compact), minor: true},
    deferred: {draw: asNumber(compact), minor: true},
    rate: {draw: asNumber(rate)},
    out_rate: {draw: asNumber(rate)},
    empty_in: {draw: asNumber(timeLeft), minor: true},
    trend: {draw: (cell, row) => draw(cell, courses.get(row.name) || [], `Messages per second of ${row.name}`, rate)},
    channels: {draw: asNumber(count), minor: true},
    clients: {draw: asNumber(count)},
    pick: {draw: bulk.cell},
  },
});

const sortField = byId("sort");
sortField.addEventListener("change", () => { table.chooseSort(sortField.value); drawTable(true); });
table.onsort = () => { sortField.value = (table.down ? "-" : "") + table.sortKey; };
table.onsort();

const drawTable = (sortNow = false) => {
  const words = search.words();
  const all = [...topics.values()];
  const rows = words.length ? all.filter((row) => matches(row.name, words)) : all;
  table.set(rows, sortNow);
  setText(byId("shown"), words.length ? `${count(rows.length)} of ${plural(all.length, "topic")}` : plural(all.length, "topic"));
};

const drawSums = (values) => {
  const sum = {depth: 0, in_flight: 0, rate: 0, out_rate: 0, messages: 0};
  for (const row of topics.values()) for (const key of Object.keys(sum)) sum[key] += row[key] || 0;
  show("sum-depth", compact(sum.depth));
  show("sum-in-flight", compact(sum.in_flight));
  show("sum-rate", values.serial > 1 ? rate(sum.rate) : "–");
  show("sum-out", values.serial > 1 ? rate(sum.out_rate) : "–");
  show("sum-messages", compact(sum.messages));
  show("sum-nodes", values.answered_count === values.node_count ? count(values.node_count) : `${values.answered_count} of ${values.node_count}`);
};

const lengthen = (rounds) => {
  // Every round adds a point to every line, also when the row did not change.
  for (const row of topics.values()) {
    let course = courses.get(row.name);
    if (!course) {
      if (!row.rate) continue;
      course = new Array(Math.min(POINTS, Math.max(1, serial - 1))).fill(0);
    }
    for (let i = 0; i < rounds; i += 1) course.push(row.rate ?? null);
    if (course.length > POINTS) course = course.slice(-POINTS);
    if (course.some(Boolean)) courses.set(row.name, course);
    else courses.delete(row.name);
    topics.set(row.name, {...row});
  }
};

live(() => `/api/live/topics?since=${serial}`, (values) => {
  const rounds = values.serial - serial;
  if (values.full) {
    topics.clear();
    courses.clear();
    for (const [name, course] of Object.entries(values.history)) courses.set(name, course);
  }
  for (const row of values.rows) topics.set(row[0], Object.fromEntries(FIELDS.map((field, i) => [field, row[i]])));
  serial = values.serial;
  if (rounds === 0) return;
  if (!values.full) lengthen(Math.min(rounds, POINTS));
  drawSums(values);
  bulk.keep(topics.keys());
  drawTable();
});
