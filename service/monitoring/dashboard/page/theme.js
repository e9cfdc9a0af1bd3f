// Sets the light or dark theme before the first paint. It is no module, because modules run after that.
"use strict";
(() => {
  const NAMES = ["auto", "light", "dark"];
  const STORED_AS = "rankcurve-theme";
  const root = document.documentElement;

  function stored() {
    try {
      return localStorage.getItem(STORED_AS);
    } catch {
      return null; // the browser has no storage, so the choice lasts until the page is left
    }
  }

  function apply(name) {
    if (name === "auto") delete root.dataset.theme;
    else root.dataset.theme = name;
  }

  let theme = NAMES.includes(stored()) ? stored() : "auto";
  apply(theme);

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme-button");
    const label = () => (button.textContent = `Theme: ${theme}`);
    label();
    button.addEventListener("click", () => {
      theme = NAMES[(NAMES.indexOf(theme) + 1) % NAMES.length];
      apply(theme);
      label();
      try {
        localStorage.setItem(STORED_AS, theme);
      } catch {
        // without storage, the choice lasts until the page is left
      }
    });
  });
})();
