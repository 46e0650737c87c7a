// The page of nsqlookupds: their registrations, and a form to create topics.
import {act, button, perform} from "./actions.js";
import {byId, el, hasLookupds, mayAct, offer} from "./dom.js";
import {count} from "./format.js";
import {live} from "./live.js";
import {DataTable, column, numbers, states, texts} from "./table.js";

const lookupds = hasLookupds && new DataTable("lookupds", {
  caption: "The nsqlookupds that this page queries", key: (row) => row.address, sort: "address", empty: ["None"],
  columns: [
    texts("address", "nsqlookupd", {kind: "wide"}), states(), texts("version", "Version"),
    numbers("topics", "Topics", count), numbers("nodes_known", "nsqds", count),
  ],
});

const inactive = hasLookupds && new DataTable("inactive", {
  caption: "Topics and channels that no nsqd has", key: (row) => row.name, sort: "name",
  empty: ["Nothing is left over", "Every registered topic is on an nsqd."],
  columns: [
    column("name", "Topic or channel", "wide", (row) => (row.channel ? [`└ ${row.channel} `, el("small", {}, `channel of ${row.topic}`)] : row.topic)),
    ...(mayAct ? [column("actions", "Actions", "act", (row) => button("Delete…", `Delete ${row.name}`, () => act("delete", row)))] : []),
  ],
});

live("/api/live/lookup", (values) => {
  if (mayAct) offer(byId("create-node"), values.node_names, (name) => `on ${name}`);
  if (!hasLookupds) return;
  lookupds.show(values.lookupds);
  inactive.show(Object.entries(values.inactive).flatMap(([topic, channels]) => [
    {name: topic, topic}, ...channels.map((channel) => ({name: `${topic} ${channel}`, topic, channel})),
  ]));
});

byId("create")?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const topic = byId("create-topic").value.trim();
  const channel = byId("create-channel").value.trim();
  const done = `Created topic ${topic}${channel ? ` and channel ${channel}` : ""}`;
  if (await perform(done, "POST", "/api/topics", {topic, channel, node: byId("create-node").value})) {
    byId("create").reset();
    byId("create-topic").focus();
  }
});
