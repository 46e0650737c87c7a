// The page of all topics.
import {setUpBulk} from "./bulk.js";
import {badge, el, path, showCards} from "./dom.js";
import {compact, count, duration, rate, sum} from "./format.js";
import {live} from "./live.js";
import {spark} from "./spark.js";
import {DataTable, column, depths, links, numbers} from "./table.js";

const badges = (row) => {
  if (!row.nodes) return [badge("inactive", "", "Registered at nsqlookupd; no nsqd has it yet")];
  return row.paused ? [badge(row.paused === 2 ? "paused" : "channel paused", "warn")] : [];
};

const bulk = setUpBulk("topic", (row) => row.name, (names) => ({topics: names}));

const topics = new DataTable("topics", {
  caption: "Topics with their depth, rate and clients", key: (row) => row.name, sort: "name",
  search: (row) => row.name, noun: "topic",
  empty: ["No topics yet", "A topic is made by its first message, or on the page ", el("a", {href: path("lookup")}, "Lookup"), ". From a shell: ",
    el("code", {}, "echo hello | nsqclient to_nsq --topic=events --nsqd-tcp-address=127.0.0.1:4150")],
  columns: [
    links("name", "Topic", "wide", (row) => path("topics", row.name), badges), depths("depth", "Depth", (row) => row.unserved),
    numbers("in_flight", "In flight", compact, {kind: "num minor"}), numbers("deferred", "Deferred", compact, {kind: "num minor"}),
    numbers("rate", "In / s", rate), numbers("out_rate", "Out / s", rate), numbers("empty_in", "Empty in", duration, {kind: "num minor"}),
    column("trend", "Last minutes", "trend", (row) => spark(row.trend, `Messages per second of ${row.name}`, rate), {value: (row) => row.rate}),
    numbers("channels", "Channels", count, {kind: "num minor"}), numbers("clients", "Clients", count), ...bulk.columns,
  ],
});

live("/api/live/topics", (values) => {
  const rows = values.rows.map((row) => Object.fromEntries(values.fields.map((field, i) => [field, row[i]])));
  const isMeasured = rows.some((row) => row.rate !== null);
  showCards([
    ["sum-depth", "Depth", "Messages that wait, in topics and channels", compact(sum(rows, "depth"))],
    ["sum-in-flight", "In flight", "Messages at consumers, not answered yet", compact(sum(rows, "in_flight"))],
    ["sum-rate", "In / s", "Messages that are published, over all topics", rate(isMeasured ? sum(rows, "rate") : null)],
    ["sum-out", "Out / s", "Messages that are finished, over all channels", rate(isMeasured ? sum(rows, "out_rate") : null)],
    ["sum-messages", "Messages", "Published since the nsqds were started", compact(sum(rows, "messages"))],
    ["sum-nodes", "nsqds", "Those that answer, of those that are known",
      values.answered_count === values.node_count ? count(values.node_count) : `${values.answered_count} of ${values.node_count}`],
  ]);
  topics.show(rows);
  bulk.follow(topics);
});
