// How busy boards are: changes a minute, from the count in each board's document, since the page was opened.

import { RATED_BOARDS_MAX, SAMPLE_S, SPARK_S } from "./limits.js";

const counts = new Map(); // board -> [[time in seconds, changes so far], …], oldest first

/** Remember how often each of these boards has changed until `now`, in seconds. */
export function count(boards, now) {
  for (const { id, changes } of boards) {
    const past = (counts.get(id) ?? []).filter(([at, before]) => at >= now - SPARK_S && before <= changes); // a reset begins anew
    const isClose = past.length > 1 && past.at(-1)[0] - past.at(-2)[0] < SAMPLE_S;
    if (isClose) past.pop();
    past.push([now, changes]);
    counts.delete(id);
    counts.set(id, past);
  }
  while (counts.size > RATED_BOARDS_MAX) counts.delete(counts.keys().next().value);
}

/** Return a board's changes a minute over the last minute, or null if they are not known yet. */
export function perMinute(id) {
  const past = counts.get(id) ?? [];
  const [at, changes] = past.at(-1) ?? [];
  const [since, before] = past.findLast(([then]) => then <= at - 60) ?? past[0] ?? [];
  return at > since ? (60 * (changes - before)) / (at - since) : null;
}

/** Return the points of a small chart: pairs of a time and the changes a minute. */
export function changesOf(id) {
  const past = counts.get(id) ?? [];
  return past.slice(1).map(([at, changes], index) => [at, (60 * (changes - past[index][1])) / (at - past[index][0])]);
}
