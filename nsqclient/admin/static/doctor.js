// The findings of the doctor.
import {get} from "./api.js";
import {byId, el, setText} from "./dom.js";

const KINDS = {error: "bad", warning: "warn", ok: "good"};

const item = (finding) => el("li", {},
  el("span", {class: `badge ${KINDS[finding.severity]}`}, finding.severity),
  el("div", {}, el("p", {}, el("strong", {}, finding.check), ` ${finding.where}: ${finding.text}`),
    ...(finding.hint ? [el("p", {class: "hint"}, finding.hint)] : []),
    ...(finding.command ? [el("pre", {tabindex: "0"}, el("code", {}, finding.command))] : [])));

const state = (name, text) => { byId("live").dataset.state = name; setText(byId("live-text"), text); };

const run = async () => {
  const button = byId("doctor-run");
  button.disabled = true;
  state("starting", "Checking");
  setText(byId("doctor-summary"), "Every nsqlookupd and nsqd is checked…");
  try {
    const answer = await get("/api/live/doctor");
    setText(byId("doctor-summary"), `${answer.summary}, at ${new Date().toLocaleTimeString("en-GB")}.`);
    byId("doctor-list").replaceChildren(...answer.findings.map(item));
    const isBad = answer.findings.some((each) => each.severity !== "ok");
    state(isBad ? "problem" : "live", answer.summary);
  } catch (error) {
    setText(byId("doctor-summary"), error.status ? error.message : "nsqadmin does not answer.");
    state(error.status ? "problem" : "offline", error.status ? "No data" : "Offline");
  }
  button.disabled = false;
};

byId("doctor-run").addEventListener("click", run);
document.body.classList.remove("waiting");
run();
