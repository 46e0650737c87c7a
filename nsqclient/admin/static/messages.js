// Messages: copies of new ones, those that wait in a channel without consumers, and the replay of dead letters.
import {confirmTyped, perform, stream} from "./actions.js";
import {byId, el, mayAct, offer, page, setText} from "./dom.js";
import {bytes, count, plural} from "./format.js";

const {topic, channel, source} = page;

const letterOf = ({topic: of, channel: by, attempts, given_up_at: at, reason, exception, traceback}) => [
  el("p", {class: "why"}, [of, by, `given up after ${plural(attempts, "attempt")}`, at, reason || exception].filter(Boolean).join(" · ")),
  ...(traceback ? [el("details", {}, el("summary", {}, "Traceback"), el("pre", {tabindex: "0"}, traceback))] : []),
];

// Anybody may have written which topic a letter names: a copy goes to the topic after which this one is named.
const again = (message) => el("button", {type: "button", onclick: () => perform(`Published a copy to ${source}`, "POST", "/api/live/publish", {
  topic: source, body: message.base64 ?? message.text, encoding: message.base64 ? "base64" : "text"})}, `Publish to ${source}`);

const item = (message) => {
  const at = new Date(message.timestamp);
  const kind = message.base64 ? "base64 of bytes that are no text" : message.truncated ? "the first 64 KiB" : "";
  return el("li", {}, el("header", {}, el("time", {datetime: at.toISOString()}, at.toLocaleString()), el("code", {}, message.id),
    ...[`attempt ${message.attempts}`, bytes(message.size), message.node, kind].map((fact) => el("span", {}, fact)),
    ...(source && mayAct && !message.truncated ? [again(message)] : [])),
  ...(message.dead_letter ? letterOf(message.dead_letter) : []), el("pre", {tabindex: "0"}, message.pretty ?? message.text ?? message.base64));
};

const setUpPeek = () => {
  const run = stream(byId("peek-start"));
  const list = byId("peek-list");
  const peek = async (lender) => {
    let notes = [];
    const body = {topic, channel: lender, count: Number(byId("peek-count").value), seconds: lender ? 3 : Number(byId("peek-seconds").value)};
    const failure = await run("/api/live/peek", body, (value) => {
      if (value.notes) { ({notes} = value); list.replaceChildren(); }
      else list.append(item(value));
      setText(byId("peek-note"), list.children.length ? plural(list.children.length, "message") : "Waiting for messages…");
    });
    if (failure === null) return;
    const found = list.children.length;
    const result = found ? `${plural(found, "message")}${lender ? "; they were requeued, with one attempt more" : ""}.` : "No message came.";
    setText(byId("peek-note"), [failure, result, ...notes].join(" ").trim());
  };
  byId("peek-form").addEventListener("submit", (event) => { event.preventDefault(); peek(""); });
  byId("peek-loan")?.addEventListener("click", () => peek(channel));
};

const setUpReplay = () => {
  const start = byId("replay-start");
  const run = stream(start);
  byId("replay-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const from = channel || byId("replay-channel").value;
    const target = byId("replay-target").value;
    const isRunning = start.textContent === "Stop";
    if (!isRunning && !await confirmTyped({
      title: `Replay all letters in ${from}?`, name: from, button: "Replay",
      text: `Each is published to ${target}, and finished here. If the replay ends early, a letter may be published twice.`,
    })) return;
    const seen = {done: 0, wanted: 0, error: ""};
    const text = () => `${count(seen.done)} of ${plural(seen.wanted, "letter")} replayed`;
    const failure = await run("/api/live/replay", {topic, channel: from, target, rate: Number(byId("replay-rate").value)}, (value) => {
      Object.assign(seen, value);
      setText(byId("replay-note"), text());
    });
    if (failure !== null) setText(byId("replay-note"), `${text()}. ${failure || seen.error}`.trim());
  });
};

// The channels of a topic, for the replay.
export const offerChannels = (names) => {
  const field = byId("replay-channel");
  if (!field) return;
  offer(field, names);
  byId("replay-start").disabled = !names.length;
};

export const setUpMessages = () => {
  if (byId("peek")) setUpPeek();
  if (byId("replay")) setUpReplay();
};
