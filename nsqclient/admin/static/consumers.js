// The page of the connections of consumers, over all topics.
import {client, connected, node} from "./clients.js";
import {el, byId, setText, show, topicPath} from "./dom.js";
import {compact, count, plural} from "./format.js";
import {live} from "./live.js";
import {matches, setUpSearch} from "./search.js";
import {DataTable, asLink, asNumber, asText} from "./table.js";

let all = [];
let total = 0;
const search = setUpSearch(() => drawTable());

const consumers = new DataTable("consumers", {
  key: (row) => `${row.node} ${row.topic} ${row.channel} ${row.remote_address}`,
  empty: () => search.nothing("consumer", el("strong", {}, "No consumers"), el("p", {}, "No channel has a connection now: messages wait.")),
  columns: {
    channel: {draw: asLink((row) => topicPath(row.topic, row.channel), (row) => `${row.topic} / ${row.channel}`), value: (row) => `${row.topic} ${row.channel}`},
    client: {draw: client, value: (row) => `${row.hostname} ${row.client_id}`},
    user_agent: {draw: asText()},
    node: {draw: node, minor: true},
    in_flight_count: {draw: asNumber(count)},
    ready_count: {draw: asNumber(count)},
    finish_count: {draw: asNumber(compact)},
    connected: {draw: connected, value: (row) => -row.connect_ts, minor: true},
  },
});

const drawTable = () => {
  const words = search.words();
  const rows = all.filter((row) => matches(`${row.topic} ${row.channel} ${row.client_id} ${row.hostname} ${row.user_agent} ${row.node}`, words));
  consumers.set(rows, words.length > 0);
  setText(byId("shown"), words.length ? `${count(rows.length)} of ${count(all.length)}`
    : total > all.length ? `the first ${plural(all.length, "connection")} of ${count(total)}` : "");
};

live(() => "/api/live/consumers", (values) => {
  all = values.list;
  total = values.total;
  show("count", count(total));
  show("hosts", count(new Set(all.map((row) => row.hostname)).size));
  show("channels", count(new Set(all.map((row) => `${row.topic} ${row.channel}`)).size));
  show("in-flight", compact(all.reduce((sum, row) => sum + row.in_flight_count, 0)));
  drawTable();
});
