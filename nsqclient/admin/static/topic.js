// The page of one topic.
import {perform, rowActions} from "./actions.js";
import {setUpBulk} from "./bulk.js";
import {byId, mayAct, offer, page, path, showCards} from "./dom.js";
import {compact, count, duration, rate, sum} from "./format.js";
import {offerChannels} from "./messages.js";
import {chart, spark} from "./spark.js";
import {show} from "./subject.js";
import {DataTable, column, depths, links, numbers, paused, tombstoned} from "./table.js";

const {topic} = page;
const bulk = setUpBulk("channel", (row) => row.channel_name, (names) => ({topic, channels: names}));

const channels = new DataTable("channels", {
  caption: "Channels of the topic, summed over nsqds", key: (row) => row.channel_name, sort: "channel_name",
  empty: ["No channels", "Messages wait in the topic until a channel is created: by the first consumer, or here."],
  columns: [
    links("channel_name", "Channel", "wide many", (row) => path("topics", topic, row.channel_name), paused),
    depths("depth", "Depth", (row) => (row.client_count ? 0 : row.depth)),
    numbers("in_flight_count", "In flight", compact, {kind: "num minor"}), numbers("deferred_count", "Deferred", compact, {kind: "num minor"}),
    numbers("requeue_count", "Requeued", compact, {kind: "num minor"}), numbers("timeout_count", "Timeouts", compact, {kind: "num minor"}),
    numbers("rate", "In / s", rate), numbers("out_rate", "Out / s", rate), numbers("empty_in", "Empty in", duration, {kind: "num minor"}),
    column("trend", "Depth lately", "trend", (row) => spark(row.depths, `Depth of ${row.channel_name}`, compact), {value: (row) => row.depth}),
    numbers("client_count", "Clients", count), ...bulk.columns,
  ],
});

const nodes = new DataTable("nodes", {
  caption: "The topic on each nsqd", key: (row) => row.node, sort: "node",
  empty: ["On no nsqd yet", "The topic is registered at nsqlookupd; an nsqd makes it with its first message."],
  columns: [
    links("node", "nsqd", "wide", (row) => path("nodes", row.node), (row) => [...paused(row), ...tombstoned(row)]),
    numbers("depth", "Depth"), numbers("backend_depth", "On disk", compact, {kind: "num minor"}), numbers("message_count", "Messages"),
    numbers("channel_count", "Channels", count),
    ...(mayAct ? [column("actions", "Actions", "act", (row) => rowActions(row.paused, `on ${row.node}`, {topic, node: row.node}))] : []),
  ],
});

show((values) => {
  showCards([
    ["depth", "Waiting in the topic", "For a channel: none is there yet, or the topic is paused", compact(values.depth)],
    ["channel-depth", "Waiting in channels", "For consumers, over all channels", compact(sum(values.channels, "depth"))],
    ["rate", "In / s", "Messages that are published, over all nsqds", rate(values.rate)],
    ["out-rate", "Out / s", "Messages that are finished, over all channels", rate(values.out_rate)],
    ["messages", "Messages", "Published since the nsqds were started", compact(values.message_count)],
    ["node-count", "nsqds", "That have the topic", count(values.nodes.length)],
  ]);
  chart(byId("chart"), values.times, {in: values.rates, out: values.out_rates}, "Messages per second, last minutes", rate);
  channels.show(values.channels);
  nodes.show(values.nodes.map((node) => ({...node, channel_count: node.channels.length})));
  bulk.follow(channels);
  if (!mayAct) return;
  offer(byId("publish-node"), values.nodes.map((node) => node.node));
  offerChannels(values.channels.map((each) => each.channel_name));
}, path());

byId("create-channel")?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const field = byId("channel-name");
  const channel = field.value.trim();
  if (await perform(`Created channel ${channel}`, "POST", "/api/topics", {topic, channel})) field.value = "";
});

byId("publish")?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const defer = byId("publish-defer").value;
  await perform("Published", "POST", "/api/live/publish", {
    topic, body: byId("publish-body").value, encoding: byId("publish-encoding").value,
    node: byId("publish-node").value, ...(defer ? {defer: Number(defer)} : {}),
  });
});
