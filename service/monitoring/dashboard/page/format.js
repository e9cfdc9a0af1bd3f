// Formats numbers, times and ranks for people. The page is in English, so numbers have the English format, too.

import { el } from "./dom.js";

const LOCALE = "en";
const WHOLE = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat(LOCALE, { notation: "compact", maximumSignificantDigits: 3 });
const TICK = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 6 });
const TWO = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 2 });
const THREE = new Intl.NumberFormat(LOCALE, { maximumSignificantDigits: 3 });
const PERCENT = new Intl.NumberFormat(LOCALE, { style: "percent", maximumSignificantDigits: 2 });
const MOMENT = new Intl.DateTimeFormat(LOCALE, { dateStyle: "medium", timeStyle: "short" });
const DECIMALS = new Map();
const NONE = "–";

/** Format a whole number: 12,345. */
export function whole(value) {
  return value === null || value === undefined ? NONE : WHOLE.format(value);
}

/** Format a number for an axis or a tile: 12.3K. */
function short(value) {
  return value === null || value === undefined ? NONE : SHORT.format(value);
}

/** Format a value on an axis that ends at `most`. Large values are short if the axis reaches 100,000. */
export function tick(value, most) {
  return Math.abs(most) < 100_000 || Math.abs(value) < 1000 ? TICK.format(value) : SHORT.format(value);
}

/** Format a rate per second. A rate below 0.01 is only shown as such. */
export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return NONE;
  if (perSecond > 0 && perSecond < 0.01) return "< 0.01";
  return perSecond < 1 ? TWO.format(perSecond) : SHORT.format(perSecond);
}

/** Format a number with three significant digits. */
export function three(value) {
  return value === null || value === undefined ? NONE : THREE.format(value);
}

/** Format a stored number with as many decimals as the scale of its column. */
export function stored(value, scale) {
  if (value === null || value === undefined) return NONE;
  if (!DECIMALS.has(scale)) {
    const digits = { minimumFractionDigits: scale, maximumFractionDigits: scale };
    DECIMALS.set(scale, new Intl.NumberFormat(LOCALE, digits));
  }
  return DECIMALS.get(scale).format(value);
}

/** Format a share as a percentage: 0.0052 as 0.52%. */
export function percent(ratio) {
  return ratio === null || ratio === undefined ? NONE : PERCENT.format(ratio);
}

/** Format a percentile. From 99 on, it has three decimals, because the best differ little. It is never 100. */
export function percentile(value) {
  const digits = value >= 99 ? 3 : 1;
  return `${Math.min(99.999, Math.floor(value * 10 ** digits) / 10 ** digits).toFixed(digits)}%`;
}

/** Format a duration: 340 µs, 1.2 ms, 12 s, 3 min. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  if (seconds === 0) return "0";
  if (seconds < 0.001) return `${THREE.format(seconds * 1e6)}\u00a0µs`;
  if (seconds < 1) return `${THREE.format(seconds * 1e3)}\u00a0ms`;
  return seconds < 10 ? `${THREE.format(seconds)}\u00a0s` : age(seconds);
}

/** Format an age in seconds, minutes, hours or days. */
export function age(seconds) {
  const s = Math.max(0, seconds);
  if (s < 100) return `${Math.round(s)}\u00a0s`;
  if (s < 6000) return `${Math.round(s / 60)}\u00a0min`;
  if (s < 172_800) return `${Math.round(s / 3600)}\u00a0h`;
  return `${WHOLE.format(s / 86_400)}\u00a0d`;
}

/** Format a number of bytes in units of powers of 1024. */
export function bytes(count) {
  if (count === null || count === undefined || count < 0) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const step = count < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(count) / 10));
  return `${THREE.format(count / 1024 ** step)}\u00a0${units[step]}`;
}

/** Return a time element that shows the age of a moment, and its date and time on hover. */
export function ago(iso) {
  const seconds = (Date.now() - Date.parse(iso)) / 1000;
  return el("time", { datetime: iso, title: MOMENT.format(new Date(iso)) }, seconds < 1 ? "now" : `${age(seconds)} ago`);
}

/** Return a time element that shows the date and time of a moment. */
export function moment(iso) {
  return el("time", { datetime: iso }, MOMENT.format(new Date(iso)));
}

const METHODS = { count: "counted", knot: "exact, read off the curve", gap: "counted", curve: "estimated" };

/** Return in words how a rank was found. */
export function method(name) {
  return METHODS[name] ?? name;
}

/** Return a rank as text. If the rank is an estimate, add its bracket. */
export function rankText({ rank, low, high, exact }) {
  if (exact) return whole(rank);
  return `≈ ${whole(rank)}, between ${whole(low)} and ${whole(high)}`;
}

/** Return a rank as elements. If the rank is an estimate, add its bracket in smaller type. */
export function rankNodes(position) {
  if (position.exact) return [el("b", { class: "rank" }, whole(position.rank))];
  const bracket = `between ${whole(position.low)} and ${whole(position.high)}`;
  return [el("b", { class: "rank" }, `≈ ${whole(position.rank)}`), " ", el("small", { class: "bracket" }, bracket)];
}
