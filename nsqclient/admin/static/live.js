// Refreshes the page while it is visible, and shows the state of the refresh.
import {get} from "./api.js";
import {byId, el, setText, stateOf} from "./dom.js";
import {plural, since} from "./format.js";

const RETRY = 2;        // seconds, when nsqadmin itself does not answer
const LONGEST = 15000;  // milliseconds for one answer

const CONNECTING = 300; // milliseconds for which the first request is called "Connecting"
const FORGET = 60000;   // milliseconds without a problem after which it is forgotten
const AWAY = 30000;     // milliseconds without a page after which a problem may have another time of its beginning

let wake = () => {};

const state = (name, text) => {
  byId("live").dataset.state = name;
  setText(byId("live-text"), text);
};

const title = (problems) => {
  const failed = problems.filter((each) => !each.is_waiting && !each.is_doubt).length;
  if (!failed && problems.some((each) => each.is_doubt)) return "Doubtful data of a server";
  if (!failed) return problems.length === 1 ? "A server has not answered yet" : `${problems.length} servers have not answered yet`;
  return failed === 1 ? "A server failed" : `${failed} servers failed`;
};

// The problems that the user has hidden, on every page: name -> since when it lasts, and when it was seen last. They
// stay hidden while they last, whatever the reason becomes; a failure that begins later is shown.
const nameOf = (problem) => `${problem.kind} ${problem.address}${problem.is_doubt ? " doubt" : ""}`;
let hidden = {};
try { hidden = JSON.parse(localStorage.getItem("nsq-hidden")) || {}; } catch { /* no storage: they are shown */ }
const keepHidden = () => { try { localStorage.setItem("nsq-hidden", JSON.stringify(hidden)); } catch { /* until the next page */ } };
let latest = [];

const noteSeen = (problems) => {
  const before = JSON.stringify(Object.keys(hidden));
  const names = new Set(problems.map(nameOf));
  for (const problem of problems) {
    const known = hidden[nameOf(problem)];
    if (!known) continue;
    if (!known.since || Date.now() - known.seen > AWAY) known.since = problem.since;
    if (problem.since && problem.since !== known.since) delete hidden[nameOf(problem)];
    else known.seen = Date.now();
  }
  for (const [name, known] of Object.entries(hidden)) if (!names.has(name) && Date.now() - known.seen > FORGET) delete hidden[name];
  if (before !== "[]") keepHidden();
};

const item = (problem) => {
  const where = `${problem.kind} ${problem.address}${problem.asked ? ` (asked at ${problem.asked})` : ""}`;
  const what = problem.cause ? ` ${stateOf(problem)}${since(problem.since)}` : "";
  return el("li", {}, el("strong", {}, where), `${what}: ${problem.reason}`,
    ...(problem.advice ? [el("p", {class: "advice"}, problem.advice)] : []));
};

const showProblems = (problems) => {
  latest = problems;
  const shown = problems.filter((each) => !hidden[nameOf(each)]);
  const all = JSON.stringify(shown);
  const panel = byId("problems");
  if (panel.dataset.all !== all) {
    panel.dataset.all = all;
    setText(byId("problems-title"), title(shown));
    byId("problems-list").replaceChildren(...shown.map(item));
  }
  panel.hidden = !shown.length;
  byId("problems-show").hidden = shown.length === problems.length;
};

byId("problems-hide").addEventListener("click", () => {
  for (const each of latest) hidden[nameOf(each)] = {since: each.since, seen: Date.now()};
  keepHidden();
  showProblems(latest);
});

byId("problems-show").addEventListener("click", () => {
  hidden = {};
  keepHidden();
  showProblems(latest);
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

// Something was changed: refresh now.
export const refresh = () => wake();

// where: () => path. onData(values) draws; onMissing(error) shows that it does not exist.
export const live = async (where, onData, onMissing = null) => {
  await untilSeen();
  state("starting", "Connecting");
  const connecting = setTimeout(() => state("starting", "Waiting for servers"), CONNECTING);
  for (;;) {
    await untilSeen();
    let interval = RETRY;
    try {
      const values = await get(where(), AbortSignal.timeout(LONGEST));
      clearTimeout(connecting);
      interval = values.interval;
      noteSeen(values.problems);
      showProblems(values.problems);
      if (values.problems.length) state("problem", `${plural(values.problems.length, "problem")}`);
      else state("live", `Live, every ${Math.round(interval)} s`);
      onData(values);
    } catch (error) {
      clearTimeout(connecting);
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
