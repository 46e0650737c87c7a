// What the pages of a topic and of a channel share.
import {act} from "./actions.js";
import {api, byId, el, fill, mayAct, page, setText} from "./dom.js";
import {latency, percent} from "./format.js";
import {live} from "./live.js";
import {setUpMessages} from "./messages.js";

const {topic, channel} = page;

const drawLatency = (percentiles) => {
  byId("latency").hidden = !percentiles.length;
  fill(byId("latency-list"), percentiles.map((each) => el("div", {class: "card"},
    el("dt", {}, `${percent(each.quantile)} of messages within`),
    el("dd", {title: `Average of the nsqds: ${latency(each.average)}`}, latency(each.max)))));
};

// Refreshes the page with draw(values). after: the page to go to when this topic or channel was deleted.
export const show = (draw, after) => {
  for (const button of document.querySelectorAll("[data-action]")) {
    button.addEventListener("click", async () => {
      const {action} = button.dataset;
      if (await act(action, {topic, channel}) && action === "delete") location.assign(after);
    });
  }
  setUpMessages();
  live(api("live", "topics", topic, channel), (values) => {
    byId("paused").hidden = !values.paused;
    drawLatency(values.e2e_processing_latency.percentiles || []);
    if (mayAct) {
      byId("pause").dataset.action = values.paused ? "unpause" : "pause";
      setText(byId("pause"), values.paused ? "Unpause" : "Pause");
    }
    draw(values);
  });
};
