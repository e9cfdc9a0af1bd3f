// Draws the rank curve: its knots, the line or cubic between knots, the brackets of ranks, and marked positions.

import { forValues, linear, logarithmic, marks } from "./axes.js";
import { svg } from "./dom.js";
import { stored, tick, whole } from "./format.js";
import { ZOOM_KNOTS } from "./limits.js";

const HEIGHT = 300;
const EDGE = { top: 12, right: 12, bottom: 36, left: 52 };
const STEP_PX = 3; // between two points of a drawn line
const KNOT_PX = 0.5; // knots that are nearer to each other are drawn as one
const MARKS_X_PX = 64;
const MARKS_Y_PX = 26;

/** Return the scales of a picture of `width` pixels: for the whole curve, or for the part around the value `zoomed`. */
export function frame(shape, width, zoomed = null) {
  const places = [EDGE.left, width - EDGE.right];
  const heights = [EDGE.top, HEIGHT - EDGE.bottom];
  if (zoomed !== null) {
    const [from, to] = around(shape, zoomed);
    const ranks = [shape.at(from), shape.at(to)].flatMap(({ low, high }) => [low, high]);
    return { x: linear([from, to], places), y: linear([Math.min(...ranks), Math.max(...ranks)], heights), width };
  }
  const range = shape.range();
  const x = forValues(range, places, shape.median());
  return { x, y: logarithmic([1, Math.max(2, shape.total)], heights), width };
}

function around(shape, value) {
  const j = shape.indexOf(shape.key(value));
  const last = shape.values.length - 1;
  const one = shape.values[Math.max(0, j - ZOOM_KNOTS)];
  const other = shape.values[Math.min(last, j + ZOOM_KNOTS - 1)];
  const [from, to] = [Math.min(one, other, value), Math.max(one, other, value)];
  return from < to ? [from, to] : [from - shape.unit, to + shape.unit];
}

/** Return the picture as SVG. `marked` has the positions to mark: [{value, rank, low, high, label}]. */
export function drawCurve(shape, on, marked, { label, scale }) {
  const picture = svg("svg", { viewBox: `0 0 ${on.width} ${HEIGHT}`, role: "img", "aria-label": label, class: "chart" });
  picture.append(...axes(on, scale), band(shape, on), ...pieces(shape, on), ...knots(shape, on));
  for (const each of marked) if (inside(on, each.value)) picture.append(mark(on, each));
  return picture;
}

function inside(on, value) {
  return value >= on.x.domain[0] && value <= on.x.domain[1];
}

function axes(on, scale) {
  const bottom = HEIGHT - EDGE.bottom;
  const found = [];
  for (const rank of marks(on.y, MARKS_Y_PX, { whole: true })) {
    const y = on.y.at(rank);
    found.push(
      svg("line", { x1: EDGE.left, x2: on.width - EDGE.right, y1: y, y2: y, class: "grid" }),
      svg("text", { x: EDGE.left - 6, y: y + 4, "text-anchor": "end" }, tick(rank, on.y.domain[1])),
    );
  }
  for (const value of marks(on.x, MARKS_X_PX, { whole: scale === 0, fine: true })) {
    const x = on.x.at(value);
    found.push(
      svg("line", { x1: x, x2: x, y1: bottom, y2: bottom + 4, class: "tick" }),
      below(x, bottom, on.width, tick(value, on.x.domain[1])),
    );
  }
  found.push(
    svg("line", { x1: EDGE.left, x2: on.width - EDGE.right, y1: bottom, y2: bottom, class: "tick" }),
    svg(
      "text",
      { x: on.width - EDGE.right, y: HEIGHT - 4, "text-anchor": "end", class: "title" },
      `value${on.x.kind === "log" ? " (log)" : ""}`,
    ),
    svg("text", { x: 4, y: HEIGHT - 4, class: "title" }, `rank${on.y.kind === "log" ? " (log)" : ""}`),
  );
  return found;
}

/** Return a label below the axis, placed so that the picture does not cut it off. */
export function below(x, bottom, width, text) {
  const last = x + text.length * 3.5 > width;
  return svg("text", { x: last ? width - 1 : x, y: bottom + 16, "text-anchor": last ? "end" : "middle" }, text);
}

/** Yield the values to draw from left to right: all knots, and values STEP_PX apart. Skip knots that look like one. */
function* walk(shape, on) {
  const [from, to] = on.x.domain;
  const places = [];
  for (let x = on.x.at(from); x <= on.x.at(to); x += STEP_PX) places.push(on.x.back(x));
  let last = -1;
  const values = shape.values.filter((value) => {
    if (value < from || value > to || Math.abs(on.x.at(value) - last) < KNOT_PX) return false;
    last = on.x.at(value);
    return true;
  });
  const all = [...places, ...values.flatMap((value) => [value - shape.unit, value, value + shape.unit])];
  yield* new Set(all.filter((value) => value >= from && value <= to).sort((a, b) => a - b));
}

function points(shape, on) {
  return [...walk(shape, on)].map((value) => ({ x: on.x.at(value), ...shape.at(value) }));
}

function clamp(on, rank) {
  return on.y.at(Math.min(Math.max(rank, on.y.domain[0]), on.y.domain[1])).toFixed(1);
}

function band(shape, on) {
  const found = points(shape, on);
  const there = found.map(({ x, low }) => `${x.toFixed(1)},${clamp(on, low)}`);
  const back = found.reverse().map(({ x, high }) => `${x.toFixed(1)},${clamp(on, high)}`);
  return svg("polygon", { points: [...there, ...back].join(" "), class: "band" });
}

function pieces(shape, on) {
  const path = points(shape, on).map(({ x, rank }) => `${x.toFixed(1)},${clamp(on, rank)}`);
  return [svg("polyline", { points: path.join(" "), class: "line" })];
}

function knots(shape, on) {
  const found = [];
  let last = null;
  shape.values.forEach((value, index) => {
    if (!inside(on, value)) return;
    const [x, y] = [on.x.at(value), on.y.at(shape.ranks[index])];
    if (last && Math.hypot(x - last[0], y - last[1]) < 2) return; // it would cover the knot before
    last = [x, y];
    found.push(svg("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: on.y.kind === "linear" ? 4 : 1.8, class: "knot" }));
  });
  return found;
}

function mark(on, { value, rank, low, high, label }) {
  const [x, y] = [on.x.at(value), on.y.at(rank)];
  const text = `${label}: ${whole(rank)}`;
  const fits = x + 8 + text.length * 7 < on.width;
  return svg(
    "g",
    { class: "mark" },
    svg("line", { x1: x, x2: x, y1: EDGE.top, y2: HEIGHT - EDGE.bottom }),
    svg("line", { x1: x, x2: x, y1: clamp(on, low), y2: clamp(on, high), class: "whisker" }),
    svg("circle", { cx: x, cy: y, r: 5 }),
    svg("text", { x: x + (fits ? 8 : -8), y: y > 30 ? y - 8 : y + 18, "text-anchor": fits ? "start" : "end" }, text),
  );
}

/** Return the value and the rank at a horizontal place of the picture, in pixels, as text. */
export function reading(shape, on, place, scale) {
  const value = on.x.back(Math.min(Math.max(place, EDGE.left), on.width - EDGE.right));
  const kept = Number(value.toFixed(scale));
  const { rank, low, high } = shape.at(kept);
  const bracket = low === high ? "" : ` (${whole(low)} to ${whole(high)})`;
  return `${stored(kept, scale)} → rank ${low === high ? "" : "≈ "}${whole(rank)}${bracket}`;
}

/** Mark the place [x, y] that a pointer reads in the picture within `parent`; without a place, remove the mark. */
export function hover(parent, place) {
  const picture = parent.querySelector("svg");
  picture?.querySelector(".hover")?.remove();
  if (!picture || !place) return;
  const [x, y] = place;
  const height = picture.viewBox.baseVal.height;
  const line = svg("line", { x1: x, x2: x, y1: EDGE.top, y2: height - EDGE.bottom });
  picture.append(svg("g", { class: "hover" }, line, y === null ? null : svg("circle", { cx: x, cy: y, r: 4 })));
}
