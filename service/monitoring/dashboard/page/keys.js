// The user's API key. It is kept in the session's storage only, so the browser deletes it when the tab is closed.

import { AS_TYPED, el } from "./dom.js";

const STORED_AS = "rankcurve-key";
let held = read();

function read() {
  try {
    return sessionStorage.getItem(STORED_AS) ?? "";
  } catch {
    return ""; // the browser has no storage, so the key lasts until the page is left
  }
}

function keep(key) {
  held = key;
  try {
    if (key) sessionStorage.setItem(STORED_AS, key);
    else sessionStorage.removeItem(STORED_AS);
  } catch {
    // without storage, the key is in `held` only
  }
}

/** Return the header that sends the key, or no header if there is no key. */
export function keyHeader() {
  return held ? { Authorization: `Bearer ${held}` } : {};
}

/** Return whether there is a key to send. */
export function hasKey() {
  return held !== "";
}

/** The key's form. `test` returns what is wrong with the current key, or "". `changed` is called after changes. */
export class KeyPanel {
  constructor(section, button, { test, changed }) {
    this.section = section;
    this.button = button;
    this.test = test;
    this.changed = changed;
    const plain = { ...AS_TYPED, required: true };
    this.input = el("input", { id: "key-input", type: "password", ...plain, "aria-describedby": "key-hint key-fault" });
    this.fault = el("p", { id: "key-fault", class: "fault", role: "alert" });
    this.forget = el("button", { type: "button", onclick: () => this.drop() }, "Forget the key");
    const close = el("button", { type: "button", onclick: () => this.close() }, "Close");
    section.replaceChildren(
      el("h2", { id: "key-title" }, "API key"),
      el(
        "form",
        { class: "line", onsubmit: (event) => this.submit(event) },
        el("label", { for: "key-input" }, "Key"),
        this.input,
        el("button", { type: "submit", class: "primary" }, "Use this key"),
        this.forget,
        close,
      ),
      el(
        "p",
        { id: "key-hint", class: "quiet" },
        "It is kept in this tab only and forgotten with it. ",
        "Boards need the role reader, the node’s health the role ops.",
      ),
      this.fault,
    );
    button.addEventListener("click", () => (section.hidden ? this.open("") : this.close()));
    this.label();
  }

  label() {
    this.button.textContent = held ? "Key: set" : "Key";
    this.forget.hidden = !held;
    this.button.setAttribute("aria-expanded", String(!this.section.hidden));
  }

  /** Open the form. `fault` says why a key is needed, and `look` is the CSS class of this text. */
  open(fault, look = "fault") {
    const wasHidden = this.section.hidden;
    this.section.hidden = false;
    this.fault.textContent = fault;
    this.fault.className = look;
    this.label();
    if (wasHidden) this.input.focus();
  }

  close() {
    this.section.hidden = true;
    this.input.value = "";
    this.fault.textContent = "";
    this.label();
    this.button.focus();
  }

  async submit(event) {
    event.preventDefault();
    const before = held;
    keep(this.input.value.trim());
    const fault = await this.test();
    if (fault) {
      keep(before);
      this.open(fault);
      this.input.select();
      return;
    }
    this.close();
    this.changed();
  }

  drop() {
    keep("");
    this.close();
    this.changed();
  }
}
