// Colours: as the system has them, or as chosen here and kept for the next visit. In the head, so that nothing flashes.
"use strict";
(() => {
  const root = document.documentElement;
  const kept = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const apply = (theme) => {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  apply(kept());
  addEventListener("DOMContentLoaded", () => {
    const choice = document.getElementById("theme");
    choice.value = root.dataset.theme ?? "auto";
    choice.addEventListener("change", () => {
      apply(choice.value);
      try { localStorage.setItem("theme", choice.value); } catch { /* private windows keep nothing */ }
    });
  });
})();
