// Use the TypeScript client against a service: node typescript_session.mjs DIST URL KEY. Prints what it found as JSON.
const [dist, url, key] = process.argv.slice(2);
const { ApiError, Client, RankcurveError, UnreachableError } = await import(`${dist}/index.js`);

const game = new Client(`${url}/`, { key });
const found = {};
const awake = setInterval(() => {}, 1000); // Node ends when only the timeout of a request is left to wait for

const codeOf = async (asked) => asked.then(() => "no error", (error) => [error.constructor.name, error.status, error.code]);

// A stream of nonsense, after which the service refuses it, and the pauses of the client. Nothing else has a timer yet.
const sleep = setTimeout;
found.nonsense = [];
for (const sent of ["data: {\n\n", "id: \u00e9\ndata: {}\n\n", "x".repeat(2 ** 20 + 1), "retry: nan\n\n", `retry: ${"9".repeat(400)}\n\n`]) {
  const answers = [new Response(sent), Response.json({}, { status: 404 })];
  const pauses = [];
  globalThis.setTimeout = (act, ms) => (pauses.push(ms), sleep(act, 0));
  const nonsense = new Client(url, { fetch: async () => answers.shift() });
  const failed = await nonsense.stream("high", { column: "xp" }).next().catch((error) => error);
  globalThis.setTimeout = sleep;
  found.nonsense.push([failed.constructor.name, pauses.every((ms) => ms >= 1000 && ms <= 31_000) && pauses.length]);
}

found.positions = await game.positions("high", "p7", { columns: ["xp"], rank: "exact" });
found.around = await game.around("high", "p7", { column: "xp", better: 1, worse: 1 });
found.entry = await game.entry("high", "p7");
found.lookup = await game.lookup("high", ["p7", "nobody"], "xp");
found.onBoards = await game.positionsOnBoards("p7", ["high", "low"], "xp");
found.values = await game.values("high", "xp", { ranks: [1, 2] });
found.valueAround = await game.valueAround("high", "xp", { value: "50", better: 1, worse: 1 });
found.buckets = await game.buckets("high", "xp", { buckets: 3 });
found.owners = [];
for await (const page of game.pages("high", "xp", 400)) found.owners.push(...page.entries.map((entry) => entry.owner));

found.unknown = await codeOf(game.entry("high", "nobody"));
found.badKey = await codeOf(new Client(url, { key: "rk_0_0" }).entry("high", "p7"));
found.nowhere = await codeOf(new Client("http://127.0.0.1:9", { retries: 1 }).entry("high", "p7"));
found.late = await codeOf(new Client(url, { key, retries: 0, timeoutMs: 1, fetch: (_, init) =>
  new Promise((_, reject) => init.signal.addEventListener("abort", () => reject(init.signal.reason))) }).entry("high", "p7"));

[found.offline, found.service, found.renewed, found.offlineTiers, found.serviceTiers] = [{}, {}, {}, {}, {}];
for (const [board, scale] of [["high", 0], ["low", 2]]) {
  const curve = await game.curve(board, "xp");
  const values = Array.from({ length: 300 }, (_, index) => (scale ? (index * 1.25).toFixed(scale) : String(index * 19)));
  found.offline[board] = values.map((value) => curve.rank(value));
  found.offlineTiers[board] = values.map((value) => curve.tier(value));
  [found.service[board], found.serviceTiers[board]] = [[], []];
  for (let from = 0; from < values.length; from += 50) {
    const asked = { values: values.slice(from, from + 50), rank: "estimate" };
    const { positions } = await game.valuePositions(board, "xp", asked);
    found.service[board].push(...positions.map(({ rank, low, high, exact }) => ({ rank, low, high, exact })));
    found.serviceTiers[board].push(...positions.map(({ tier, tier_certain }) => ({ name: tier, certain: tier_certain !== false })));
  }
  found.renewed[board] = await curve.renew();
}

// The answers of the first tries are lost on the way, and one is a 503 of a busy service.
let tries = 0;
const lossy = async (...request) => {
  tries += 1;
  if (tries === 3) return new Response("{}", { status: 503, headers: { "Retry-After": "0" } });
  const answer = await fetch(...request);
  if (tries < 3) throw new TypeError("the answer was lost");
  return answer;
};
found.posted = await new Client(url, { key, fetch: lossy }).post("high", [{ owner: "new", stats: { xp: 5 } }]);
found.tries = tries;
found.many = (await game.post("high", Array.from({ length: 1500 }, () => ({ owner: "often", stats: { xp: 1 } })))).length;

found.one = (await game.post("high", { owner: "single", stats: { xp: 1 } })).map((result) => result.status);

const withPassword = url.replace("//", "//ada:rk_a_b@");
found.badKeys = [[url, "rk_a_b\n"], [url, "rk_a b"], [url, "rk_\u00e9"], [withPassword, key]].map(([address, bad]) => {
  try {
    return new Client(address, { key: bad });
  } catch (error) {
    return [error instanceof RankcurveError, error.message.includes("rk_")];
  }
});

// The first connection of the stream breaks after its first event. Over the second one comes what is posted then.
const breaking = new AbortController();
found.opened = 0;
const broken = new Client(url, {
  key,
  fetch: async (request, init) => {
    found.opened += 1;
    found.resumedAt = init.headers["Last-Event-ID"];
    const answer = await fetch(request, found.opened === 1 ? { ...init, signal: breaking.signal } : init);
    if (found.opened === 2) game.post("high", [{ owner: "p7", stats: { xp: 10_000 } }]);
    return answer;
  },
});
found.events = [];
for await (const event of broken.stream("high", { column: "xp", owner: "p7" })) {
  found.events.push(event);
  if (found.events.length === 2) break;
  breaking.abort(new TypeError("the connection broke"));
}
await game.post("high", { owner: "cheat", stats: { xp: 1 }, post_id: "run" });
found.voided = await game.voidPost("high", "run", "cheat");
found.notVoided = await codeOf(game.voidFamilyPost("none", "run", "cheat"));
clearInterval(awake);
console.log(JSON.stringify(found));
