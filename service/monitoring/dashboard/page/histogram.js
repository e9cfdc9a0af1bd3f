// Draws how many owners have which values. The numbers come from the curve or, if there is no curve, from the service.

import { marks } from "./axes.js";
import { below } from "./curve_chart.js";
import { el, svg } from "./dom.js";
import { stored, tick, whole } from "./format.js";
import { BINS } from "./limits.js";
import { numeric, table } from "./tables.js";
import { drawBands } from "./tiers.js";

const HEIGHT = 180;
const EDGE = { top: 12, right: 12, bottom: 36, left: 52 };

/** Return bins of a curve, equally wide in pixels: [{from, to, entries}]. A value equal to `to` is in the next bin. */
export function binsOf(shape, x) {
  const [from, to] = x.domain;
  const [start, end] = [x.at(from), x.at(to)];
  const edges = [from];
  for (let bin = 1; bin < BINS; bin += 1) {
    const value = x.back(start + ((end - start) * bin) / BINS);
    edges.push(Math.round(value / shape.unit) * shape.unit);
  }
  const kept = [...new Set(edges)].filter((edge) => edge >= from && edge <= to).sort((a, b) => a - b);
  const below = kept.map((edge, index) => (index === 0 ? 0 : shape.below(edge)));
  const bounds = [...kept.slice(1), to];
  const sums = [...below.slice(1), shape.total];
  return kept.map((edge, index) => ({ from: edge, to: bounds[index], entries: Math.max(0, sums[index] - below[index]) }));
}

/** Return the histogram of bins on a scale of values, above the bands of tiers. `binTable` shows the same numbers. */
export function drawBins(bins, x, width, label, column, bands) {
  const { scale } = column;
  const usual = (x.at(x.domain[1]) - x.at(x.domain[0])) / Math.min(BINS, bins.length); // usual width of a bar in pixels
  const places = bins.map(({ from, to }) => [x.at(from), Math.max(1, x.at(Math.min(to, x.domain[1])) - x.at(from))]);
  const dense = bins.map(({ entries }, index) => (entries * usual) / places[index][1]);
  const most = Math.max(1, ...dense);
  const bottom = HEIGHT - EDGE.bottom;
  const y = (entries) => bottom - (entries / most) * (bottom - EDGE.top);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label, class: "chart" });
  picture.append(...drawBands(bands, column, x, EDGE.top, bottom));
  for (const entries of [most, most / 2]) {
    if (entries < 1) continue;
    picture.append(
      svg("line", { x1: EDGE.left, x2: width - EDGE.right, y1: y(entries), y2: y(entries), class: "grid" }),
      svg("text", { x: EDGE.left - 6, y: y(entries) + 4, "text-anchor": "end" }, tick(Math.round(entries), most)),
    );
  }
  places.forEach(([start, wide], index) => {
    if (!dense[index]) return;
    const top = Math.min(y(dense[index]), bottom - 1);
    picture.append(svg("rect", { x: start, y: top, width: Math.max(1.5, wide - 1), height: bottom - top, class: "bar-of" }));
  });
  for (const value of marks(x, 64, { whole: scale === 0, fine: true })) {
    picture.append(below(x.at(value), bottom, width, tick(value, x.domain[1])));
  }
  picture.append(
    svg("line", { x1: EDGE.left, x2: width - EDGE.right, y1: bottom, y2: bottom, class: "tick" }),
    svg("text", { x: width - EDGE.right, y: HEIGHT - 4, "text-anchor": "end", class: "title" }, `value${x.kind === "log" ? " (log)" : ""}`),
    svg("text", { x: 4, y: HEIGHT - 4, class: "title" }, "owners, by area"),
  );
  return picture;
}

/** Return the bins as a table that is folded at first. */
export function binTable(bins, scale, estimated) {
  const sign = estimated ? "≈ " : "";
  const rows = bins.map(({ from, to, entries }) => [stored(from, scale), stored(to, scale), `${entries ? sign : ""}${whole(entries)}`]);
  const columns = [numeric("From"), numeric("Up to"), numeric("Owners")];
  return el("details", {}, el("summary", { "data-key": "bins" }, "The distribution as a table"), table("Owners by value", columns, rows));
}
