// The frame of the page: loads and shows the view that the address names, asks for the API key, and says whether the
// service answers. A view is loaded when it is shown first, so that the first view needs few files.

import { Away, Problem, ask, onReach, poll } from "./api.js";
import { el, show } from "./dom.js";
import { KeyPanel, hasKey } from "./keys.js";
import { STREAM_RETRY_MS, VIEWS_LOAD_MS } from "./limits.js";
import { parse, toBoards } from "./routes.js";
import { Search } from "./search.js";
import { fault } from "./tables.js";

class Nowhere {
  constructor(root) {
    this.name = "Not found";
    this.title = el("h1", { tabindex: "-1" }, "Nothing is at this address");
    show(root, el("header", { class: "head" }, this.title), el("p", {}, el("a", { href: toBoards() }, "Overview")));
  }
}

const VIEWS = {
  boards: async () => (await import("./overview.js")).Overview,
  board: async () => (await import("./board.js")).BoardView,
  family: async () => (await import("./family.js")).FamilyView,
  owner: async () => (await import("./owner.js")).OwnerView,
  league: async () => (await import("./league.js")).LeagueView,
  moderation: async () => (await import("./moderation.js")).ModerationView,
  node: async () => (await import("./node.js")).NodeView,
  nowhere: async () => Nowhere,
};
const NAVIGATION = { moderation: "nav-moderation", node: "nav-node" }; // any other view belongs to the overview
const root = document.getElementById("view");
const main = document.getElementById("main");
const connection = document.getElementById("connection");
const menu = document.getElementById("menu-button");
let current = null; // the shown view: {view: null until it is loaded, key: its route as text, abort: ends it}

const keys = new KeyPanel(document.getElementById("key-panel"), document.getElementById("key-button"), {
  test: async () => {
    try {
      await ask("/v1/leaderboards?limit=1");
      return "";
    } catch (error) {
      return error instanceof Problem && error.status !== 401 ? "" : `This key was refused: ${error.message}`;
    }
  },
  changed: () => go({ anew: true }),
});

async function go({ anew = false } = {}) {
  const route = parse(location.hash);
  const key = JSON.stringify([route.view, route.board, route.league, route.family, route.owner]);
  fold(true);
  for (const id of ["nav-boards", "nav-moderation", "nav-node"]) {
    const link = document.getElementById(id);
    if (id === (NAVIGATION[route.view] ?? "nav-boards")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!anew && current?.key === key) {
    current.view?.update?.(route);
  } else {
    const first = current === null;
    current?.abort.abort();
    const now = { view: null, key, abort: new AbortController() };
    current = now;
    const View = await VIEWS[route.view]().catch(() => null);
    if (current !== now) return;
    if (View === null) return void waitForFiles(now);
    now.view = new View(root, parse(location.hash), now.abort.signal);
    now.view.onFault = faulty;
    if (!first && !anew) {
      window.scrollTo(0, 0);
      now.view.title.focus({ preventScroll: true });
    }
  }
  if (current.view) document.title = `${current.view.name} – rankcurve`;
}

/** Say that the files of a view can't be had, and load the page again when the service answers. */
async function waitForFiles({ abort: { signal } }) {
  show(root, fault(new Away()));
  await poll(() => ask("/healthz", { signal }).then(() => location.reload(), () => {}), STREAM_RETRY_MS, signal);
}

/** Handle the error of a view: if the service needs a key or another key, ask for it. */
function faulty(error) {
  if (!(error instanceof Problem) || error.status !== 401) return;
  current.abort.abort(); // the view starts again with another key
  if (hasKey()) keys.open(`Another key is needed here: ${error.message}.`);
  else keys.open("A key is needed here.", ""); // not shown as a fault, because no key was refused
}

/** Fold or unfold the menu, which only phones fold. */
function fold(folded) {
  menu.setAttribute("aria-expanded", String(!folded));
}

onReach((reachable) => {
  connection.textContent = reachable ? "" : "The service does not answer; trying again …";
  connection.className = `state ${reachable ? "" : "away"}`;
});

new Search(document.getElementById("search"));
menu.addEventListener("click", () => fold(menu.getAttribute("aria-expanded") === "true"));
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the link must not change the hash, because the hash is the route
  main.focus();
});
window.addEventListener("hashchange", () => go());
setTimeout(() => Object.values(VIEWS).map((load) => load().catch(() => {})), VIEWS_LOAD_MS); // so that other views come at once
go();
