// Refreshes the page while it is visible, and shows the servers that fail.
import {get} from "./api.js";
import {byId, el, fill, setText, store, stored} from "./dom.js";
import {moment, plural} from "./format.js";

const RETRY = 2;        // seconds after a failed request
const LONGEST = 15000;  // milliseconds for one answer

let wake = () => {};
let problems = [];
// Names of the problems that the user has hidden, on every page. A problem that begins later has another name.
let hidden = stored("nsq-hidden").split("\n");
const nameOf = (problem) => `${problem.kind} ${problem.address} ${problem.since}`;

export const showState = (name, text) => {
  byId("live").dataset.state = name;
  setText(byId("live-text"), text);
};

export const sinceWhen = (failure) => `${failure.state}${failure.since ? ` since ${moment(failure.since)}` : ""}`;

const item = (problem) => el("li", {},
  el("strong", {}, `${problem.kind} ${problem.address}${problem.asked ? ` (asked at ${problem.asked})` : ""}`),
  ` ${sinceWhen(problem)}: ${problem.reason}`, el("p", {class: "advice"}, problem.advice));

const showProblems = (found) => {
  problems = found;
  const shown = problems.filter((each) => !hidden.includes(nameOf(each)));
  fill(byId("problems-list"), shown.map(item));
  byId("problems").hidden = !shown.length;
  byId("problems-show").hidden = shown.length === problems.length;
};

const hide = (names) => {
  hidden = names;
  store("nsq-hidden", names.join("\n"));
  showProblems(problems);
};
byId("problems-hide").addEventListener("click", () => hide(problems.map(nameOf)));
byId("problems-show").addEventListener("click", () => hide([]));

const showError = (error) => {
  if (error.status === 404) {
    showState("live", "Live");
    document.body.classList.add("absent");
  } else if (error.status !== undefined) {
    showState(error.status ? "problem" : "offline", error.status ? "No data" : "Offline");
    const reason = error.status ? error.message : "no answer; this page tries again";
    showProblems(error.problems?.length ? error.problems
      : [{kind: "nsqadmin", address: location.host, state: "fails", reason, advice: "", since: 0}]);
  } else {
    console.error(error);
    showState("problem", "Error");
  }
};

const isVisible = () => new Promise((resolve) => {
  if (!document.hidden) return resolve();
  showState("paused", "Paused");
  return document.addEventListener("visibilitychange", () => resolve(isVisible()), {once: true});
});

const pause = (seconds) => new Promise((resolve) => {
  const timer = setTimeout(resolve, seconds * 1000);
  wake = () => { clearTimeout(timer); resolve(); };
});

// Refreshes now: something was changed.
export const refresh = () => wake();

// Calls draw(values) with the answer of a path again and again.
export const live = async (where, draw) => {
  for (;;) {
    await isVisible();
    let interval = RETRY;
    try {
      const values = await get(where, AbortSignal.timeout(LONGEST));
      interval = values.interval;
      document.body.classList.remove("absent");
      draw(values);
      showProblems(values.problems);
      if (problems.length) showState("problem", plural(problems.length, "problem"));
      else showState("live", `Live, every ${Math.round(interval)} s`);
    } catch (error) {
      showError(error);
    }
    document.body.classList.remove("waiting");
    await pause(interval);
  }
};
