// Shows messages: copies of new ones, or those that wait in a channel without consumers.
import {lines} from "./api.js";
import {perform} from "./actions.js";
import {byId, el, mayAct, setText} from "./dom.js";
import {bytes, plural} from "./format.js";

const panel = byId("peek");
let ending = null;

const why = (letter) => {
  const from = [letter.topic, letter.channel].filter(Boolean).join(" / ");
  const facts = [from, `given up after ${plural(letter.attempts, "attempt")}`, letter.given_up_at, letter.reason || letter.exception];
  return [
    el("p", {class: "why"}, facts.filter(Boolean).join(" · ")),
    ...(letter.traceback ? [el("details", {}, el("summary", {}, "Traceback"), el("pre", {tabindex: "0"}, letter.traceback))] : []),
  ];
};

const shown = (message) => {
  const facts = [
    el("time", {datetime: new Date(message.timestamp).toISOString()}, new Date(message.timestamp).toLocaleString()),
    el("code", {class: "id"}, message.id), `attempt ${message.attempts}`, bytes(message.size), message.node,
  ];
  const body = message.pretty ?? message.text ?? message.base64;
  const letter = message.dead_letter;
  const source = panel.dataset.source;  // anybody may have written which topic the letter names
  const again = [];
  if (source && mayAct && !message.truncated) {
    again.push(el("button", {
      type: "button",
      onclick: () => perform(`Published a copy to ${source}`, "POST", "/api/live/publish", {
        topic: source, body: message.base64 ?? message.text, encoding: message.base64 ? "base64" : "text",
      }),
    }, `Publish to ${source}`));
  }
  const kind = message.base64 ? "base64 of bytes that are no text" : message.truncated ? "the first 64 KiB" : "";
  return el("li", {}, el("header", {}, ...facts.map((fact) => el("span", {}, fact)), ...(kind ? [el("em", {}, kind)] : []), ...again),
    ...(letter ? why(letter) : []), el("pre", {tabindex: "0"}, body));
};

const peek = async (channel) => {
  const start = byId("peek-start");
  const list = byId("peek-list");
  const note = byId("peek-note");
  if (ending) { ending.abort(); return; }
  const count = Number(byId("peek-count").value);
  const seconds = channel ? 3 : Number(byId("peek-seconds").value);
  ending = new AbortController();
  list.replaceChildren();
  setText(start, "Stop");
  setText(note, channel ? "Taking messages on loan…" : `Waiting for messages, up to ${seconds} s…`);
  let found = 0;
  let notes = [];
  let failure = "";
  try {
    const body = {topic: panel.dataset.topic, count, seconds, ...(channel ? {channel} : {})};
    for await (const value of lines("/api/live/peek", body, ending.signal)) {
      if (value.notes) notes = value.notes;
      else {
        found += 1;
        list.append(shown(value));
        setText(note, plural(found, "message"));
      }
    }
  } catch (error) {
    if (error.name !== "AbortError") failure = error.status ? error.message : "The connection to nsqadmin was lost.";
  }
  ending = null;
  setText(start, "Peek at new ones");
  const result = found ? `${plural(found, "message")}${channel ? "; they were requeued, with one attempt more" : ""}.`
    : channel ? "Nothing waits in this channel." : "No message came.";
  setText(note, [failure || result, ...notes].join(" "));
};

export const setUpPeek = () => {
  if (!panel) return;
  byId("peek-form").addEventListener("submit", (event) => { event.preventDefault(); peek(""); });
  byId("peek-loan")?.addEventListener("click", () => { if (!ending) peek(panel.dataset.channel); });
};
