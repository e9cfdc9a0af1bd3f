// The panels about a column's curve: its accuracy and picture, the rank of any value, and the distribution of values.

import { Problem, ask, path } from "./api.js";
import { forValues } from "./axes.js";
import { drawCurve, frame, hover, reading } from "./curve_chart.js";
import { el, facts, panel, show } from "./dom.js";
import { age, moment, percent, rankNodes, rankText, stored, whole } from "./format.js";
import { binTable, binsOf, drawBins } from "./histogram.js";
import { BINS, TABLE_KNOTS_MAX } from "./limits.js";
import { Shape } from "./shape.js";
import { empty, fault, loading, numeric, table } from "./tables.js";
import { loadBands, tellBands } from "./tiers.js";

const WIDTH_MIN = 280;

/** Two panels that show the same curve document: the curve and the distribution of values. */
export class CurvePanels {
  constructor() {
    this.curve = panel("curve", "Rank curve");
    this.spread = panel("spread", "Distribution");
    this.about = el("div", {});
    this.picture = el("div", { class: "picture" });
    this.readout = el("output", { class: "readout quiet", id: "curve-readout" });
    this.pointer = slider("curve-pointer", "Read the curve from left to right", (share) => this.readShare(share));
    this.binReadout = el("output", { class: "readout quiet", id: "spread-readout" });
    this.binPointer = slider("spread-pointer", "Read the distribution from left to right", (share) => this.readBin(share));
    this.bars = el("div", { class: "picture" });
    this.knots = el("div", {});
    this.valueForm = el("div", { class: "stack" });
    this.zoom = el("button", { type: "button", "aria-pressed": "false", onclick: () => this.toggleZoom() }, "Zoom to the mark");
    this.curve.aside.append(this.zoom);
    this.curve.body.append(this.about, this.picture, this.pointer, this.readout, this.valueForm, this.knots);
    this.binRows = el("div", {});
    this.tierLimits = el("p", { class: "quiet", id: "tiers" });
    this.spread.body.append(this.bars, this.binPointer, this.binReadout, this.tierLimits, this.binRows);
    for (const [picture, read] of [[this.picture, (share) => this.readShare(share)], [this.bars, (share) => this.readBin(share)]]) {
      picture.addEventListener("pointermove", (event) => read(shareOf(event, picture)));
      picture.addEventListener("pointerleave", () => read(null));
    }
    this.resized = new ResizeObserver(() => this.draw());
    this.clear();
  }

  clear() {
    this.shape = null;
    this.etag = null;
    this.bins = null;
    this.bands = []; // of the column's tiers
    this.owner = null;
    this.asked = null;
    this.zoomed = false;
    this.width = 0;
  }

  /** Show empty panels for `{board, column}`; `load` fills them. `onValue` is called with a value that users enter. */
  start(view, signal, onValue) {
    this.clear();
    this.view = view;
    this.curve.heading.textContent = `Rank curve of ${view.column.name}`;
    this.spread.heading.textContent = `Distribution of ${view.column.name}`;
    show(this.about);
    show(this.picture, loading());
    this.pointer.hidden = this.binPointer.hidden = this.zoom.hidden = true;
    this.binScale = null;
    show(this.binRows);
    show(this.tierLimits);
    show(this.knots);
    show(this.bars, loading());
    this.askForm(onValue);
    this.resized.observe(this.picture);
    signal.addEventListener("abort", () => this.resized.disconnect());
  }

  /** Show the curve's state, which is part of the board's document: age, method, bound. */
  tellState(state, exactTop) {
    if (!state) {
      show(this.about);
      return;
    }
    show(this.about, aboutCurve(state, exactTop));
  }

  /** Ask for the curve's document. If it has changed, draw the curve again. */
  async load(signal) {
    const { board, column } = this.view;
    try {
      const target = path`/v1/leaderboards/${board}/rankings/${column.name}/curve`;
      const { data, etag } = await ask(target, { signal });
      if (signal.aborted || (etag !== null && etag === this.etag)) return;
      this.etag = etag;
      this.shape = new Shape(data);
      this.redraw();
      show(this.knots, knotTable(this.shape, column));
      await this.addBands(this.shape.total, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && error.code === "no_curve") await this.without(signal);
      else if (!this.shape) show(this.picture, fault(error));
    }
  }

  async without(signal) {
    const { board, column } = this.view;
    this.shape = null;
    show(this.knots);
    show(this.picture, empty("No curve yet: ranks of this column are counted, so each of them is exact."));
    try {
      const target = path`/v1/leaderboards/${board}/rankings/${column.name}/buckets`;
      const { data } = await ask(`${target}?buckets=${BINS}&rank=estimate`, { signal });
      this.bins = data.buckets.map(({ from, to, entries }) => ({ from: Number(from), to: Number(to), entries }));
      this.redraw();
      await this.addBands(this.bins.reduce((sum, bin) => sum + bin.entries, 0), signal);
    } catch (error) {
      if (!signal.aborted) show(this.bars, fault(error));
    }
  }

  /** Find which values the tiers of the column have, and draw these bands behind the distribution. */
  async addBands(total, signal) {
    const { board, column } = this.view;
    if (!column.tiers) return;
    this.bands = await loadBands(board, column, total, signal);
    if (!signal.aborted) this.redraw();
  }

  /** Mark an owner's position in the picture, or no position if it is null. */
  markOwner(position, label) {
    this.owner = position === null ? null : { ...position, value: Number(position.value), label };
    this.redraw();
  }

  toggleZoom() {
    this.zoomed = !this.zoomed;
    this.redraw();
  }

  redraw() {
    this.width = 0;
    this.draw();
  }

  draw() {
    const width = Math.max(WIDTH_MIN, Math.floor(this.picture.clientWidth || this.bars.clientWidth));
    if (width === this.width) return;
    this.width = width;
    this.binPointer.hidden = !(this.shape ? this.shape.values : this.bins)?.length;
    this.pointer.hidden = this.zoom.hidden = !this.shape || this.binPointer.hidden;
    if (this.shape) this.drawShape(width);
    else if (this.bins) this.drawCounted(width);
  }

  drawShape(width) {
    const { column } = this.view;
    const { shape } = this;
    if (!shape.values.length) {
      show(this.picture, empty("Nobody is ranked in this column yet."));
      show(this.bars, empty("No values yet."));
      return;
    }
    const marked = [this.owner, this.asked].filter(Boolean);
    this.zoom.hidden = marked.length === 0;
    const zoomed = this.zoomed && marked.length ? marked[0].value : null;
    this.zoom.setAttribute("aria-pressed", String(zoomed !== null));
    this.frame = frame(shape, width, zoomed);
    show(this.picture, drawCurve(shape, this.frame, marked, { label: this.describe(marked), scale: column.scale }));
    const x = frame(shape, width).x;
    const bins = binsOf(shape, x);
    this.showBins(bins, x, width, true);
  }

  showBins(bins, x, width, estimated) {
    const { column } = this.view;
    this.drawnBins = bins;
    this.binScale = x;
    const limits = tellBands(this.bands, column);
    show(this.bars, drawBins(bins, x, width, `${spreadLabel(bins, column)} ${limits}`.trim(), column, this.bands));
    show(this.tierLimits, limits);
    show(this.binRows, binTable(bins, column.scale, estimated));
  }

  drawCounted(width) {
    const { column } = this.view;
    if (!this.bins.length) {
      show(this.bars, empty("No values yet."));
      return;
    }
    const domain = [this.bins[0].from, this.bins[this.bins.length - 1].to];
    const x = forValues(domain[0] < domain[1] ? domain : [domain[0], domain[0] + 1], [52, width - 12], (domain[0] + domain[1]) / 2);
    this.showBins(this.bins, x, width, false);
  }

  describe(marked) {
    const { column } = this.view;
    const { shape } = this;
    const [least, most] = shape.range();
    const whose = marked.map((each) => `${each.label} with ${stored(each.value, column.scale)}: rank ${rankText(each)}.`);
    return [
      `Rank by value in ${column.name}: ${whole(shape.values.length)} knots from ${stored(least, column.scale)} to`,
      `${stored(most, column.scale)}, ${whole(shape.total)} ranked; ${column.best === "high" ? "higher" : "lower"} is better.`,
      ...whose,
    ].join(" ");
  }

  /** Show the value, rank and bracket at `share` (0 to 1) of the picture's width, or nothing if `share` is null. */
  readShare(share) {
    const known = share !== null && this.shape && this.frame && this.shape.values.length;
    this.readout.textContent = known ? reading(this.shape, this.frame, share * this.width, this.view.column.scale) : "";
    const clamped = (x) => Math.min(Math.max(share * this.width, x.at(x.domain[0])), x.at(x.domain[1]));
    const value = known ? this.frame.x.back(clamped(this.frame.x)) : null;
    hover(this.picture, value === null ? null : [this.frame.x.at(value), this.frame.y.at(this.shape.at(value).rank)]);
  }

  /** Show the values and the owners of the bar at `share` (0 to 1) of the picture's width, or nothing if it is null. */
  readBin(share) {
    const bin = share === null || !this.binScale ? null : binAt(this.drawnBins, this.binScale.back(share * this.width));
    const { scale } = this.view?.column ?? {};
    hover(this.bars, bin ? [(this.binScale.at(bin.from) + this.binScale.at(bin.to)) / 2, null] : null);
    const best = bin && this.shape ? this.shape.at(this.shape.high ? bin.to : bin.from) : null;
    const rank = best ? `, ranks from ${rankText({ ...best, exact: best.low === best.high })}` : "";
    this.binReadout.textContent = bin
      ? `${stored(bin.from, scale)} to ${stored(bin.to, scale)}: ${this.shape ? "≈ " : ""}${whole(bin.entries)} owners${rank}`
      : "";
  }

  askForm(onValue) {
    const { column } = this.view;
    this.input = el("input", { id: "value", name: "value", inputmode: "decimal", required: true, autocomplete: "off" });
    const go = (event) => {
      event.preventDefault();
      onValue(this.input.value.trim());
    };
    this.answer = el("p", { class: "answer", role: "status" });
    const share = el("input", { id: "share", type: "number", min: 0, max: 100, step: "any", required: true, inputmode: "decimal" });
    this.shareAnswer = el("p", { class: "answer", role: "status" });
    const find = (event) => {
      event.preventDefault();
      this.valueOf(Number(share.value));
    };
    show(
      this.valueForm,
      el(
        "form",
        { class: "line", onsubmit: go },
        el("label", { for: "value" }, `Rank of a value of ${column.name}`),
        this.input,
        el("button", {}, "Ask"),
      ),
      this.answer,
      el(
        "form",
        { class: "line", onsubmit: find },
        el("label", { for: "share" }, `${column.name} of the best … %`),
        share,
        el("button", {}, "Find"),
      ),
      this.shareAnswer,
    );
  }

  /** Show the value that the best `share` percent of the owners reach. */
  async valueOf(share) {
    const { board, column } = this.view;
    try {
      const target = path`/v1/leaderboards/${board}/rankings/${column.name}/values`;
      const { data } = await ask(`${target}?${new URLSearchParams({ percentiles: 100 - share })}`, {});
      const [{ value, low, high, exact }] = data.values;
      const bracket = exact ? "" : `, between ${stored(low, column.scale)} and ${stored(high, column.scale)}`;
      const reach = column.best === "high" ? "or more" : "or less";
      show(
        this.shareAnswer,
        value === null
          ? "Nobody is ranked."
          : `The best ${share} % have ${exact ? "" : "≈ "}${stored(value, column.scale)} ${reach}${bracket}.`,
      );
    } catch (error) {
      show(this.shareAnswer, fault(error));
    }
  }

  /** Ask the service for the rank of a value, then show and mark the rank. An empty value removes the mark. */
  async rankOf(value, signal) {
    const { board, column } = this.view;
    this.asked = null;
    this.input.value = value;
    this.redraw();
    show(this.answer);
    if (!value) return;
    try {
      const target = path`/v1/leaderboards/${board}/rankings/${column.name}/positions`;
      const { data } = await ask(`${target}?${new URLSearchParams({ values: value })}`, { signal });
      const [position] = data.positions;
      show(this.answer, `${stored(position.value, column.scale)} has rank `, ...rankNodes(position), ` of ${whole(position.total)}.`);
      this.asked = { ...position, value: Number(position.value), label: "this value" };
      this.redraw();
    } catch (error) {
      if (!signal.aborted) show(this.answer, fault(error));
    }
  }
}

/** Return a labelled slider that reads a picture from left to right, for users without a mouse. */
function slider(id, label, read) {
  const input = el("input", { id, type: "range", min: 0, max: 100, value: 50 });
  const tell = () => read(input.value / 100);
  input.addEventListener("input", tell);
  input.addEventListener("focus", tell);
  input.addEventListener("blur", () => read(null));
  return el("label", { class: "reader", hidden: true }, label, input);
}

/** Return the position of the pointer over a picture, as a share (0 to 1) of the picture's width. */
function shareOf(event, picture) {
  const box = picture.getBoundingClientRect();
  return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
}

function binAt(bins, value) {
  return bins.find(({ from, to }) => value >= from && value < to) ?? bins[bins.length - 1] ?? null;
}

function aboutCurve(state, exactTop) {
  const measured =
    state.certificate === null
      ? "The widest bracket of an estimate; the error of a sampled curve is not measured"
      : "Measured when the curve was fitted, and widened by the changes since";
  return facts([
    ["As of", el("span", { title: state.as_of }, `${age(state.age_seconds)} ago`), "The moment that estimated ranks are about"],
    ["Off by at most", mostError(state, exactTop), `Ranks up to that one are counted. ${measured}`],
    [
      "Follows posts",
      state.live ? "yes" : "no",
      state.live
        ? `${whole(state.moves)} values have changed since it was fitted`
        : "Until it is fitted again, ranks are those of the moment above",
    ],
    [
      "Fitted from",
      state.method === "scan" ? "every value" : `${whole(state.knots)} counted values`,
      `It knows the exact rank of ${whole(state.knots)} values`,
    ],
  ]);
}

/** Return the largest error as text. The certificate is not shown, because it would include the counted ranks. */
function mostError(state, exactTop) {
  return state.total <= exactTop ? "nothing, every rank is counted" : `${percent(state.bound)} past rank ${whole(exactTop)}`;
}

function knotTable(shape, column) {
  const count = shape.values.length;
  const step = Math.max(1, Math.ceil(count / TABLE_KNOTS_MAX));
  const rows = [];
  for (let index = 0; index < count; index += step) {
    rows.push([whole(shape.ranks[index]), stored(shape.document.knots[index].value, column.scale), whole(shape.ties[index])]);
  }
  const columns = [numeric("Rank"), numeric("Value"), numeric("Owners with it")];
  const which = step === 1 ? "All knots" : `One of every ${step} of ${whole(count)} knots`;
  const as = el("span", {}, `${which}, as of `, moment(shape.document.as_of));
  return el(
    "details",
    {},
    el("summary", { "data-key": "knots" }, "The curve as a table"),
    el("p", { class: "quiet" }, as),
    table("Knots of the curve", columns, rows),
  );
}

function spreadLabel(bins, column) {
  const fullest = bins.reduce((most, bin) => (bin.entries > most.entries ? bin : most), bins[0]);
  const range = `${stored(fullest.from, column.scale)} and ${stored(fullest.to, column.scale)}`;
  return `Owners by value of ${column.name}. Most, ${whole(fullest.entries)}, have between ${range}.`;
}
