// Actions on several rows of a table at once, with one confirmation.
import {WORDS, confirmTyped, perform, toast} from "./actions.js";
import {byId, el, setText} from "./dom.js";
import {plural} from "./format.js";
import {column} from "./table.js";

const NAMED = 12;  // names that the confirmation lists

// noun: "topic" or "channel". nameOf(row). target(names): what a request contains. Returns the column of boxes, and
// follow(table), to be called after the table has drawn its rows.
export const setUpBulk = (noun, nameOf, target) => {
  const bar = byId("bulk");
  const chosen = new Set();
  let table = null;
  const buttons = bar ? [...bar.querySelectorAll("[data-bulk]")] : [];

  const draw = () => {
    setText(byId("bulk-count"), `${plural(chosen.size, noun)} selected`);
    for (const button of buttons) button.disabled = !chosen.size;
    for (const box of document.querySelectorAll("[data-pick]")) box.checked = chosen.has(box.dataset.pick);
  };

  const act = async (action) => {
    const names = [...chosen].sort();
    const name = plural(names.length, noun);
    const [verb, done, warning] = WORDS[action];
    const listed = names.slice(0, NAMED).join(", ") + (names.length > NAMED ? ` and ${names.length - NAMED} more` : "");
    if (warning && !await confirmTyped({title: `${verb} ${name}?`, text: `${listed}. ${warning}`, name, button: verb})) return;
    const answer = await perform((found) => found.done.length && `${done} ${plural(found.done.length, noun)}`,
      "POST", "/api/live/bulk", {action, ...target(names)});
    const failed = answer?.failed ?? [];
    if (failed.length) toast(failed.slice(0, 3).map((each) => `${each.name}: ${each.reason}`).join(". "), true);
    for (const each of answer?.done ?? []) chosen.delete(each);
    draw();
  };

  for (const button of buttons) button.addEventListener("click", () => act(button.dataset.bulk));
  byId("bulk-all")?.addEventListener("click", () => {
    const names = table.rows.map(nameOf);
    const isAll = names.every((name) => chosen.has(name));
    for (const name of names) if (isAll) chosen.delete(name); else chosen.add(name);
    draw();
  });

  const pick = (name) => el("input", {
    type: "checkbox", "data-pick": name, "aria-label": `Select ${name}`,
    onchange: (event) => { if (event.target.checked) chosen.add(name); else chosen.delete(name); draw(); },
  });
  return {
    columns: bar ? [column("pick", "Select", "pick", (row) => pick(nameOf(row)), {value: (row) => (chosen.has(nameOf(row)) ? 0 : 1)})] : [],
    follow: (shown) => {
      if (!bar) return;
      table = shown;
      const known = new Set(table.all.map(nameOf));
      for (const name of chosen) if (!known.has(name)) chosen.delete(name);
      draw();
    },
  };
};
