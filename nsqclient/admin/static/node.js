// The page of one nsqd.
import {act, confirmTyped, perform} from "./actions.js";
import {el, hasLookupds, page, path, show, topicPath} from "./dom.js";
import {compact, count} from "./format.js";
import {live} from "./live.js";
import {DataTable, asLink, asNumber, emptyNote} from "./table.js";

const {node} = page;

const tombstone = async (topic) => {
  const sure = await confirmTyped({
    title: `Take ${topic} from ${node}?`, name: topic, button: "Tombstone and delete",
    text: "Lookups hide this nsqd for a while, and the topic is deleted on it with its messages. Move its producers first.",
  });
  if (sure) await perform(`Took ${topic} from ${node}`, "DELETE", `/api${path("nodes", node).slice(page.base.length)}`, {topic});
};

const actions = (cell, row) => {
  const topic = row.topic_name;
  const key = String(row.paused);
  if (cell.dataset.key === key) return;
  cell.dataset.key = key;
  const button = (label, kind, onclick) => el("button", {type: "button", class: kind, "aria-label": `${label} ${topic}`, onclick}, label);
  cell.replaceChildren(
    row.paused ? button("Unpause", "", () => act("unpause", {topic, node})) : button("Pause", "", () => act("pause", {topic, node})),
    button("Empty…", "danger-quiet", () => act("empty", {topic, node})),
    hasLookupds ? button("Tombstone…", "danger-quiet", () => tombstone(topic))
      : button("Delete…", "danger-quiet", () => act("delete", {topic, node})),
  );
};

const topics = new DataTable("topics", {
  key: (row) => row.topic_name,
  empty: emptyNote("No topics on this nsqd", "It makes one with the first message that is published to it."),
  columns: {
    topic_name: {draw: asLink((row) => topicPath(row.topic_name), (row) => row.topic_name, (row) => [
      ...(row.paused ? [["paused", "warn", "Delivers nothing until it is unpaused"]] : []),
      ...(row.tombstoned ? [["tombstoned", "", "Hidden from lookups for a while"]] : [])])},
    depth: {draw: asNumber(compact)},
    in_flight: {draw: asNumber(compact)},
    message_count: {draw: asNumber(compact)},
    channel_count: {draw: asNumber(count)},
    client_count: {draw: asNumber(count)},
    actions: {draw: actions},
  },
});

const sum = (rows, key) => rows.reduce((total, row) => total + row[key], 0);

live(() => `/api/live${path("nodes", node).slice(page.base.length)}`, (values) => {
  const rows = values.topics.map((topic) => ({
    ...topic, depth: topic.depth + sum(topic.channels, "depth"), in_flight: sum(topic.channels, "in_flight_count"),
    channel_count: topic.channels.length, client_count: sum(topic.channels, "client_count"),
  }));
  show("version", values.about.version || "–");
  show("topic-count", count(rows.length));
  show("depth", compact(sum(rows, "depth")));
  show("messages", compact(values.total_messages));
  show("client-count", count(values.total_clients));
  topics.set(rows);
}, () => {
  topics.empty = emptyNote("No such nsqd", "No nsqd has this address now.");
  topics.set([]);
});
