// The findings of the doctor.
import {get} from "./api.js";
import {badge, byId, el, fill, setText} from "./dom.js";
import {showState} from "./live.js";

const KINDS = {error: "bad", warning: "warn", ok: "good"};

const item = ({severity, check, where, text, hint, command}) => el("li", {}, badge(severity, KINDS[severity]),
  el("div", {}, el("p", {}, el("strong", {}, check), ` ${where}: ${text}`), ...(hint ? [el("p", {class: "hint"}, hint)] : []),
    ...(command ? [el("pre", {tabindex: "0"}, el("code", {}, command))] : [])));

const run = async () => {
  byId("doctor-run").disabled = true;
  showState("starting", "Checking");
  setText(byId("doctor-summary"), "Every nsqlookupd and nsqd is checked…");
  try {
    const {summary, findings} = await get("/api/live/doctor");
    setText(byId("doctor-summary"), `${summary}, at ${new Date().toLocaleTimeString("en-GB")}.`);
    fill(byId("doctor-list"), findings.map(item));
    showState(findings.some((each) => each.severity !== "ok") ? "problem" : "live", summary);
  } catch (error) {
    setText(byId("doctor-summary"), error.status ? error.message : "nsqadmin does not answer.");
    showState("offline", "No data");
  }
  byId("doctor-run").disabled = false;
};

byId("doctor-run").addEventListener("click", run);
document.body.classList.remove("waiting");
run();
