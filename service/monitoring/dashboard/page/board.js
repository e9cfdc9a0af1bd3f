// The view of a board: its facts, and panels for the ranking, an owner, the curve and the distribution.

import { AboutPanel } from "./about.js";
import { ask, path, poll } from "./api.js";
import { stateOf, stateTag, timeLeft } from "./board_state.js";
import { CurvePanels } from "./curve.js";
import { AS_TYPED, el, show } from "./dom.js";
import { whole } from "./format.js";
import { heldPosts } from "./held.js";
import { BOARD_POLL_MS, CURVE_OWNERS_MIN } from "./limits.js";
import { boardActions, moderation } from "./acts.js";
import { knownName } from "./names.js";
import { wayBack } from "./overview.js";
import { OwnerPanel } from "./owner_card.js";
import { RankingPanel } from "./ranking.js";
import { toBoard, toBoards } from "./routes.js";
import { empty, fault, loading } from "./tables.js";

/** The view of one board, which starts and stops its panels as the address changes. */
export class BoardView {
  constructor(root, route, signal) {
    this.root = root;
    this.signal = signal;
    this.board = route.board;
    this.title = el("h1", { tabindex: "-1" }, el("bdi", {}, route.board));
    this.state = el("p", { class: "line quiet" }, loading());
    this.about = new AboutPanel(route.board, signal);
    this.columns = el("nav", { class: "tabs", "aria-label": "Ranked columns" });
    this.search = el("div", { class: "search" });
    this.grid = el("div", { class: "grid of-board" });
    this.acts = el("div", {});
    this.ranking = new RankingPanel();
    this.owner = new OwnerPanel();
    this.curves = new CurvePanels();
    const head = el("header", { class: "head split" }, wayBack(), this.title, this.search, this.state);
    show(root, head, this.columns, this.grid, this.acts);
    this.running = {}; // panel name -> {key: what it shows, abort: stops it}
    this.route = route;
    poll(() => this.load(), BOARD_POLL_MS, signal);
  }

  /** Show another column, owner or page of the same board. */
  update(route) {
    const followed = route.parameters.owner && route.parameters.owner !== this.route.parameters.owner;
    this.route = route;
    if (!this.spec) return;
    this.arrange();
    if (followed) this.owner.panel.heading.focus();
  }

  get name() {
    return this.board;
  }

  async load() {
    try {
      const { data } = await ask(path`/v1/leaderboards/${this.board}`, { signal: this.signal });
      if (data.id !== this.board) return void location.replace(toBoard(data.id, this.route.parameters)); // the id was an alias
      const first = !this.spec;
      const changed =
        first || stateOf(this.spec) !== stateOf(data) || tiersOf(this.spec) !== tiersOf(data) || isFew(this.spec) !== isFew(data);
      this.spec = data;
      const entries = `${whole(data.entries)} ${data.entries === 1 ? "entry" : "entries"}`;
      show(this.state, stateTag(data), timeLeft(data), entries);
      this.about.tell(data);
      if (changed) this.arrange();
      this.tellCurve();
      if (this.column && !first) await this.curves.load(this.running.column.abort.signal);
    } catch (error) {
      if (this.signal.aborted) return;
      if (error.code === "unknown_board" && !this.spec) {
        location.replace(toBoards({ contains: this.board, missing: this.board }));
        return;
      }
      if (!this.spec || error.code === "unknown_board") {
        this.stop();
        this.spec = null;
        show(this.state, fault(error));
        show(this.columns);
        show(this.search);
        show(this.grid);
        show(this.acts);
      }
      this.onFault?.(error);
    }
  }

  stop() {
    for (const each of Object.values(this.running)) each.abort.abort();
    this.running = {};
  }

  /** Start the panels that the route asks for, stop panels that have changed, and leave the others running. */
  arrange() {
    const ranked = this.spec.columns.filter((column) => column.sorted);
    const { parameters } = this.route;
    this.column = ranked.find((column) => column.name === parameters.column) ?? ranked[0];
    if (!this.column) {
      show(this.grid, empty("No column of this board is ranked."));
      return;
    }
    const { column, board, spec } = this;
    const owner = parameters.owner ?? "";
    const from = Math.max(1, Math.floor(Number(parameters.from)) || 1);
    const kept = { column: column.name, owner, from: from > 1 ? from : undefined, value: parameters.value };
    this.drawTabs(ranked, kept);
    this.drawSearch(kept);
    this.place(owner !== "");
    this.run("acts", [column.name], () => {
      const deleted = () => location.replace(toBoards());
      const changed = () => this.load();
      const actions = boardActions(board, column.name, { changed, deleted });
      show(this.acts, moderation("board", "Moderate this board", actions), heldPosts(board, spec.columns, changed));
    });
    this.run("column", [column.name, column.tiers], (signal) => {
      const onValue = (value) => (location.hash = toBoard(board, { ...this.route.parameters, column: column.name, value }));
      this.curves.start({ board, column }, signal, onValue);
      this.running.owner?.abort.abort();
      delete this.running.owner; // the new picture lacks the owner's mark, so start the panel again
      delete this.running.value;
      this.tellCurve();
      this.curves.load(signal);
    });
    this.run("value", [parameters.value ?? ""], (signal) => this.curves.rankOf(parameters.value ?? "", signal));
    const view = { board, spec, column, owner, from, parameters: kept };
    this.run("ranking", [column.name, owner, from, stateOf(spec), column.tiers], (signal) => this.ranking.start(view, signal));
    const mark = (position) => this.curves.markOwner(position, knownName(owner) || owner);
    this.run("owner", [column.name, owner, stateOf(spec)], (signal) => (owner ? this.owner.start(view, signal, mark) : mark(null)));
  }

  /** Show the panels that apply. The pictures of a few owners would say less than the table. */
  place(withOwner) {
    const pictures = !isFew(this.spec);
    const now = JSON.stringify([pictures, withOwner]);
    if (this.placed === now && this.grid.hasChildNodes()) return;
    this.placed = now;
    const { curve, spread } = this.curves;
    show(
      this.grid,
      withOwner ? this.owner.panel.section : null,
      this.ranking.panel.section,
      this.about.panel.section,
      pictures ? [curve.section, spread.section] : null,
    );
  }

  run(name, what, start) {
    const key = JSON.stringify(what);
    if (this.running[name]?.key === key) return;
    this.running[name]?.abort.abort();
    const abort = new AbortController();
    this.signal.addEventListener("abort", () => abort.abort(), { signal: abort.signal });
    this.running[name] = { key, abort };
    start(abort.signal);
  }

  tellCurve() {
    if (this.column) this.curves.tellState(this.spec.curves?.[this.column.name], this.spec.predictor.exact_top);
  }

  drawTabs(ranked, kept) {
    const links = ranked.map(({ name, best }) => {
      const href = toBoard(this.board, { ...kept, column: name, from: undefined, value: undefined });
      const isShown = name === this.column.name;
      return el(
        "a",
        { href, "aria-current": isShown ? "page" : null, "data-key": `column:${name}` },
        name,
        el("span", { class: "quiet" }, best === "high" ? " highest first" : " lowest first"),
      );
    });
    show(this.columns, links);
  }

  drawSearch(kept) {
    const input = el("input", {
      id: "find",
      name: "owner",
      type: "search",
      value: kept.owner,
      required: true,
      ...AS_TYPED,
      dir: "auto",
      "data-key": "find",
    });
    const go = (event) => {
      event.preventDefault();
      location.hash = toBoard(this.board, { ...kept, owner: input.value.trim() });
    };
    const label = el("label", { for: "find" }, "Find an owner");
    show(this.search, el("form", { class: "line", role: "search", onsubmit: go }, label, input, el("button", {}, "Show")));
  }
}

function tiersOf(spec) {
  return JSON.stringify(spec.columns.map((column) => column.tiers));
}

function isFew(spec) {
  return spec.entries < CURVE_OWNERS_MIN;
}
