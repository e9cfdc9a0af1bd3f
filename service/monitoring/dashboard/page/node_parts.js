// Draws the parts of the node's view from its figures: the verdict, tables and lists of facts.

import { el, facts, named } from "./dom.js";
import { byProperty, judge } from "./figures.js";
import { age, ago, bytes, duration, moment, percent, rate, three, whole } from "./format.js";
import { ROUTES_SHOWN } from "./limits.js";
import { empty, numeric, scrolled, table } from "./tables.js";

const ADVICE = "/docs#alert-"; // the API page also says what to do about each alert
const LASTING = "journal"; // this route includes streams, which last as long as clients listen, so its times mean nothing

function perSecond(counted) {
  return rate(counted?.Rate);
}

/** Return the table of requests by route, the busiest first. Routes without recent requests are folded. */
export function routeTable(routes) {
  const all = [...byProperty(routes, "name")].filter(([, { Requests }]) => Requests?.Count > 0);
  const busiest = all.sort(([, a], [, b]) => b.Requests.Count - a.Requests.Count);
  const isActive = ([, { RequestSeconds }]) => (RequestSeconds?.P50 ?? null) !== null;
  const active = busiest.filter(isActive);
  const quiet = busiest.filter((route) => !isActive(route));
  if (!busiest.length) return empty("No requests yet.");
  const columns = [
    { label: "Route" },
    numeric("A second"),
    numeric("p50", { wide: true }),
    numeric("p95", { wide: true }),
    numeric("p99"),
    numeric("Total", { wide: true }),
    numeric("Failed"),
  ];
  const shown = active.slice(0, ROUTES_SHOWN);
  const caption = "Requests by route, percentiles of the last five minutes";
  const more = active.length > ROUTES_SHOWN ? `The ${ROUTES_SHOWN} busiest of ${active.length} routes; all are at /metrics.` : null;
  return el(
    "div",
    { class: "stack" },
    shown.length
      ? scrolled("Requests by route", table(caption, columns, shown.map(routeRow), { captionShown: true }))
      : empty("No requests in the last five minutes."),
    more && el("p", { class: "quiet" }, more),
    folded("routes", quiet.length, "without requests in the last five minutes", () =>
      scrolled("Quiet routes", table("Quiet routes", columns, quiet.map(routeRow))),
    ),
  );
}

function routeRow([name, { Requests, RequestSeconds }]) {
  const times = (name === LASTING ? null : RequestSeconds) ?? {};
  const failed = Object.entries(Requests.status ?? {}).filter(([status]) => status[0] === "5");
  const failures = failed.reduce((sum, [, { Count }]) => sum + Count, 0);
  return [
    name,
    perSecond(Requests),
    duration(times.P50),
    duration(times.P95),
    duration(times.P99),
    whole(Requests.Count),
    failures ? el("b", { class: "fault" }, whole(failures)) : "0",
  ];
}

/** Return a folded part, below a line such as "3 counts are zero", or null if `count` is 0. */
function folded(key, count, what, draw) {
  return count ? el("details", {}, el("summary", { "data-key": `folded:${key}` }, `${whole(count)} ${what}`), draw()) : null;
}

function alertLine({ Alert, Means }) {
  const link = el("a", { href: `${ADVICE}${Alert}`, rel: "noreferrer", "data-key": `alert:${Alert}` }, "What to do");
  return el("li", {}, Means, " ", link);
}

/** Return the verdict on the node. Each alert has its meaning and a link to advice. */
export function verdictOf(verdict) {
  const alerts = verdict?.Alerts ?? [];
  const { level, said } = judge(verdict);
  return el(
    "div",
    { class: `verdict-line ${level}` },
    el("b", {}, `${said}.`),
    alerts.length ? el("ul", {}, alerts.map(alertLine)) : null,
  );
}

/** Return facts about the store and its posts. Counts that are zero are folded. */
export function storeFacts(now, store) {
  const outcomes = Object.entries(store.Posts?.outcome ?? {});
  const refused = now.throttle?.WriteRefusedPosts?.Count ?? 0;
  const limits = now.throttle?.RateLimit?.kind ?? {};
  const held = (limits.reads?.outcome?.refused?.Count ?? 0) + (limits.posts?.outcome?.refused?.Count ?? 0);
  const lines = [
    ...outcomes.map(([outcome, counted]) => [
      `Posts ${outcome}`,
      `${whole(counted.Count)} · ${perSecond(counted)}/s`,
      "In all, and a second",
      counted.Count,
    ]),
    ["Posts refused", whole(refused), "Queue full, overloaded or stopping", refused],
    ["Over a key’s rate", whole(held), "Reads and posts beyond the rate of their key", held],
    [
      "In flight",
      outOf(store.WritesInFlight, store.WritesInFlightLimit),
      "Write transactions that run now, and how many may run at the same time",
    ],
    ["Posts a transaction", three(store.WriteBatchPosts?.Mean), "On average, in the last five minutes"],
    ["Statements", `${perSecond(store.Statements)}/s`],
    ["Rows", `${perSecond(store.Rows)}/s`],
    [
      "Conflicts",
      whole(store.WriteConflicts?.Count),
      "Write transactions that ran again, because another one had changed a row",
      store.WriteConflicts?.Count ?? 0,
    ],
    ["Retries", whole(store.Retries?.Count), "Lost connections and deadlocks", store.Retries?.Count ?? 0],
  ];
  const zeros = lines.filter(([, , , count]) => count === 0);
  return el(
    "div",
    { class: "stack" },
    facts(lines.filter((line) => !zeros.includes(line))),
    folded("store", zeros.length, "counts are zero", () => facts(zeros)),
  );
}

/** Return facts about the ingest queue, and a table of its busy shards. */
export function queueFacts(counted, queue) {
  const rows = [
    ["Waiting", whole(queue.posts)],
    ["Oldest", queue.posts ? age(queue.age_seconds) : "–"],
    [
      "Workers",
      queue.workers ? `${whole(queue.workers)} at work` : "at rest",
      `A worker starts when posts wait; at most ${whole(queue.workers_max)} work at once`,
    ],
    ["Queued", `${perSecond(counted?.IngestQueuedPosts)}/s`],
    ["Applied", `${perSecond(counted?.IngestOutcomes)}/s`],
    ["Applied after", duration(counted?.IngestAppliedAgeSeconds?.P50), "Median time from being queued to being applied"],
    ["Capacity", queue.capacity === null ? "–" : `${whole(queue.capacity)}/s`, "Posts a second that the store takes, as last measured"],
  ];
  const busy = queue.shards.filter((shard) => shard.posts > 0 || shard.worker);
  if (!busy.length) return facts(rows);
  const columns = [
    { label: "Partition" },
    { label: "Shard" },
    numeric("Waiting"),
    numeric("Oldest"),
    { label: "Worker", wide: true },
  ];
  const list = busy.map((shard) => [
    String(shard.partition ?? "several"),
    String(shard.shard),
    whole(shard.posts),
    age(shard.age_seconds),
    shard.worker ?? "at rest",
  ]);
  return el("div", {}, facts(rows), table("Shards of the queue", columns, list));
}

/** Return a number and, if it is known, its limit: "3 of 8". */
function outOf(count, limit) {
  return limit === null || limit === undefined ? whole(count ?? 0) : `${whole(count ?? 0)} of ${whole(limit)}`;
}

const WORK = {
  audit: "counts random entries and compares them with the curves",
  balance: "moves free resources between the regions of a pool",
  close: "closes boards that are over, grants prizes, archives",
  deliver: "sends events to webhooks",
  demands: "takes up requests for a new curve",
  drain: "applies the posts that wait in the queue",
  events: "lists what happened to boards",
  fold: "keeps live curves in step with posts",
  liberate: "takes back leases that have ended",
  prune: "deletes what is past its retention",
  refresh: "fits new curves where they are due",
  "size workers": "says how many workers the queue may have",
  tops: "notices new leaders for webhooks",
  watch: "reads the curves that others have fitted",
};

/** Return the table of background jobs. */
export function jobTable(jobs, now) {
  const rows = [...byProperty(jobs, "name")]
    .filter(([, job]) => job.Rounds !== undefined)
    .map(([name, job]) => {
      const failures = job.Failures?.Count ?? 0;
      const last = job.LastRoundTimestampSeconds;
      return [
        [el("b", {}, name), WORK[name] ? el("div", { class: "quiet" }, WORK[name]) : null],
        job.Paused ? el("span", { class: "tag bad" }, "paused") : last ? `${age(now - last)} ago` : "not yet",
        whole(job.Rounds.Count),
        percent(job.BusySeconds?.Rate),
        failures ? el("b", { class: "fault" }, whole(failures)) : "0",
      ];
    });
  if (!rows.length) return empty("This node runs no jobs. Those with --jobs embedded, or rankcurve jobs, run them for the whole store.");
  const columns = [
    { label: "Job" },
    numeric("Last round"),
    numeric("Rounds", { wide: true }),
    numeric("Busy"),
    numeric("Failures"),
  ];
  return table("Jobs", columns, rows);
}

/** Return the table of connections to the store. */
export function connectionTable(pools) {
  const rows = [...byProperty(pools, "name")].flatMap(([name, pool]) =>
    Object.entries(pool.StoreConnectionsLimit?.kind ?? {}).map(([kind, limit]) => {
      const waits = pool.StoreConnectionWaitSeconds?.kind?.[kind];
      return [
        `${name}, ${kind}`,
        outOf(pool.StoreConnectionsLent?.kind?.[kind]?.Value, limit.Value),
        whole(pool.StoreConnectionsAwaited?.kind?.[kind]?.Value),
        duration(waits?.P99),
      ];
    }),
  );
  if (!rows.length) return empty("No connections yet.");
  const columns = [{ label: "Pool" }, numeric("Lent"), numeric("Awaited"), numeric("Wait p99")];
  return table("Connections to the store", columns, rows);
}

/** Return facts about requests for leases. */
export function leaseFacts(leases) {
  const outcomes = leases?.LeaseRequests?.outcome ?? {};
  return facts([
    ["Requests", `${perSecond(leases?.LeaseRequests)}/s`],
    ["Waiting", whole(leases?.LeaseRequestsWaiting ?? 0)],
    ["Write p99", duration(leases?.LeaseWriteSeconds?.P99)],
    ...Object.entries(outcomes)
      .filter(([, counted]) => counted.Count > 0)
      .map(([outcome, counted]) => [outcome.replaceAll("_", " "), whole(counted.Count)]),
  ]);
}

/** Return the table of pools of resources by region. */
export function poolTable(pools, note) {
  if (!pools.length) return empty("No pools of resources.");
  const rows = pools.flatMap((pool) =>
    Object.entries(pool.regions ?? {}).map(([region, { total, leased, available, headroom }]) => [
      `${pool.client_id} / ${pool.pool_id}`,
      region,
      `${whole(leased)} of ${whole(total)}`,
      whole(available),
      headroom === null ? "–" : headroom <= 0 ? el("b", { class: "fault" }, whole(headroom)) : whole(headroom),
    ]),
  );
  const columns = [
    { label: "Pool" },
    { label: "Region" },
    numeric("Leased"),
    numeric("Available", { wide: true }),
    numeric("Headroom"),
  ];
  return el(
    "div",
    {},
    rows.length ? table("Pools of resources by region", columns, rows) : empty("No resources yet."),
    note ? el("p", { class: "quiet" }, note) : null,
  );
}

const HOOK_LOOKS = { active: "open", failing: "bad", paused: "bad" };

/** Return the table of webhooks, with what to do where deliveries fail. `act(webhook, what)` does it. */
export function webhookTable(webhooks, act) {
  const button = (id, what, text) =>
    el("button", { type: "button", "data-key": `${what}:${id}`, onclick: () => act(id, what) }, text);
  const rows = webhooks.map(({ id, url, state, delivered, failures, failing_since: since, next_attempt: next, last_error: error }) => [
    [el("b", {}, id), el("div", { class: "quiet" }, named(url))],
    el("span", { class: `tag ${HOOK_LOOKS[state]}` }, state),
    whole(delivered),
    since
      ? [
          `${whole(failures)} since `,
          ago(since),
          ...(next ? [", again ", moment(next)] : []),
          el("div", { class: "quiet" }, named(error ?? "")),
        ]
      : "none",
    [button(id, "test", "Send a test"), state === "active" ? null : button(id, "resume", "Try again now")],
  ]);
  const columns = [
    { label: "Webhook" },
    { label: "State" },
    numeric("Last event", { wide: true }),
    { label: "Failures" },
    { label: "Act" },
  ];
  return rows.length ? scrolled("Webhooks", table("Webhooks", columns, rows)) : empty("No webhooks.");
}

/** Return the table of the store's partitions, or null if there is only one. */
export function partitionTable(partitions) {
  const found = [...byProperty(partitions, "number")];
  if (found.length < 2) return null;
  const rows = found.map(([number, each]) => [
    number,
    each.Reachable === 0 ? el("b", { class: "fault" }, "does not answer") : "answers",
    bytes(each.Bytes),
  ]);
  const columns = [{ label: "Partition" }, { label: "State" }, numeric("Size", { wide: true })];
  return scrolled("Partitions", table("Partitions of the store", columns, rows));
}
