// Replays all dead letters of a channel.
import {confirmTyped} from "./actions.js";
import {lines} from "./api.js";
import {byId, offer, setText} from "./dom.js";
import {count, plural} from "./format.js";
import {refresh} from "./live.js";

const panel = byId("replay");
let ending = null;

// The channels of the topic, on the page of a topic; letters are in "dead_letters" where nothing else is said.
export const offerChannels = (names) => {
  const field = byId("replay-channel");
  if (!field) return;
  const isFirst = !field.value;
  offer(field, names);
  if (isFirst && names.includes("dead_letters")) field.value = "dead_letters";
  byId("replay-start").disabled = !names.length;
};

const replay = async () => {
  if (ending) { ending.abort(); return; }
  const {topic} = panel.dataset;
  const channel = panel.dataset.channel || byId("replay-channel").value;
  const target = byId("replay-target").value;
  const note = byId("replay-note");
  const sure = await confirmTyped({
    title: `Replay all letters in ${channel}?`, name: channel, button: "Replay",
    text: `Each is published to ${target}, and finished here. If the replay ends early, a letter may be published twice.`,
  });
  if (!sure) return;
  ending = new AbortController();
  setText(byId("replay-start"), "Stop");
  let done = 0;
  let wanted = 0;
  let failure = "";
  try {
    const body = {topic, channel, target, rate: Number(byId("replay-rate").value)};
    for await (const value of lines("/api/live/replay", body, ending.signal)) {
      if (value.wanted !== undefined) wanted = value.wanted;
      if (value.done) done = value.done;
      if (value.error) failure = value.error;
      setText(note, `${count(done)} of ${plural(wanted, "letter")} replayed`);
    }
  } catch (error) {
    if (error.name === "AbortError") failure = "Stopped.";
    else failure = error.status ? error.message : "The connection to nsqadmin was lost.";
  }
  ending = null;
  setText(byId("replay-start"), "Replay all…");
  setText(note, [`${count(done)} of ${plural(wanted, "letter")} replayed.`, failure].join(" ").trim());
  refresh();
};

export const setUpReplay = () => {
  if (!panel) return;
  byId("replay-form").addEventListener("submit", (event) => { event.preventDefault(); replay(); });
};
