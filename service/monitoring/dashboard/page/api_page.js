// The script of the API page at /docs: opens the request that the address names, and searches requests by words.

import { el } from "./dom.js";
import { keyHeader } from "./keys.js";

const ANSWER_CHARS_MAX = 20_000;
const operations = [...document.querySelectorAll(".operation")];
const words = new Map(operations.map((each) => [each, `${each.id} ${each.querySelector("summary").textContent}`.toLowerCase()]));
const find = document.getElementById("find");
const found = document.getElementById("found");

/** Open the request that the hash of the address names, and scroll to it. */
function openNamed() {
  const named = document.getElementById(location.hash.slice(1));
  if (!named?.classList.contains("operation")) return;
  named.open = true;
  named.scrollIntoView();
}

/** Show only the requests that contain every word of the search. */
function filter() {
  const wanted = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const each of operations) each.hidden = !wanted.every((word) => words.get(each).includes(word));
  for (const section of new Set(operations.map((each) => each.parentElement)))
    section.hidden = ![...section.querySelectorAll(".operation")].some((each) => !each.hidden);
  const count = operations.filter((each) => !each.hidden).length;
  found.textContent = wanted.length === 0 ? "" : `${count} of ${operations.length} requests`;
}

/** Give a request that only reads a field with its address, and a button that sends it with the key of this tab. */
function offerToSend(operation) {
  const command = operation.querySelector("pre");
  const [, example] = command.textContent.match(/^curl "\$URL(\/(?:v1|healthz|readyz|metrics|openapi)[^"]*)"$/) ?? [];
  if (!example || example.endsWith("/stream")) return; // a stream never ends
  const field = el("input", {
    value: example,
    "aria-label": `Address of ${operation.id}`,
    autocomplete: "off",
    spellcheck: "false",
    class: "address",
  });
  const answer = el("pre", { tabindex: "0", role: "status", "aria-label": `Answer of ${operation.id}`, hidden: true });
  const send = async (event) => {
    event.preventDefault();
    answer.hidden = false;
    answer.textContent = "…";
    try {
      const response = await fetch(field.value, { headers: keyHeader(), credentials: "omit", redirect: "error" });
      const text = await response.text();
      const isJson = /^application\/(problem\+)?json/.test(response.headers.get("Content-Type"));
      answer.textContent = `${response.status}\n${isJson ? JSON.stringify(JSON.parse(text), null, 2) : text}`.slice(0, ANSWER_CHARS_MAX);
    } catch {
      answer.textContent = "The service does not answer.";
    }
  };
  command.after(el("form", { class: "line", onsubmit: send }, field, el("button", {}, "Send")), answer);
}

function openAll(open) {
  for (const each of operations) if (!each.hidden) each.open = open;
}

document.getElementById("search").hidden = false; // the field is hidden in the HTML, because it does nothing without scripts
document.getElementById("search").addEventListener("submit", (event) => event.preventDefault());
find.addEventListener("input", filter);
document.getElementById("open-all").addEventListener("click", () => openAll(true));
document.getElementById("close-all").addEventListener("click", () => openAll(false));
operations.forEach(offerToSend);
addEventListener("hashchange", openNamed);
openNamed();
