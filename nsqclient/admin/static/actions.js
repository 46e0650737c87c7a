// Actions: confirmation, request, result.
import {lines, send} from "./api.js";
import {api, byId, el, setText} from "./dom.js";
import {refresh} from "./live.js";

const SHOWN = 6000;  // milliseconds for which a message stays

export const toast = (text, isBad = false) => {
  const element = el("div", {class: isBad ? "toast bad" : "toast"}, text);
  byId("toasts").append(element);
  setTimeout(() => element.remove(), isBad ? 2 * SHOWN : SHOWN);
};

// Resolves to true when the name was typed and the button pressed.
export const confirmTyped = ({title, text, name, button}) => new Promise((resolve) => {
  const dialog = byId("confirm");
  const typed = byId("confirm-typed");
  const yes = byId("confirm-yes");
  const shown = {"confirm-title": title, "confirm-text": text, "confirm-name": name, "confirm-yes": button};
  for (const [id, value] of Object.entries(shown)) setText(byId(id), value);
  typed.value = "";
  yes.disabled = true;
  typed.oninput = () => { yes.disabled = typed.value.trim() !== name; };
  byId("confirm-no").onclick = () => dialog.close();
  dialog.returnValue = "";
  dialog.onclose = () => resolve(dialog.returnValue === "yes");
  dialog.showModal();
  typed.focus();
});

const reasonOf = (error) => (error.status ? error.message : "nsqadmin does not answer; the result of the action is unknown");

// Sends one request and shows its result; returns the answer, or null if the request failed.
export const perform = async (done, method, where, body) => {
  try {
    const answer = await send(method, where, body);
    const text = typeof done === "function" ? done(answer) : done;
    if (text) toast(answer.message ? `${text}, but not everywhere. ${answer.message}` : text, Boolean(answer.message));
    return answer;
  } catch (error) {
    toast(reasonOf(error), true);
    return null;
  } finally {
    refresh();
  }
};

export const WORDS = {
  pause: ["Pause", "Paused"], unpause: ["Unpause", "Unpaused"],
  empty: ["Empty", "Emptied", "Every waiting message is deleted. This cannot be undone."],
  delete: ["Delete", "Deleted", "All messages are deleted too. This cannot be undone. A consumer that reconnects creates a deleted channel again."],
};

// Carries out an action on a topic or channel, everywhere or on one nsqd.
export const act = async (action, {topic, channel = "", node = ""}) => {
  const what = `${channel ? `channel ${channel} of ${topic}` : `topic ${topic}`}${node ? ` on ${node}` : ""}`;
  const [verb, done, warning] = WORDS[action];
  if (warning && !await confirmTyped({title: `${verb} ${what}?`, text: warning, name: channel || topic, button: verb})) return null;
  return perform(`${done} ${what}`, action === "delete" ? "DELETE" : "POST", api("topics", topic, channel), {
    ...(action === "delete" ? {} : {action}), ...(node ? {node} : {})});
};

export const button = (text, label, onclick, kind = "danger-quiet") => el("button", {type: "button", class: kind, "aria-label": label, onclick}, text);

// The buttons in the row of an nsqd, for its topic or channel.
export const rowActions = (isPaused, where, target, remove = ["Delete…", () => act("delete", target)]) => {
  const toggle = isPaused ? "unpause" : "pause";
  return [
    button(WORDS[toggle][0], `${WORDS[toggle][0]} ${where}`, () => act(toggle, target), ""),
    button("Empty…", `Empty ${where}`, () => act("empty", target)), button(remove[0], `${remove[0]} ${where}`, remove[1]),
  ];
};

// A button that starts a response of many lines, and stops it while it runs. read(value) takes each line; the result is
// the reason why the response ended early, or "".
export const stream = (start) => {
  const label = start.textContent;
  let ending = null;
  return async (where, body, read) => {
    if (ending) { ending.abort(); return null; }
    ending = new AbortController();
    setText(start, "Stop");
    try {
      for await (const value of lines(where, body, ending.signal)) read(value);
      return "";
    } catch (error) {
      if (error.name === "AbortError") return "Stopped.";
      return error.status ? error.message : "The connection to nsqadmin was lost.";
    } finally {
      ending = null;
      setText(start, label);
      refresh();
    }
  };
};
