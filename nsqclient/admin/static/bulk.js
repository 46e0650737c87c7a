// Actions on several rows of a table at once, with one confirmation.
import {confirmTyped, toast} from "./actions.js";
import {send} from "./api.js";
import {byId, el, setText} from "./dom.js";
import {plural} from "./format.js";
import {refresh} from "./live.js";

const NAMED = 12;  // names that the confirmation lists
const DONE = {pause: "Paused", unpause: "Unpaused", empty: "Emptied", delete: "Deleted"};
const WARNING = {
  empty: "Every waiting message of them is deleted. This cannot be undone.",
  delete: "They are deleted with all their messages. This cannot be undone.",
};

// noun: "topic" or "channel". nameOf(row). target(names) => what a request contains. shown() => names of shown rows.
export const setUpBulk = ({noun, nameOf, target, shown}) => {
  const bar = byId("bulk");
  if (!bar) return {cell: () => {}, keep: () => {}};
  const chosen = new Set();
  const buttons = [...bar.querySelectorAll("[data-bulk]")];

  const draw = () => {
    setText(byId("bulk-count"), `${plural(chosen.size, noun)} selected`);
    for (const button of buttons) button.disabled = chosen.size === 0;
    for (const box of document.querySelectorAll("input[data-pick]")) box.checked = chosen.has(box.dataset.pick);
  };

  const act = async (action) => {
    const names = [...chosen].sort();
    if (WARNING[action]) {
      const more = names.length > NAMED ? ` and ${names.length - NAMED} more` : "";
      const sure = await confirmTyped({
        title: `${action === "empty" ? "Empty" : "Delete"} ${plural(names.length, noun)}?`,
        text: `${names.slice(0, NAMED).join(", ")}${more}. ${WARNING[action]}`,
        name: plural(names.length, noun), button: action === "empty" ? "Empty" : "Delete",
      });
      if (!sure) return;
    }
    try {
      const answer = await send("POST", "/api/live/bulk", {action, ...target(names)});
      if (answer.done.length) {
        const text = `${DONE[action]} ${plural(answer.done.length, noun)}`;
        toast(answer.message ? `${text}, but not everywhere. ${answer.message}` : text, Boolean(answer.message));
      }
      for (const each of answer.failed.slice(0, 3)) toast(`${each.name}: ${each.reason}`, true);
      if (answer.failed.length > 3) toast(`${answer.failed.length} failed`, true);
      for (const name of answer.done) chosen.delete(name);
    } catch (error) {
      toast(error.status ? error.message : "nsqadmin does not answer; the result of the action is unknown", true);
    }
    draw();
    refresh();
  };

  for (const button of buttons) button.addEventListener("click", () => act(button.dataset.bulk));
  byId("bulk-all").addEventListener("click", () => {
    const names = shown();
    if (names.every((name) => chosen.has(name))) chosen.clear();
    else for (const name of names) chosen.add(name);
    draw();
  });
  draw();

  return {
    // Draws the box of a row.
    cell: (cell, row) => {
      const name = nameOf(row);
      if (cell.firstElementChild) return;
      const box = el("input", {type: "checkbox", "data-pick": name, "aria-label": `Select ${name}`});
      box.checked = chosen.has(name);
      box.addEventListener("change", () => {
        if (box.checked) chosen.add(name);
        else chosen.delete(name);
        draw();
      });
      cell.append(box);
    },
    // Drops rows that are gone.
    keep: (names) => {
      const known = new Set(names);
      for (const name of chosen) if (!known.has(name)) chosen.delete(name);
      draw();
    },
  };
};
