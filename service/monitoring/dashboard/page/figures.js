// The figures of the node: one bulk of Jolokia reads, and what can be said of them.

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
};

/**
 * Everything that is read, by the names above; null where the node has no such object. With `recent`, also the figures
 * of the last quarter of an hour.
 */
export async function readFigures(signal, { recent = false } = {}) {
  const reads = recent ? { ...READS, recent: "rankcurve:type=Recent" } : READS;
  const body = Object.values(reads).map((mbean) => ({ type: "read", mbean }));
  const target = "/jolokia?ignoreErrors=true&includeRequest=false";
  const response = await call(target, { method: "POST", body, signal });
  const answers = await response.json().catch((error) => {
    throw unanswered(error, signal);
  });
  const at = Date.now() / 1000;
  const values = Object.keys(reads).map((name, index) => [name, answers[index].status === 200 ? answers[index].value : null]);
  return { at, ...Object.fromEntries(values) };
}

/**
 * How much a count grew a second between neighbouring snapshots, which are pairs of an age in seconds and the count,
 * oldest first. Returns pairs of a time in seconds since 1970 and the rate.
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

/** The objects of a pattern by one property of their names. */
export function byProperty(objects, property) {
  const found = Object.entries(objects ?? {}).map(([name, values]) => [propertyOf(name, property), values]);
  return new Map(found);
}

function propertyOf(name, property) {
  const found = new RegExp(`[:,]${property}=("(?:[^"\\\\]|\\\\.)*"|[^,]*)`).exec(name);
  return (found?.[1] ?? "").replace(/^"(.*)"$/s, "$1").replace(/\\([\\"*?])/g, "$1");
}

/** The one object of a pattern that stands for the whole node. */
export function only(objects) {
  return Object.values(objects ?? {})[0] ?? null;
}

/** How much a count grew a second between two readings; null where there is none before. */
export function rate(before, now, count) {
  if (!before || !(now.at > before.at)) return null;
  const grown = count(now) - count(before);
  return grown >= 0 ? grown / (now.at - before.at) : null; // a node that began anew counts from nothing
}

/** Add a `Rate` to each part of `now` with a `Count`: how much it grew a second since it was as in `before`. */
export function addRates(now, before, seconds) {
  if (now === null || typeof now !== "object") return;
  for (const [name, part] of Object.entries(now)) addRates(part, before?.[name], seconds);
  if (before && now.Count >= before.Count) now.Rate = (now.Count - before.Count) / seconds;
}

/** Requests that were answered with this class of statuses, of all routes. */
export function requests(figures, digits = "12345") {
  let sum = 0;
  for (const route of Object.values(figures.routes ?? {})) {
    for (const [status, { Count }] of Object.entries(route.Requests?.status ?? {})) if (digits.includes(status[0])) sum += Count;
  }
  return sum;
}

/** Posts that the store has dealt with, whatever became of them. */
export function posts(figures) {
  return only(figures.store)?.Posts?.Count ?? 0;
}
