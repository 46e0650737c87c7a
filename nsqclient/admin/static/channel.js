// The page of one channel.
import {act, rowActions} from "./actions.js";
import {attributes, client, connected, node} from "./clients.js";
import {byId, mayAct, page, path, show, setKnown, setText, topicPath} from "./dom.js";
import {compact, count, rate, timeLeft} from "./format.js";
import {drawLatency} from "./latency.js";
import {live} from "./live.js";
import {setUpPeek} from "./peek.js";
import {setUpReplay} from "./replay.js";
import {chart} from "./spark.js";
import {DataTable, asLink, asNumber, asText, emptyNote} from "./table.js";

const {topic, channel} = page;

const clients = new DataTable("clients", {
  key: (row) => `${row.node} ${row.remote_address}`,
  empty: emptyNote("No clients", "This channel has no consumers: its messages wait, and its depth grows."),
  columns: {
    client: {draw: client, value: (row) => `${row.hostname} ${row.client_id}`},
    user_agent: {draw: asText()},
    node: {draw: node, minor: true},
    attributes: {draw: attributes},
    in_flight_count: {draw: asNumber(count)},
    ready_count: {draw: asNumber(count)},
    finish_count: {draw: asNumber(compact)},
    requeue_count: {draw: asNumber(compact)},
    connected: {draw: connected, value: (row) => -row.connect_ts, minor: true},
  },
});

const nodes = new DataTable("nodes", {
  key: (row) => row.node,
  empty: emptyNote("On no nsqd", "No nsqd that answers has this channel."),
  columns: {
    node: {draw: asLink((row) => path("nodes", row.node), (row) => row.node,
      (row) => (row.paused ? [["paused", "warn", "Delivers nothing until it is unpaused"]] : []))},
    depth: {draw: asNumber(compact)},
    backend_depth: {draw: asNumber(compact), minor: true},
    in_flight_count: {draw: asNumber(compact)},
    deferred_count: {draw: asNumber(compact), minor: true},
    message_count: {draw: asNumber(compact)},
    client_count: {draw: asNumber(count)},
    actions: {draw: rowActions((row) => ({topic, channel, node: row.node}))},
  },
});

live(() => `/api/live${path("topics", topic, channel).slice(page.base.length)}`, (values) => {
  show("depth", compact(values.depth));
  byId("depth").classList.toggle("alone", values.depth > 0 && !values.client_count);
  show("empty-in", timeLeft(values.empty_in));
  show("out-rate", rate(values.out_rate));
  show("in-flight", compact(values.in_flight_count));
  show("deferred", compact(values.deferred_count));
  show("rate", rate(values.rate));
  show("requeued", compact(values.requeue_count));
  show("timed-out", compact(values.timeout_count));
  show("client-count", count(values.client_count));
  setKnown(true);
  byId("paused").hidden = !values.paused;
  drawLatency(values.e2e_processing_latency);
  chart(byId("chart"), values.times, {"": values.depths}, "Depth, last minutes", compact);
  clients.set(values.clients);
  nodes.set(values.nodes);
  if (!mayAct) return;
  const button = byId("pause");
  button.dataset.action = values.paused ? "unpause" : "pause";
  setText(button, values.paused ? "Unpause" : "Pause");
}, () => {
  setKnown(false);
  clients.empty = emptyNote("No such channel", "No nsqd that answers has it. A channel is made by its first consumer, or on the page of its topic.");
  clients.set([]);
  nodes.set([]);
});

for (const button of document.querySelectorAll(".actions [data-action]")) {
  button.addEventListener("click", async () => {
    const {action} = button.dataset;
    if (await act(action, {topic, channel}) && action === "delete") location.assign(topicPath(topic));
  });
}

setUpPeek();
setUpReplay();
