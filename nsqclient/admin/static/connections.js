// The pages of the connections of producers and of consumers.
import {page, path, showCards} from "./dom.js";
import {compact, count, sum} from "./format.js";
import {live} from "./live.js";
import {DataTable, agents, attributes, clients, connected, homes, links, numbers, texts} from "./table.js";

const isProducers = page.page === "producers";
const subscription = (row) => `${row.topic} / ${row.channel}`;
const search = (row) => Object.values(row).filter((value) => typeof value === "string").join(" ");

const table = isProducers ? new DataTable("connections", {
  caption: "Connections that published", key: (row) => `${row.node} ${row.remote_address}`, sort: "client", search, noun: "connection",
  empty: ["No producers", "No connection that is open now has published over TCP."],
  columns: [clients, agents, homes, {...attributes, kind: "text minor"}, texts("names", "Topics"), numbers("published", "Published"), {...connected, kind: "num"}],
}) : new DataTable("connections", {
  caption: "Connections of consumers", key: (row) => `${row.node} ${subscription(row)} ${row.remote_address}`, sort: "channel", search, noun: "connection",
  empty: ["No consumers", "No channel has a connection now: messages wait."],
  columns: [
    links("channel", "Topic and channel", "wide client", (row) => path("topics", row.topic, row.channel), () => [], subscription),
    {...clients, kind: "text agent"}, agents, homes, numbers("in_flight_count", "In flight", count), numbers("ready_count", "Ready", count),
    numbers("finish_count", "Finished"), connected,
  ],
});

live(`/api/live/${page.page}`, ({list, total}) => {
  const different = (value) => count(new Set(list.map(value)).size);
  showCards([
    ["count", "Connections", isProducers ? "That have published at least once" : "The first 5,000 are listed", count(total)],
    ["hosts", "Hosts", "Different host names among them", different((row) => row.hostname)],
    ...(isProducers ? [] : [
      ["channels", "Channels", "That have a consumer", different(subscription)],
      ["in-flight", "In flight", "Messages at consumers, not answered yet", compact(sum(list, "in_flight_count"))]]),
  ]);
  table.show(isProducers ? list.map((row) => ({
    ...row, names: Object.keys(row.topics).sort().join(", "), published: Object.values(row.topics).reduce((a, b) => a + b, 0)})) : list);
});
