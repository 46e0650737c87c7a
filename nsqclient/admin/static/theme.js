// Sets the theme before the first paint: the user's choice, else the system's.
(function () {
  "use strict";
  const root = document.documentElement;
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => { try { return localStorage.getItem("nsq-theme"); } catch { return null; } };
  const apply = () => { root.dataset.theme = chosen() || (prefersDark.matches ? "dark" : "light"); };
  apply();
  prefersDark.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", () => {
      const next = root.dataset.theme === "dark" ? "light" : "dark";
      // A choice that equals the system's follows the system again.
      try {
        if (next === (prefersDark.matches ? "dark" : "light")) localStorage.removeItem("nsq-theme");
        else localStorage.setItem("nsq-theme", next);
      } catch { /* no storage: it lasts until the next page */ }
      root.dataset.theme = next;
    });
  });
})();
