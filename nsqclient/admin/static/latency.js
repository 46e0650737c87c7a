// The end-to-end latency of a topic or channel, as nsqd measures it.
import {byId, el} from "./dom.js";

const fine = new Intl.NumberFormat("en", {maximumFractionDigits: 1});
const shown = (nanoseconds) => {
  if (nanoseconds < 1e6) return `${fine.format(nanoseconds / 1e3)} µs`;
  if (nanoseconds < 1e9) return `${fine.format(nanoseconds / 1e6)} ms`;
  return `${fine.format(nanoseconds / 1e9)} s`;
};

export const drawLatency = (latency) => {
  const found = latency?.percentiles || [];
  byId("latency").hidden = !found.length;
  const key = JSON.stringify(found);
  const list = byId("latency-list");
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  list.replaceChildren(...found.map((each) => el("div", {class: "card"},
    el("dt", {}, `${fine.format(each.quantile * 100)} % of messages within`),
    el("dd", {title: `Average of the nsqds: ${shown(each.average)}`}, shown(each.max)))));
};
