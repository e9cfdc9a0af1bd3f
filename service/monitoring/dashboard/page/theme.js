// Light or dark, before the first paint: the one script that is no module, so that the page never flashes.
"use strict";
(() => {
  const NAMES = ["auto", "light", "dark"];
  const STORED_AS = "rankcurve-theme";
  const root = document.documentElement;

  function stored() {
    try {
      return localStorage.getItem(STORED_AS);
    } catch {
      return null; // storage is off: the choice lasts as long as the page
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
    const label = () => {
      const word = document.createElement("span");
      word.className = "theme-word";
      word.textContent = "Theme: ";
      const sign = document.createElement("span");
      sign.className = "theme-sign";
      sign.setAttribute("aria-hidden", "true");
      sign.textContent = "◐ ";
      button.replaceChildren(sign, word, theme);
    };
    label();
    button.addEventListener("click", () => {
      theme = NAMES[(NAMES.indexOf(theme) + 1) % NAMES.length];
      apply(theme);
      label();
      try {
        localStorage.setItem(STORED_AS, theme);
      } catch {
        // as above
      }
    });
  });
})();
