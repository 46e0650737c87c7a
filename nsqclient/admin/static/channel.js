// The page of one channel.
import {rowActions} from "./actions.js";
import {byId, mayAct, page, path, showCards} from "./dom.js";
import {compact, count, duration, rate} from "./format.js";
import {chart} from "./spark.js";
import {show} from "./subject.js";
import {DataTable, agents, attributes, clients, column, connected, homes, links, numbers, paused} from "./table.js";

const {topic, channel} = page;

const consumers = new DataTable("clients", {
  caption: "Consumers of the channel", key: (row) => `${row.node} ${row.remote_address}`, sort: "client",
  empty: ["No clients", "This channel has no consumers: its messages wait, and its depth grows."],
  columns: [
    clients, agents, homes, attributes, numbers("in_flight_count", "In flight", count), numbers("ready_count", "Ready", count),
    numbers("finish_count", "Finished"), numbers("requeue_count", "Requeued"), connected,
  ],
});

const nodes = new DataTable("nodes", {
  caption: "The channel on each nsqd", key: (row) => row.node, sort: "node", empty: ["On no nsqd"],
  columns: [
    links("node", "nsqd", "wide", (row) => path("nodes", row.node), paused), numbers("depth", "Depth"),
    numbers("backend_depth", "On disk", compact, {kind: "num minor"}), numbers("in_flight_count", "In flight"),
    numbers("deferred_count", "Deferred", compact, {kind: "num minor"}), numbers("message_count", "Messages"),
    numbers("client_count", "Clients", count),
    ...(mayAct ? [column("actions", "Actions", "act", (row) => rowActions(row.paused, `on ${row.node}`, {topic, channel, node: row.node}))] : []),
  ],
});

show((values) => {
  showCards([
    ["depth", "Depth", "Messages that wait, in memory and on disk", compact(values.depth)],
    ["in-flight", "In flight", "Messages at consumers, not answered yet", compact(values.in_flight_count)],
    ["deferred", "Deferred", "Messages for later: requeued with a delay, or published so", compact(values.deferred_count)],
    ["rate", "In / s", "Messages that come, over all nsqds", rate(values.rate)],
    ["out-rate", "Out / s", "Messages that are finished, over all nsqds", rate(values.out_rate)],
    ["empty-in", "Empty in", "If the depth goes on falling as it does; a dash: it does not fall", duration(values.empty_in)],
    ["requeued", "Requeued", "By consumers, since the nsqds were started", compact(values.requeue_count)],
    ["timed-out", "Timed out", "Not answered in time, since the nsqds were started", compact(values.timeout_count)],
    ["client-count", "Clients", "Consumers that are connected", count(values.client_count)],
  ]);
  byId("depth").classList.toggle("alone", values.depth > 0 && !values.client_count);
  chart(byId("chart"), values.times, {"": values.depths}, "Depth, last minutes", compact);
  consumers.show(values.clients);
  nodes.show(values.nodes);
}, path("topics", topic));
