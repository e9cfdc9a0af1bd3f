// The view of a board: its facts, and panels for the ranking, an owner, the curve and the distribution.

import { ask, path, poll } from "./api.js";
import { CurvePanels } from "./curve.js";
import { el, facts, named, show } from "./dom.js";
import { moment, whole } from "./format.js";
import { heldPosts } from "./held.js";
import { BOARD_POLL_MS } from "./limits.js";
import { boardActions, moderation } from "./moderation.js";
import { knownName } from "./names.js";
import { OwnerPanel } from "./owner.js";
import { RankingPanel, tiesOf } from "./ranking.js";
import { toBoard, toBoards, toFamily } from "./routes.js";
import { empty, fault, loading } from "./tables.js";

const WIDE = "(min-width: 62rem)"; // the same width as in parts.css

/** The view of one board, which starts and stops its panels as the address changes. */
export class BoardView {
  constructor(root, route, signal) {
    this.root = root;
    this.signal = signal;
    this.board = route.board;
    this.title = el("h1", { tabindex: "-1" }, el("bdi", {}, route.board));
    this.about = el("div", {}, loading());
    this.columns = el("nav", { class: "tabs", "aria-label": "Ranked columns" });
    this.search = el("div", { class: "search" });
    this.grid = el("div", { class: "grid" });
    this.acts = el("div", {});
    this.ranking = new RankingPanel();
    this.owner = new OwnerPanel();
    this.curves = new CurvePanels();
    show(
      root,
      el("header", { class: "head split" }, el("p", { class: "crumbs" }, el("a", { href: toBoards() }, "Overview")), this.title, this.search, this.about),
      this.columns,
      this.grid,
      this.acts,
    );
    this.wide = matchMedia(WIDE);
    this.wide.addEventListener("change", () => this.spec && this.arrange(), { signal });
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
      const changed = first || stage(this.spec) !== stage(data) || tiersOf(this.spec) !== tiersOf(data);
      this.spec = data;
      show(this.about, aboutBoard(data));
      if (changed) this.arrange();
      this.tellCurve();
      if (this.column && !first) await this.curves.load(this.running.column.abort.signal);
    } catch (error) {
      if (this.signal.aborted) return;
      if (error.code === "unknown_board" && !this.spec) return void location.replace(toBoards({ contains: this.board, missing: this.board }));
      if (!this.spec || error.code === "unknown_board") {
        this.stop();
        this.spec = null;
        show(this.about, fault(error));
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
      show(this.acts, moderation("board", "Moderate this board", boardActions(board, column.name, { changed, deleted })), heldPosts(board, column.name, changed));
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
    this.run("ranking", [column.name, owner, from, stage(spec)], (signal) => this.ranking.start(view, signal, () => {}));
    const mark = (position) => this.curves.markOwner(position, knownName(owner) || owner);
    this.run("owner", [column.name, owner, stage(spec)], (signal) => (owner ? this.owner.start(view, signal, mark) : mark(null)));
  }

  /** Put the panels into one column or two. Screen readers and the Tab key follow the order in which they are seen. */
  place(withOwner) {
    const now = JSON.stringify([this.wide.matches, withOwner]);
    if (this.placed === now && this.grid.hasChildNodes()) return;
    this.placed = now;
    const owner = withOwner ? this.owner.panel.section : null;
    const { curve, spread } = this.curves;
    const ranking = this.ranking.panel.section;
    if (!this.wide.matches) show(this.grid, owner, ranking, curve.section, spread.section);
    else show(this.grid, owner, column(ranking), column(curve.section, spread.section));
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
    const links = ranked.map(({ name, best }) =>
      el(
        "a",
        {
          href: toBoard(this.board, { ...kept, column: name, from: undefined, value: undefined }),
          "aria-current": name === this.column.name ? "page" : null,
          "data-key": `column:${name}`,
        },
        name,
        el("span", { class: "quiet" }, best === "high" ? " highest first" : " lowest first"),
      ),
    );
    show(this.columns, links);
  }

  drawSearch(kept) {
    const input = el("input", { id: "find", name: "owner", type: "search", value: kept.owner, required: true, autocomplete: "off", autocapitalize: "off", spellcheck: "false", dir: "auto", "data-key": "find" });
    const go = (event) => {
      event.preventDefault();
      location.hash = toBoard(this.board, { ...kept, owner: input.value.trim() });
    };
    show(this.search, el("form", { class: "line", role: "search", onsubmit: go }, el("label", { for: "find" }, "Find an owner"), input, el("button", {}, "Show")));
  }
}

function column(...sections) {
  return el("div", { class: "column" }, sections);
}

function tiersOf(spec) {
  return JSON.stringify(spec.columns.map((column) => column.tiers));
}

function stage(spec) {
  return spec.archived ? "archived" : spec.closed ? "closed, final" : "open";
}

/** Return how equal values are ranked, as text. */
function equals(spec) {
  const { tied, timed } = tiesOf(spec);
  const told = [tied.length && `are ordered by ${tied.map(({ name }) => name).join(", ")}`, timed && "the one reached first is better"];
  return told.filter(Boolean).join(", then ") || "share a rank";
}

function aboutBoard(spec) {
  const family = spec.id.includes(":") ? spec.id.split(":")[0] : null;
  return facts([
    ["Entries", whole(spec.entries)],
    ["State", stage(spec)],
    spec.opens_at && ["Opens", moment(spec.opens_at)],
    spec.closes_at && ["Closes", moment(spec.closes_at)],
    ["Equal values", equals(spec)],
    ["Always exact", `ranks up to ${whole(spec.predictor.exact_top)}`, "Further ranks are counted or estimated, and each says which"],
    ["Created", moment(spec.created_at)],
    family && ["Family", el("a", { href: toFamily(family), "data-key": "family" }, named(family))],
  ]);
}
