// Asks again and again while the page is seen, and says how that goes.
import {get} from "./api.js";
import {byId, el, setText} from "./dom.js";
import {plural} from "./format.js";

const RETRY = 2;        // seconds, when nsqadmin itself does not answer
const LONGEST = 15000;  // milliseconds for one answer

let wake = () => {};
let hidden = "";  // the problems that somebody has read and put away

const state = (name, text) => {
  byId("live").dataset.state = name;
  setText(byId("live-text"), text);
};

const title = (problems) => {
  const failed = problems.filter((each) => !each.is_waiting && !each.is_doubt).length;
  if (!failed && problems.some((each) => each.is_doubt)) return "What a server says is doubtful";
  if (!failed) return problems.length === 1 ? "A server has not answered yet" : `${problems.length} servers have not answered yet`;
  return failed === 1 ? "A server failed" : `${failed} servers failed`;
};

const showProblems = (problems) => {
  const texts = problems.map((p) => `${p.kind} ${p.address}${p.asked ? ` (asked at ${p.asked})` : ""}: ${p.reason}`);
  const all = texts.join("\n");
  const panel = byId("problems");
  if (panel.dataset.all !== all) {
    panel.dataset.all = all;
    setText(byId("problems-title"), title(problems));
    byId("problems-list").replaceChildren(...texts.map((text) => el("li", {}, text)));
  }
  panel.hidden = !problems.length || hidden === all;
  if (!problems.length) hidden = "";
};

byId("problems-hide").addEventListener("click", () => {
  hidden = byId("problems").dataset.all;
  byId("problems").hidden = true;
});

const pause = (seconds) => new Promise((resolve) => {
  const timer = setTimeout(resolve, seconds * 1000);
  wake = () => { clearTimeout(timer); resolve(); };
});

const untilSeen = () => new Promise((resolve) => {
  if (!document.hidden) { resolve(); return; }
  state("paused", "Paused");
  document.addEventListener("visibilitychange", resolve, {once: true});
});

// Something was changed: ask now.
export const refresh = () => wake();

// where: () => path. onData(values) draws; onMissing(error) says that there is no such thing.
export const live = async (where, onData, onMissing = null) => {
  for (;;) {
    await untilSeen();
    let interval = RETRY;
    try {
      const values = await get(where(), AbortSignal.timeout(LONGEST));
      interval = values.interval;
      showProblems(values.problems);
      if (values.problems.length) state("problem", `${plural(values.problems.length, "problem")}`);
      else state("live", `Live, every ${Math.round(interval)} s`);
      onData(values);
    } catch (error) {
      if (error.status === 404 && onMissing) {
        state("live", `Live, every ${RETRY} s`);
        onMissing(error);
      } else if (error.status) {
        state("problem", "No data");
        showProblems(error.problems.length ? error.problems
          : [{kind: "nsqadmin", address: location.host, reason: error.message}]);
      } else if (error.name === "TypeError" || error.name === "TimeoutError") {
        state("offline", "Offline");
        showProblems([{kind: "nsqadmin", address: location.host, reason: "it does not answer; this page goes on trying"}]);
      } else {
        console.error(error);
        state("problem", "Error");
      }
    }
    document.body.classList.remove("waiting");
    await pause(interval);
  }
};
