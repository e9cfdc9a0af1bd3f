// Small charts of a figure over time.

import { svg } from "./dom.js";

/** Return a small chart of a figure over time. `points` are pairs of a time and a value, oldest first. */
export function spark(points, label) {
  const [width, height] = [120, 28];
  const most = Math.max(...points.map(([, value]) => value), 1e-9);
  const [from, to] = [points[0]?.[0] ?? 0, points.at(-1)?.[0] ?? 1];
  const x = (at) => ((at - from) / Math.max(to - from, 1e-9)) * width;
  const y = (value) => height - 2 - (value / most) * (height - 4);
  const path = points.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`);
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, class: "spark", role: "img", "aria-label": label, preserveAspectRatio: "none" },
    svg("polyline", { points: path.join(" ") }),
  );
}
