// Reads the figures of the node in one bulk request of Jolokia, and computes rates and sums from them.

import { call, unanswered } from "./api.js";

const READS = {
  store: "rankcurve:type=Store,*",
  routes: "rankcurve:type=RequestProcessor,*",
  jobs: "rankcurve:type=Job,*",
  pools: "rankcurve:type=Pool,*",
  queue: "rankcurve:type=Queue",
  leases: "rankcurve:type=Lease,name=all",
  streams: "rankcurve:type=Stream",
  cache: "rankcurve:type=Cache",
  throttle: "rankcurve:type=Throttle",
  others: "rankcurve:type=Metrics",
  partitions: "rankcurve:type=Partition,*",
  verdict: "rankcurve:type=Verdict",
  node: "rankcurve:type=Node",
  recent: "rankcurve:type=Recent",
};
const LEVELS = { red: "Something is wrong", amber: "Something needs a look", green: "All is well" };
const MINUTE_S = 60;

/**
 * Read the figures named `wanted`, of READS. The result has them by name, or null if the node has no such object, and
 * the time `at` in seconds.
 */
export async function readFigures(signal, wanted) {
  const body = wanted.map((name) => ({ type: "read", mbean: READS[name] }));
  const target = "/jolokia?ignoreErrors=true&includeRequest=false";
  const response = await call(target, { method: "POST", body, signal });
  const answers = await response.json().catch((error) => {
    throw unanswered(error, signal);
  });
  const at = Date.now() / 1000;
  const values = wanted.map((name, index) => [name, answers[index].status === 200 ? answers[index].value : null]);
  return { at, ...Object.fromEntries(values) };
}

/** The names of all figures but those of the last quarter of an hour. */
export const ALL = Object.keys(READS).filter((name) => name !== "recent");

/** Return what a verdict says in short: `level` is its colour, `said` a sentence without its end. */
export function judge(verdict) {
  const alerts = verdict?.Alerts ?? [];
  const level = !verdict ? "unknown" : alerts.some(({ Severity }) => Severity === "page") ? "red" : alerts.length ? "amber" : "green";
  return { level, said: LEVELS[level] ?? "The node gives no verdict" };
}

/** Read the verdict on the node, with the first alert, and the posts a second of the last quarter of an hour. */
export async function readVerdict(signal) {
  const { verdict, recent, at } = await readFigures(signal, ["verdict", "recent"]);
  const { level, said } = judge(verdict);
  const [first, ...others] = verdict?.Alerts ?? [];
  const told = first ? `${said}: ${first.Means}${others.length ? ` And ${others.length} more.` : ""}` : said;
  const posted = recent?.Posts ?? [];
  const [last, before] = [posted.at(-1), posted.findLast(([age]) => age >= MINUTE_S) ?? posted[0]];
  const perSecond = last && before[0] > last[0] ? (last[1] - before[1]) / (before[0] - last[0]) : null;
  return { level, told, perSecond, points: ratesOf(posted, at) };
}

/**
 * Return how much a count grew per second between neighbouring snapshots, as pairs of a time in seconds since 1970 and
 * the rate. `snapshots` are pairs of an age in seconds and the count, oldest first.
 */
export function ratesOf(snapshots, now) {
  const rates = [];
  (snapshots ?? []).forEach(([age, count], index, all) => {
    if (index === 0) return;
    const [ageBefore, before] = all[index - 1];
    if (ageBefore - age > 0.1) rates.push([now - age, Math.max(0, count - before) / (ageBefore - age)]);
  });
  return rates;
}

/** Return a map of the objects that a pattern matched, by the value of one property in their names. */
export function byProperty(objects, property) {
  const found = Object.entries(objects ?? {}).map(([name, values]) => [propertyOf(name, property), values]);
  return new Map(found);
}

function propertyOf(name, property) {
  const found = new RegExp(`[:,]${property}=("(?:[^"\\\\]|\\\\.)*"|[^,]*)`).exec(name);
  return (found?.[1] ?? "").replace(/^"(.*)"$/s, "$1").replace(/\\([\\"*?])/g, "$1");
}

/** Return the only object that a pattern matched, or null if it matched none. */
export function only(objects) {
  return Object.values(objects ?? {})[0] ?? null;
}

/** Return how much a count grew per second between two readings, or null if there is no earlier reading. */
export function rate(before, now, count) {
  if (!before || !(now.at > before.at)) return null;
  const grown = count(now) - count(before);
  return grown >= 0 ? grown / (now.at - before.at) : null; // a node that was restarted counts from 0
}

/** Add a `Rate` to each part of `now` that has a `Count`: how much the count grew per second since `before`. */
export function addRates(now, before, seconds) {
  if (now === null || typeof now !== "object") return;
  for (const [name, part] of Object.entries(now)) addRates(part, before?.[name], seconds);
  if (before && now.Count >= before.Count) now.Rate = (now.Count - before.Count) / seconds;
}

/** Return the number of requests on all routes whose status begins with one of `digits`, such as "5" for failures. */
export function requests(figures, digits = "12345") {
  let sum = 0;
  for (const route of Object.values(figures.routes ?? {})) {
    for (const [status, { Count }] of Object.entries(route.Requests?.status ?? {})) if (digits.includes(status[0])) sum += Count;
  }
  return sum;
}

/** Return the number of posts that the store has processed, with any outcome. */
export function posts(figures) {
  return only(figures.store)?.Posts?.Count ?? 0;
}
