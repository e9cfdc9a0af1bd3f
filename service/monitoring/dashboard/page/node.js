// The view of a node's health, for all processes of the node together.

import { Problem, ask, path, poll } from "./api.js";
import { el, panel, show } from "./dom.js";
import { ALL, addRates, only, posts, rate, ratesOf, readFigures, requests } from "./figures.js";
import { age, bytes, duration, rate as perSecond, three, whole } from "./format.js";
import {
  HEALTH_POLL_MS,
  LEASE_POOLS_SHOWN,
  POOLS_PER_PAGE,
  POOLS_POLL_MS,
  RATE_S,
  REQUEST_TIMEOUT_MS,
  SPARK_POINTS_MAX,
  SPARK_S,
  WEBHOOKS_SHOWN,
} from "./limits.js";
import {
  connectionTable,
  jobTable,
  leaseFacts,
  partitionTable,
  poolTable,
  queueFacts,
  routeTable,
  storeFacts,
  verdictOf,
  webhookTable,
} from "./node_parts.js";
import { spark } from "./spark.js";
import { empty, fault, loading } from "./tables.js";

/** Shows the node's verdict, tiles and tables, and reads the figures again every few seconds. */
export class NodeView {
  constructor(root, route, signal) {
    this.signal = signal;
    this.title = el("h1", { tabindex: "-1" }, "Node");
    this.about = el("p", { class: "quiet" });
    this.verdict = el("div", { class: "verdict", role: "status" });
    this.tiles = el("div", { class: "tiles" }, loading());
    const parts = [
      ["routes", "Requests"],
      ["store", "Store and posts"],
      ["partitions", "Partitions"],
      ["queue", "Queue"],
      ["jobs", "Jobs"],
      ["pools", "Connection pools"],
      ["leases", "Leases"],
      ["webhooks", "Webhooks"],
    ];
    this.panels = Object.fromEntries(parts.map(([id, title]) => [id, panel(`node-${id}`, title)]));
    this.hookAnswer = el("p", { class: "quiet", role: "status" });
    this.leaseFacts = el("div", {});
    this.leasePools = el("div", {});
    this.panels.leases.body.append(this.leaseFacts, this.leasePools);
    const sections = Object.values(this.panels).map(({ section }) => section);
    const columns = [sections.slice(0, 4), sections.slice(4, -1)].map((each) => el("div", { class: "column" }, each));
    this.grid = el("div", { class: "grid", hidden: true }, columns, el("div", { class: "broad" }, this.panels.webhooks.section));
    show(root, el("header", { class: "head" }, this.title, this.about), this.verdict, this.tiles, this.grid);
    this.history = null; // by name, the points of small charts; the first ones come from the node
    this.before = null;
    this.earlier = []; // at most two readings; rates are since the first, 30 to 60 s ago
    poll(() => this.load(), HEALTH_POLL_MS, signal);
    poll(() => this.loadPools(), POOLS_POLL_MS, signal);
    poll(() => this.loadWebhooks(), POOLS_POLL_MS, signal);
  }

  get name() {
    return "Node";
  }

  async load() {
    try {
      const inTime = AbortSignal.any([this.signal, AbortSignal.timeout(REQUEST_TIMEOUT_MS)]);
      const now = await readFigures(inTime, this.history === null ? [...ALL, "recent"] : ALL);
      const queue = await ask("/v1/queue", { signal: this.signal }).then(({ data }) => data);
      if (this.signal.aborted) return;
      this.compare(now);
      this.draw(now, queue);
      this.before = now;
    } catch (error) {
      if (this.signal.aborted) return;
      if (error instanceof Problem) this.refused(error);
      else if (!this.before) show(this.tiles, fault(error));
      this.onFault?.(error);
    }
  }

  compare(now) {
    const [first, second] = this.earlier;
    if (first) addRates(now, first, now.at - first.at);
    if (!first || (!second && now.at > first.at + RATE_S / 2)) this.earlier.push(now);
    else if (second && now.at > second.at + RATE_S / 2) this.earlier = [second, now];
  }

  refused(problem) {
    this.grid.hidden = true;
    show(this.about);
    show(this.verdict);
    if (problem.status === 403) {
      const told = empty(
        "Only operators see the health of the node. Use the button above to give a key with the role ops. ",
        "The current key is enough to see boards.",
      );
      show(this.tiles, fault(problem), told);
    } else show(this.tiles, fault(problem));
  }

  draw(now, queue) {
    const { before } = this;
    const cpu = (figures) => figures.node?.CpuSeconds ?? 0;
    const rates = {
      posts: rate(before, now, posts),
      requests: rate(before, now, requests),
      failures: rate(before, now, (figures) => requests(figures, "5")),
      cpu: rate(before, now, cpu),
    };
    if (this.history === null) {
      const { Posts, Requests, Failures, Cpu } = now.recent ?? {};
      const past = { posts: Posts, requests: Requests, failures: Failures, cpu: Cpu };
      this.history = Object.fromEntries(Object.entries(past).map(([name, snapshots]) => [name, ratesOf(snapshots, now.at)]));
      for (const [name, past] of Object.entries(this.history)) rates[name] ??= past.at(-1)?.[1] ?? null;
    }
    for (const [name, past] of Object.entries(this.history)) {
      past.push([now.at, rates[name] ?? 0]);
      this.history[name] = past.filter(([at]) => at >= now.at - SPARK_S).slice(-SPARK_POINTS_MAX);
    }
    const store = only(now.store) ?? {};
    show(this.about, about(now));
    const verdict = verdictOf(now.verdict);
    if (this.judged !== verdict.textContent) show(this.verdict, verdict); // screen readers read out every new content
    this.judged = verdict.textContent;
    show(this.tiles, this.tileList(now, queue, rates, store));
    this.grid.hidden = false;
    show(this.panels.routes.body, routeTable(now.routes));
    show(this.panels.store.body, storeFacts(now, store));
    const partitions = partitionTable(now.partitions);
    this.panels.partitions.section.hidden = partitions === null;
    show(this.panels.partitions.body, partitions);
    show(this.panels.queue.body, queueFacts(now.queue, queue));
    show(this.panels.jobs.body, jobTable(now.jobs, now.at));
    show(this.panels.pools.body, connectionTable(now.pools));
    show(this.leaseFacts, leaseFacts(now.leases));
  }

  tileList(now, queue, rates, store) {
    const failed = rates.failures;
    const write = store.WriteSeconds ?? {};
    const waiting = (store.WriteQueuePosts ?? 0) + queue.posts;
    const { cache, node, streams } = now;
    const { cpu } = rates;
    const drawn = (name, label) => spark(this.history[name], `${label}, the last quarter of an hour`);
    return el(
      "ul",
      {},
      tile("Posts a second", perSecond(rates.posts), drawn("posts", "Posts a second")),
      tile("Requests a second", perSecond(rates.requests), drawn("requests", "Requests a second")),
      tile(
        "Write p50 / p99",
        `${duration(write.P50)} / ${duration(write.P99)}`,
        `Transactions of the last 5 minutes, of ${three(store.WriteBatchPosts?.Mean)} posts on average`,
      ),
      tile("Failures a second", perSecond(failed), drawn("failures", "Failures a second"), failed > 0),
      tile("Posts waiting", whole(waiting), queue.posts ? `oldest ${age(queue.age_seconds)}` : "queued or being written"),
      tile(
        "Curves",
        whole(cache?.CurveKnots?.Count),
        cache ? `${whole(cache.CurvesLive)} live, oldest ${age(cache.CurveAgeSecondsMax ?? 0)}` : "",
      ),
      tile("Streams", whole(streams?.StreamsOpen ?? 0), "open now"),
      tile(
        "CPU / memory",
        `${cpu === null ? "–" : `${Math.round(cpu * 100)}%`} / ${bytes(node?.Memory?.resident)}`,
        drawn("cpu", "Processor time a second"),
      ),
    );
  }

  async loadWebhooks() {
    try {
      const { data } = await ask(`/v1/webhooks?limit=${WEBHOOKS_SHOWN}`, { signal: this.signal });
      show(this.panels.webhooks.body, webhookTable(data.webhooks, (webhook, what) => this.changeWebhook(webhook, what)), this.hookAnswer);
    } catch (error) {
      if (!this.signal.aborted && error instanceof Problem) show(this.panels.webhooks.body, fault(error));
    }
  }

  async changeWebhook(webhook, what) {
    try {
      await ask(path`/v1/webhooks/${webhook}/` + what, { method: "POST", signal: this.signal });
      const test = `A test goes to ${webhook}. If it fails, that is shown here.`;
      show(this.hookAnswer, what === "test" ? test : `Deliveries to ${webhook} go on.`);
    } catch (error) {
      show(this.hookAnswer, fault(error));
    }
    this.loadWebhooks();
  }

  async loadPools() {
    try {
      const { data } = await ask(`/v1/pools?limit=${POOLS_PER_PAGE}`, { signal: this.signal });
      const shown = data.pools.slice(0, LEASE_POOLS_SHOWN);
      const asked = shown.map((pool) => ask(path`/v1/pools/${pool.client_id}/${pool.pool_id}`, { signal: this.signal }));
      const pools = (await Promise.allSettled(asked)).filter(({ status }) => status === "fulfilled").map(({ value }) => value.data);
      const more = data.next !== null ? `more than ${data.pools.length}` : whole(data.pools.length);
      show(this.leasePools, poolTable(pools, pools.length < data.pools.length ? `The first ${pools.length} of ${more} pools.` : ""));
    } catch (error) {
      if (!this.signal.aborted && error instanceof Problem) show(this.leasePools, fault(error));
    }
  }
}

function about({ node }) {
  const where = node?.StoreUrl;
  return [
    node ? `rankcurve ${node.Version}, up ${age(node.UptimeSeconds)}` : "rankcurve",
    where ? el("span", {}, ", store ", el("code", {}, where)) : null,
    ". All processes of the node together.",
  ];
}

function tile(label, value, foot, bad = false) {
  return el(
    "li",
    { class: bad ? "bad" : null },
    el("span", { class: "label" }, label),
    el("b", {}, value),
    foot instanceof Node ? foot : el("small", {}, foot),
  );
}
