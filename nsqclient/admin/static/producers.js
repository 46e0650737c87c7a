// The page of connections that published.
import {attributes, client, connected, node} from "./clients.js";
import {byId, el, setText, show} from "./dom.js";
import {compact, count} from "./format.js";
import {live} from "./live.js";
import {matches, setUpSearch} from "./search.js";
import {DataTable, asNumber, asText} from "./table.js";

let all = [];
const search = setUpSearch(() => drawTable());

const producers = new DataTable("producers", {
  key: (row) => `${row.node} ${row.remote_address}`,
  empty: () => search.nothing("producer", el("strong", {}, "No producers"), el("p", {}, "No connection that is open now has published over TCP.")),
  columns: {
    client: {draw: client, value: (row) => `${row.hostname} ${row.client_id}`},
    user_agent: {draw: asText()},
    node: {draw: node, minor: true},
    attributes: {draw: attributes, minor: true},
    topics: {draw: asText(), minor: false},
    published: {draw: asNumber(compact)},
    connected: {draw: connected, value: (row) => -row.connect_ts},
  },
});

const drawTable = () => {
  const words = search.words();
  const rows = all.filter((row) => matches(`${row.client_id} ${row.hostname} ${row.user_agent} ${row.topics} ${row.node}`, words));
  producers.set(rows, words.length > 0);
  setText(byId("shown"), words.length ? `${count(rows.length)} of ${count(all.length)}` : "");
};

live(() => "/api/live/producers", (values) => {
  all = values.list.map((row) => ({
    ...row, topics: Object.keys(row.topics).sort().join(", "),
    published: Object.values(row.topics).reduce((total, each) => total + each, 0),
  }));
  show("count", count(all.length));
  show("hosts", count(new Set(all.map((row) => row.hostname)).size));
  drawTable();
});
