// The page of one topic.
import {act, perform, rowActions} from "./actions.js";
import {setUpBulk} from "./bulk.js";
import {byId, mayAct, offer, page, path, show, setKnown, setText, topicPath} from "./dom.js";
import {compact, count, rate, timeLeft} from "./format.js";
import {drawLatency} from "./latency.js";
import {live} from "./live.js";
import {setUpPeek} from "./peek.js";
import {offerChannels, setUpReplay} from "./replay.js";
import {chart, draw} from "./spark.js";
import {DataTable, asDepth, asLink, asNumber, emptyNote} from "./table.js";

const {topic} = page;
const paused = (row) => (row.paused ? [["paused", "warn", "Delivers nothing until it is unpaused"]] : []);

const bulk = setUpBulk({
  noun: "channel", nameOf: (row) => row.channel_name, target: (names) => ({topic, channels: names}),
  shown: () => channels.rows.map((row) => row.channel_name),
});

const channels = new DataTable("channels", {
  key: (row) => row.channel_name,
  empty: emptyNote("No channels", "Messages wait in the topic until a channel is created: by the first consumer, or here."),
  columns: {
    channel_name: {draw: asLink((row) => topicPath(topic, row.channel_name), (row) => row.channel_name, paused)},
    depth: {draw: asDepth((row) => (row.client_count ? 0 : row.depth))},
    in_flight_count: {draw: asNumber(compact), minor: true},
    deferred_count: {draw: asNumber(compact), minor: true},
    requeue_count: {draw: asNumber(compact), minor: true},
    timeout_count: {draw: asNumber(compact), minor: true},
    rate: {draw: asNumber(rate)},
    out_rate: {draw: asNumber(rate)},
    empty_in: {draw: asNumber(timeLeft), minor: true},
    trend: {draw: (cell, row) => draw(cell, row.depths, `Depth of ${row.channel_name}`, compact)},
    client_count: {draw: asNumber(count)},
    pick: {draw: bulk.cell},
  },
});

const nodes = new DataTable("nodes", {
  key: (row) => row.node,
  empty: emptyNote("On no nsqd yet", "The topic is registered at nsqlookupd; an nsqd makes it with its first message."),
  columns: {
    node: {draw: asLink((row) => path("nodes", row.node), (row) => row.node, (row) => [
      ...paused(row), ...(row.tombstoned ? [["tombstoned", "", "Hidden from lookups for a while"]] : [])])},
    depth: {draw: asNumber(compact)},
    backend_depth: {draw: asNumber(compact), minor: true},
    message_count: {draw: asNumber(compact)},
    channel_count: {draw: asNumber(count)},
    actions: {draw: rowActions((row) => ({topic, node: row.node}))},
  },
});

live(() => `/api/live${path("topics", topic).slice(page.base.length)}`, (values) => {
  show("depth", compact(values.depth));
  show("channel-depth", compact(values.channels.reduce((sum, each) => sum + each.depth, 0)));
  show("rate", rate(values.rate));
  show("out-rate", rate(values.out_rate));
  show("messages", compact(values.message_count));
  show("node-count", count(values.nodes.length));
  setKnown(true);
  byId("paused").hidden = !values.paused;
  drawLatency(values.e2e_processing_latency);
  chart(byId("chart"), values.times, {in: values.rates, out: values.out_rates}, "Messages per second, last minutes", rate);
  channels.set(values.channels);
  nodes.set(values.nodes.map((node) => ({...node, channel_count: node.channels.length})));
  if (!mayAct) return;
  const button = byId("pause");
  button.dataset.action = values.paused ? "unpause" : "pause";
  setText(button, values.paused ? "Unpause" : "Pause");
  offer(byId("publish-node"), values.nodes.map((node) => node.node));
  offerChannels(values.channels.map((each) => each.channel_name));
  bulk.keep(values.channels.map((each) => each.channel_name));
}, () => {
  setKnown(false);
  channels.empty = emptyNote("No such topic", "No nsqd that answers has it. It is made by its first message, or on the page Lookup.");
  nodes.empty = emptyNote("On no nsqd", "");
  channels.set([]);
  nodes.set([]);
});

for (const button of document.querySelectorAll(".actions [data-action]")) {
  button.addEventListener("click", async () => {
    const {action} = button.dataset;
    if (await act(action, {topic}) && action === "delete") location.assign(path());
  });
}

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

setUpPeek();
setUpReplay();
