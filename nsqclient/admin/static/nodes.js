// The page of all nsqds.
import {button, perform} from "./actions.js";
import {badge, el, hasLookupds, mayAct, path, showCards} from "./dom.js";
import {count} from "./format.js";
import {live} from "./live.js";
import {DataTable, column, links, numbers, states, texts} from "./table.js";

let lookupds = [];

const registration = (row) => {
  const missing = lookupds.filter((each) => !row.lookupds.includes(each));
  if (missing.length) return badge(`${row.lookupds.length} of ${lookupds.length}`, "warn", `Not known to ${missing.join(", ")}`);
  return lookupds.length === 1 ? "registered" : `all ${lookupds.length}`;
};

const forget = (row) => (row.state === "gone" && mayAct ? [" ", button("Forget", `Forget ${row.address}`,
  () => perform(`Forgot ${row.address}`, "POST", "/api/live/forget", {node: row.address}), "quiet")] : []);

const nodes = new DataTable("nodes", {
  caption: "All nsqds, and the nsqlookupds that list them", key: (row) => row.address, sort: "address",
  empty: ["No nsqd", "None is registered. Start one with ", el("code", {}, "nsqclient nsqd --lookupd-tcp-address=…")],
  columns: [
    links("address", "nsqd", "wide", (row) => path("nodes", row.address), (row) => [
      ...(row.reached_at && row.reached_at !== row.address ? [badge(`asked at ${row.reached_at}`, "", "Rewritten, or given on the command line")] : []),
      ...(row.announced ? [badge(`announces ${row.announced}`, "", "The address that it reports itself, unchecked")] : [])]),
    texts("hostname", "Host"), states(forget), numbers("tcp_port", "TCP port", (port) => String(port || "–"), {kind: "num minor"}),
    column("version", "Version", "text", (row) => [row.version, ...(row.out_of_date ? [" ", badge("older", "warn", "Another nsqd is newer")] : [])]),
    numbers("topics", "Topics", count), ...(hasLookupds ? [column("lookupds", "nsqlookupd", "text", registration)] : []),
  ],
});

live("/api/live/nodes", (values) => {
  ({lookupds} = values);
  const versions = new Set(values.list.map((each) => each.version).filter(Boolean));
  showCards([
    ["up", "nsqds that answer", "Of those that are known", `${values.answered_count} of ${values.list.length}`],
    ["versions", "Versions", "Of the nsqds", [...versions].sort().join(", ") || "–"],
    ["lookupds", "nsqlookupds", "That this page queries", count(lookupds.length)],
  ]);
  nodes.show(values.list);
});
