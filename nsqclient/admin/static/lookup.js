// The page of nsqlookupds: their registrations, and a form to create topics.
import {act, perform} from "./actions.js";
import {byId, el, hasLookupds, offer, serverState} from "./dom.js";
import {count, since} from "./format.js";
import {live} from "./live.js";
import {DataTable, asNumber, asText, emptyNote} from "./table.js";

const remove = (cell, row) => {
  if (cell.firstElementChild) return;
  const what = row.channel ? `channel ${row.channel} of ${row.topic}` : row.topic;
  cell.append(el("button", {type: "button", class: "danger-quiet", "aria-label": `Delete ${what}`, onclick: () => act("delete", row)}, "Delete…"));
};

const lookupds = hasLookupds && new DataTable("lookupds", {
  key: (row) => row.address,
  empty: emptyNote("None", ""),
  columns: {
    address: {draw: asText()}, state: {draw: serverState(since)}, version: {draw: asText()},
    topics: {draw: asNumber(count)}, nodes_known: {draw: asNumber(count)},
  },
});

const inactive = hasLookupds && new DataTable("inactive", {
  key: (row) => row.name,
  empty: emptyNote("Nothing is left over", "Every registered topic is on an nsqd."),
  columns: {
    name: {draw: (cell, row) => {
      if (cell.firstChild) return;
      cell.append(row.channel ? el("span", {}, "└ ", row.channel, " ", el("small", {}, `channel of ${row.topic}`)) : row.topic);
    }, value: (row) => row.name},
    actions: {draw: remove},
  },
});

live(() => "/api/live/lookup", (values) => {
  offer(byId("create-node"), values.node_names, (name) => `on ${name}`);
  if (!hasLookupds) return;
  lookupds.set(values.lookupds);
  inactive.set(Object.entries(values.inactive).flatMap(([topic, channels]) => [
    {name: topic, topic}, ...channels.map((channel) => ({name: `${topic} ${channel}`, topic, channel})),
  ]));
});

byId("create")?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const topic = byId("create-topic").value.trim();
  const channel = byId("create-channel").value.trim();
  const done = channel ? `Created topic ${topic} and channel ${channel}` : `Created topic ${topic}`;
  if (await perform(done, "POST", "/api/topics", {topic, channel, node: byId("create-node").value})) {
    byId("create").reset();
    byId("create-topic").focus();
  }
});
