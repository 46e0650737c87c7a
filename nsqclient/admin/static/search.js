// A search field: "/" focuses it, Escape empties it, the address keeps its text.
import {byId, el} from "./dom.js";

export const setUpSearch = (onSearch) => {
  const field = byId("search");
  const url = new URL(location.href);
  field.value = url.searchParams.get("search") || "";
  const changed = () => {
    if (field.value) url.searchParams.set("search", field.value);
    else url.searchParams.delete("search");
    history.replaceState(null, "", url);
    onSearch();
  };
  field.addEventListener("input", changed);
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select, dialog");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      field.focus();
    } else if (event.key === "Escape" && event.target === field && field.value) {
      field.value = "";
      changed();
    }
  });
  return {
    words: () => field.value.toLowerCase().split(/\s+/).filter(Boolean),
    // What an empty table says: that nothing matches, or what it says without a search.
    nothing(noun, ...without) {
      if (!this.words().length) return without;
      const clear = () => { field.value = ""; changed(); field.focus(); };
      return [el("strong", {}, `No ${noun} matches`), el("p", {}, "Try fewer words, or ", el("button", {type: "button", onclick: clear}, "clear the search"))];
    },
  };
};

export const matches = (text, words) => words.every((word) => text.toLowerCase().includes(word));
