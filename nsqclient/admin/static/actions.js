// Actions: confirmation, request, result.
import {send} from "./api.js";
import {byId, el, page, path, setText} from "./dom.js";
import {refresh} from "./live.js";

const TOAST = 6000;  // milliseconds that a message stays

export const toast = (text, isBad = false) => {
  const element = el("div", {class: isBad ? "toast bad" : "toast"}, text);
  byId("toasts").append(element);
  setTimeout(() => element.remove(), isBad ? 2 * TOAST : TOAST);
};

// Resolves to true when the name was typed and the button pressed.
export const confirmTyped = ({title, text, name, button}) => new Promise((resolve) => {
  const dialog = byId("confirm");
  const form = dialog.querySelector("form");
  const typed = byId("confirm-typed");
  const yes = byId("confirm-yes");
  setText(byId("confirm-title"), title);
  setText(byId("confirm-text"), text);
  setText(byId("confirm-name"), name);
  setText(yes, button);
  typed.value = "";
  yes.disabled = true;
  const ending = new AbortController();
  const on = (target, event, handler) => target.addEventListener(event, handler, {signal: ending.signal});
  let answer = false;
  on(typed, "input", () => { yes.disabled = typed.value.trim() !== name; });
  on(form, "submit", (event) => {
    event.preventDefault();
    if (yes.disabled) return;
    answer = true;
    dialog.close();
  });
  on(byId("confirm-no"), "click", () => dialog.close());
  on(dialog, "close", () => { ending.abort(); resolve(answer); });
  dialog.showModal();
  typed.focus();
});

// Sends one request and shows its result with the servers that failed; true when it was done.
export const perform = async (done, method, where, body) => {
  try {
    const answer = await send(method, where, body);
    if (answer.message) toast(`${done}, but not everywhere. ${answer.message}`, true);
    else toast(done);
    refresh();
    return true;
  } catch (error) {
    toast(error.status ? error.message : "nsqadmin does not answer; the result of the action is unknown", true);
    return false;
  }
};

const WORDS = {
  empty: {button: "Empty", done: "Emptied", text: "Every waiting message is deleted. This cannot be undone."},
  delete: {button: "Delete", done: "Deleted", text: "It is deleted with all its messages. This cannot be undone. Consumers are disconnected; when one reconnects, it is created again."},
};

// The action of a button with data-action on a topic or channel, everywhere or on one nsqd.
export const act = async (action, {topic, channel = "", node = ""}) => {
  const what = channel ? `channel ${channel} of ${topic}` : `topic ${topic}`;
  const where = `/api${path("topics", topic, ...(channel ? [channel] : [])).slice(page.base.length)}`;
  const there = node ? ` on ${node}` : "";
  const body = node ? {node} : {};
  const words = WORDS[action];
  if (!words) {
    const done = action === "pause" ? "Paused" : "Unpaused";
    return perform(`${done} ${what}${there}`, "POST", where, {action, ...body});
  }
  const sure = await confirmTyped({
    title: `${words.button} ${what}${there}?`, text: words.text, name: channel || topic, button: words.button,
  });
  if (!sure) return false;
  return action === "delete"
    ? perform(`${words.done} ${what}${there}`, "DELETE", where, body)
    : perform(`${words.done} ${what}${there}`, "POST", where, {action, ...body});
};

// Buttons in the row of an nsqd, for its topic or channel.
export const rowActions = (target) => (cell, row) => {
  const {paused} = row;
  if (cell.dataset.paused === String(paused)) return;
  cell.dataset.paused = String(paused);
  const had = cell.contains(document.activeElement) ? [...cell.children].indexOf(document.activeElement) : -1;
  const button = (label, action, kind) => el("button", {
    type: "button", class: kind, "aria-label": `${label} on ${row.node}`, onclick: () => act(action, target(row)),
  }, label);
  cell.replaceChildren(
    paused ? button("Unpause", "unpause", "") : button("Pause", "pause", ""),
    button("Empty…", "empty", "danger-quiet"), button("Delete…", "delete", "danger-quiet"),
  );
  if (had >= 0) cell.children[had].focus();
};
