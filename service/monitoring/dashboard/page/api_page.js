// The script of the API page at /docs: opens the request that the address names, and searches requests by words.

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

function openAll(open) {
  for (const each of operations) if (!each.hidden) each.open = open;
}

document.getElementById("search").hidden = false; // the field is hidden in the HTML, because it does nothing without scripts
document.getElementById("search").addEventListener("submit", (event) => event.preventDefault());
find.addEventListener("input", filter);
document.getElementById("open-all").addEventListener("click", () => openAll(true));
document.getElementById("close-all").addEventListener("click", () => openAll(false));
addEventListener("hashchange", openNamed);
openNamed();
