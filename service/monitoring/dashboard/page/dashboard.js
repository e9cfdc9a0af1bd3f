// The frame of the page: chooses the view to show, asks for the API key, and says whether the service answers.

import { Problem, ask, onReach } from "./api.js";
import { BoardView } from "./board.js";
import { BoardsView } from "./boards.js";
import { el, show } from "./dom.js";
import { KeyPanel, hasKey } from "./keys.js";
import { LeagueView } from "./league.js";
import { NodeView } from "./node.js";
import { OwnerBoardsView } from "./owner_boards.js";
import { parse, toBoards } from "./routes.js";

class Nowhere {
  constructor(root) {
    this.name = "Not found";
    this.title = el("h1", { tabindex: "-1" }, "Nothing is at this address");
    show(root, el("header", { class: "head" }, this.title), el("p", {}, el("a", { href: toBoards() }, "All boards")));
  }

  update() {}
}

const VIEWS = { boards: BoardsView, board: BoardView, owner: OwnerBoardsView, league: LeagueView, node: NodeView, nowhere: Nowhere };
const root = document.getElementById("view");
const main = document.getElementById("main");
const connection = document.getElementById("connection");
let current = null; // the shown view: {view, key: its route as text, abort: ends it}

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

function go({ anew = false } = {}) {
  const route = parse(location.hash);
  const key = JSON.stringify([route.view, route.board, route.league, route.owner]);
  if (!anew && current?.key === key) {
    current.view.update(route);
  } else {
    const first = current === null;
    current?.abort.abort();
    const abort = new AbortController();
    const view = new VIEWS[route.view](root, route, abort.signal);
    view.onFault = faulty;
    current = { view, key, abort };
    if (!first && !anew) {
      window.scrollTo(0, 0);
      view.title.focus({ preventScroll: true });
    }
  }
  document.title = `${current.view.name} – rankcurve`;
  for (const [id, shown] of [["nav-boards", route.view !== "node"], ["nav-node", route.view === "node"]]) {
    const link = document.getElementById(id);
    if (shown) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

/** Handle the error of a view: if the service needs a key or another key, ask for it. */
function faulty(error) {
  if (!(error instanceof Problem) || error.status !== 401) return;
  current.abort.abort(); // the view starts again with another key
  if (hasKey()) keys.open(`Another key is needed here: ${error.message}.`);
  else keys.open("A key is needed here.", ""); // not shown as a fault, because no key was refused
}

onReach((reachable) => {
  connection.textContent = reachable ? "" : "The service does not answer; trying again …";
  connection.className = `state ${reachable ? "" : "away"}`;
});

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the link must not change the hash, because the hash is the route
  main.focus();
});
window.addEventListener("hashchange", () => go());
go();
