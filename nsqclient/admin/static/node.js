// The page of one nsqd.
import {confirmTyped, perform, rowActions} from "./actions.js";
import {api, hasLookupds, mayAct, page, path, showCards} from "./dom.js";
import {compact, count, sum} from "./format.js";
import {live} from "./live.js";
import {DataTable, column, links, numbers, paused, tombstoned} from "./table.js";

const {node} = page;

const tombstone = async (topic) => {
  const isSure = await confirmTyped({
    title: `Take ${topic} from ${node}?`, name: topic, button: "Tombstone and delete",
    text: "Lookups hide this nsqd for a while, and the topic is deleted on it with its messages. Move its producers first.",
  });
  if (isSure) await perform(`Took ${topic} from ${node}`, "DELETE", api("nodes", node), {topic});
};

const actions = ({topic_name: topic, paused: isPaused}) => rowActions(isPaused, topic, {topic, node},
  hasLookupds ? ["Tombstone…", () => tombstone(topic)] : undefined);

const topics = new DataTable("topics", {
  caption: "Topics on this nsqd", key: (row) => row.topic_name, sort: "topic_name",
  empty: ["No topics on this nsqd", "It makes one with the first message that is published to it."],
  columns: [
    links("topic_name", "Topic", "wide", (row) => path("topics", row.topic_name), (row) => [...paused(row), ...tombstoned(row)]),
    numbers("depth", "Depth"), numbers("in_flight", "In flight"), numbers("message_count", "Messages"), numbers("channel_count", "Channels", count),
    numbers("client_count", "Clients", count), ...(mayAct ? [column("actions", "Actions", "act", actions)] : []),
  ],
});

live(api("live", "nodes", node), (values) => {
  const rows = values.topics.map((topic) => ({
    ...topic, depth: topic.depth + sum(topic.channels, "depth"), in_flight: sum(topic.channels, "in_flight_count"),
    channel_count: topic.channels.length, client_count: sum(topic.channels, "client_count"),
  }));
  showCards([
    ["version", "Version", "Of nsqd", values.version || "–"],
    ["topic-count", "Topics", "On this nsqd", count(rows.length)],
    ["depth", "Depth", "Messages that wait, in topics and channels", compact(sum(rows, "depth"))],
    ["messages", "Messages", "Published since nsqd was started", compact(values.total_messages)],
    ["client-count", "Clients", "Consumers that are connected", count(values.total_clients)],
  ]);
  topics.show(rows);
});
