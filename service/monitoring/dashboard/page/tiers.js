// The tiers of a column as bands of values. The service says which value still has the last rank of a tier.

import { ask, path } from "./api.js";
import { tierLook } from "./cells.js";
import { svg } from "./dom.js";
import { stored } from "./format.js";

const LETTER_PX = 7;

/** Return the bands, best first: [{name, value, exact}] with the worst value of each tier. `total`: ranked owners.
 * An entry has the first tier that fits, so a tier that reaches no further than those before it has no band. */
export async function loadBands(board, column, total, signal) {
  const tiers = total ? (column.tiers ?? []) : [];
  const ranks = tiers.map((tier) => tier.to_rank ?? (tier.to_percent ? Math.ceil((total * tier.to_percent) / 100 - 1e-9) : null));
  const asked = [...new Set(ranks.filter((rank) => rank !== null))];
  const known = new Map();
  if (asked.length) {
    const target = path`/v1/leaderboards/${board}/rankings/${column.name}/values`;
    const { data } = await ask(`${target}?${new URLSearchParams({ ranks: asked.join() })}`, { signal });
    for (const { rank, value, exact } of data.values) known.set(rank, { value, exact });
  }
  const bands = [];
  tiers.forEach(({ name, value }, index) => {
    const limit = ranks[index] === null ? { value, exact: true } : known.get(ranks[index]);
    const best = bands.at(-1);
    if (limit.value === null || (best && !isWorse(column, Number(limit.value), best.value))) return;
    bands.push({ name, value: Number(limit.value), exact: limit.exact });
  });
  return bands;
}

function isWorse(column, value, than) {
  return column.best === "high" ? value < than : value > than;
}

/** Return the bands as a part of a picture with the scale of values `x`, from the height `top` to `bottom`. Names stand
 * above the bands, where no bar covers them. */
export function drawBands(bands, column, x, top, bottom) {
  const [low, high] = x.domain;
  const place = (value) => x.at(Math.min(Math.max(value, low), high));
  let before = place(column.best === "high" ? high : low);
  return bands.flatMap(({ name, value }) => {
    const at = place(value);
    const [start, wide] = [Math.min(at, before), Math.abs(before - at)];
    before = at;
    const band = svg("rect", { x: start, y: top, width: wide, height: bottom - top, class: `tier ${tierLook(name, column.tiers)}` });
    if (wide < name.length * LETTER_PX) return [band];
    return [band, svg("text", { x: start + wide / 2, y: top - 3, "text-anchor": "middle" }, name)];
  });
}

/** Return the limits of the bands as a sentence, or an empty text if there are none. */
export function tellBands(bands, column) {
  const sign = column.best === "high" ? "from" : "up to";
  const limits = bands.map(({ name, value, exact }) => `${name} ${sign} ${exact ? "" : "≈ "}${stored(value, column.scale)}`);
  return limits.length ? `Tiers: ${limits.join(", ")}.` : "";
}
