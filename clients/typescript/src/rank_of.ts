/** Computes ranks from a curve, as the service does with `rank=estimate`. All arithmetic uses whole numbers. */

import type { Bracket, Curve, CurveSegment } from "./types.js";

const SHAPE_UNIT = 65_536n;
const TIME_LIMIT = 10n ** 16n; // microseconds since 1970; every time that the service stores is earlier
const DECIMAL = /^(-?)(\d+)(?:\.(\d+))?$/;
const TIME = /^(.*?)(?:\.(\d{1,6})\d*)?(Z|[+-]\d\d:\d\d)$/;

type Value = number | string;
type Place = { value: Value; reached_at?: string; tie_values?: (Value | null)[] };

/** A curve, together with the curve of each segment. Most boards have a single segment, the curve itself. */
export interface KeyedCurve {
  curve: Curve;
  segments: KeyedSegment[];
}

/** A segment's curve with the keys of its knots, where a smaller key is better. */
interface KeyedSegment {
  curve: CurveSegment;
  keys: bigint[];
  best: bigint | undefined;
  worst: bigint | undefined;
}

export function makeKeyed(curve: Curve): KeyedCurve {
  const keyAt = (at: Place): bigint => keyOf(curve, at.value, at.reached_at, at.tie_values);
  const keyOfEnd = (end: Place | null | undefined): bigint | undefined => (end ? keyAt(end) : undefined);
  const segments = (curve.segments ?? [curve]).map((segment) => ({
    curve: segment,
    keys: segment.knots.map(keyAt),
    best: keyOfEnd(segment.outside?.best),
    worst: keyOfEnd(segment.outside?.worst),
  }));
  return { curve, segments };
}

/** Return a value's rank. Without `reachedAt`, it counts as reached after all others. `ties` are keyed by column. */
export function rankOf(
  { curve, segments }: KeyedCurve, value: Value, reachedAt?: string, ties: Record<string, Value> = {},
): Bracket {
  const key = keyOf(curve, value, reachedAt, curve.tie_columns?.map(({ column }) => ties[column] ?? null));
  let [rank, low, high] = [1, 1, 1];
  for (const segment of segments) {
    const found = rankIn(segment, key);
    rank += found.rank - 1;
    low += found.low - 1;
    high += found.high - 1;
  }
  return bracketOf(rank, low, high);
}

function rankIn({ curve, keys, best, worst }: KeyedSegment, key: bigint): Bracket {
  const step = BigInt(curve.step);
  const onLattice = keys[0] === undefined ? key : key + modulo(keys[0] - key, step);
  // No entry lies between two lattice points, so a key between them has the same rank as the next point.
  if (curve.snaps) key = onLattice;
  const j = bisectLeft(keys, key); // the first knot that is not better; gap j lies before this knot
  const [before, after] = [curve.knots[j - 1], curve.knots[j]];
  const low = before ? before.rank + before.ties : 1;
  const high = after ? after.rank : curve.total + 1;
  if (low === high || (after && keys[j] === key)) return bracketOf(high, high, high);
  if (!before && best !== undefined && key <= best) return bracketOf(low, low, low); // nobody is better
  if (!after && worst !== undefined && key > worst) return bracketOf(high, high, high); // nobody is worse
  const start = before ? keys[j - 1]! + step : best!;
  const end = after ? keys[j]! : (worst! > start ? worst! : start) + step;
  const shape = before && after ? curve.shapes?.[j - 1] : undefined;
  const rank = estimate(low, high, onLattice - start, end - start, shape);
  const errors = before && after ? curve.errors : curve.outside?.errors;
  if (!errors) return bracketOf(rank, low, high);
  const error = errors[before && after ? j - 1 : j === 0 ? 0 : 1]!;
  return bracketOf(rank, Math.max(low, rank - error), Math.min(high, rank + error));
}

function bracketOf(rank: number, low: number, high: number): Bracket {
  return { rank, low, high, exact: low === high };
}

function keyOf(curve: Curve, value: Value, reachedAt?: string, ties: (Value | null)[] = []): bigint {
  let key = scaledOf(value, curve.scale);
  if (curve.best === "high") key = -key;
  for (const [index, { min, max, scale, best }] of (curve.tie_columns ?? []).entries()) {
    // A place is 0 for the best value of the tie column. The last place is for entries without a value.
    const [least, most] = [scaledOf(min, scale), scaledOf(max, scale)];
    const places = 10n ** BigInt(String(most - least + 1n).length);
    const tie = ties[index] ?? null;
    const place = tie === null ? places - 1n : best === "low" ? scaledOf(tie, scale) - least : most - scaledOf(tie, scale);
    key = key * places + place;
  }
  if (!curve.ties.includes("earliest")) return key; // `ties` is a word, or a list that may end with it
  return key * TIME_LIMIT + (reachedAt === undefined ? TIME_LIMIT - 1n : microsecondsOf(reachedAt));
}

export function scaledOf(value: Value, scale: number): bigint {
  const found = DECIMAL.exec(String(value));
  if (!found) throw new RangeError(`${value} is not a decimal number`);
  const [, sign, whole, part = ""] = found;
  const digits = part.padEnd(scale, "0");
  if (digits.length > scale) throw new RangeError(`${value} has more than ${scale} digits after the point`);
  return BigInt(`${sign}${whole}${digits}`);
}

function microsecondsOf(time: string): bigint {
  const found = TIME.exec(time);
  if (!found) throw new RangeError(`${time} is no time with a zone`);
  const [, second, part = "", zone] = found;
  return BigInt(Date.parse(`${second}${zone}`)) * 1000n + BigInt(part.padEnd(6, "0"));
}

/** Return the rank at the place `at` of a gap, rounded half up, along a line or, with a shape, along a cubic. */
function estimate(low: number, high: number, at: bigint, run: bigint, shape?: number[] | null): number {
  if (at <= 0n) return low;
  if (at >= run) return high;
  let [part, whole] = [at, run];
  if (shape) {
    const [first, second] = [BigInt(shape[0]!), BigInt(shape[1]!)];
    part = at * (3n * (run - at) * ((run - at) * first + at * second) + at * at * SHAPE_UNIT);
    whole = run ** 3n * SHAPE_UNIT;
  }
  return low + Number((2n * BigInt(high - low) * part + whole) / (2n * whole));
}

function bisectLeft(keys: bigint[], key: bigint): number {
  let [from, to] = [0, keys.length];
  while (from < to) {
    const middle = (from + to) >> 1;
    if (keys[middle]! < key) from = middle + 1;
    else to = middle;
  }
  return from;
}

function modulo(a: bigint, b: bigint): bigint {
  return ((a % b) + b) % b;
}
