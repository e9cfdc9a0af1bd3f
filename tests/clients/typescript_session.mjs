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
found.around = await game.around("high", "p7", { better: 1, worse: 1 });
found.entry = await game.entry("high", "p7");
found.lookup = await game.lookup("high", ["p7", "nobody"], "xp");
found.onBoards = await game.positionsOnBoards("p7", ["high", "low"]);
found.values = await game.values("high", { ranks: [1, 2] });
found.valueAround = await game.valueAround("high", { column: "xp", value: "50", better: 1, worse: 1 });
found.buckets = await game.buckets("high", { buckets: 3 });
found.owners = [];
for await (const page of game.pages("high", { limit: 400 })) found.owners.push(...page.entries.map((entry) => entry.owner));

found.unknown = await codeOf(game.entry("high", "nobody"));
found.badKey = await codeOf(new Client(url, { key: "rk_0_0" }).entry("high", "p7"));
found.nowhere = await codeOf(new Client("http://127.0.0.1:9", { retries: 1 }).entry("high", "p7"));
found.late = await codeOf(new Client(url, { key, retries: 0, timeoutMs: 1, fetch: (_, init) =>
  new Promise((_, reject) => init.signal.addEventListener("abort", () => reject(init.signal.reason))) }).entry("high", "p7"));

[found.offline, found.service, found.renewed, found.offlineTiers, found.serviceTiers] = [{}, {}, {}, {}, {}];
for (const [board, scale] of [["high", 0], ["low", 2]]) {
  const curve = await game.curve(board);
  const values = Array.from({ length: 300 }, (_, index) => (scale ? (index * 1.25).toFixed(scale) : String(index * 19)));
  found.offline[board] = values.map((value) => curve.rank(value));
  found.offlineTiers[board] = values.map((value) => curve.tier(value));
  [found.service[board], found.serviceTiers[board]] = [[], []];
  for (let from = 0; from < values.length; from += 50) {
    const asked = { values: values.slice(from, from + 50), rank: "estimate" };
    const { positions } = await game.valuePositions(board, asked);
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
found.dots = [];
for (const name of [".", "..", "positions"]) await game.postOne("high", name, { xp: 7 });
for (const name of [".", ".."]) {
  found.dots.push((await game.positions("high", name)).owner, (await game.entry("high", name)).owner);
  await game.eraseEntry("high", name);
  found.dots.push(await codeOf(game.entry("high", name)));
}
let erased = 0;
const lost = async () => { erased += 1; throw new TypeError("the answer was lost"); };
found.erasedOnce = [await codeOf(new Client(url, { key, fetch: lost }).eraseEntry("high", "p7")), erased];

found.voided = await game.voidPost("high", "run", "cheat");
found.notVoided = await codeOf(game.voidFamilyPost("none", "run", "cheat"));

// What is short, families with their history, and the buffer, whose answers are lost now and then.
const spec = { columns: [{ name: "lap", merge: "min", scale: 3 }], ties: "earliest" };
found.created = (await game.createBoard("laps", spec)).columns.map(({ sorted, best }) => [sorted, best]);
await game.createBoard("cup", { ...spec, entry: { posts_max: 2, owners_max: 1 } });
found.joined = [(await game.join("cup", "ada")).posts_left, await codeOf(game.join("cup", "bob"))];
found.claimed = [];
for await (const { id, reward } of game.ownerGrants("ada", { state: "open" })) {
  found.claimed.push(reward, (await game.claimGrant(id)).first, (await game.claimGrant(id)).first);
}
found.lap = await game.postOne("laps", "bob", { lap: 58.25 }, { post_id: "one" });
found.placed = (await game.postOne("laps", "bob", { lap: 58.25 }, {}, { positions: ["lap"], moved: true })).positions[0];
found.again = (await game.postOne("laps", "bob", { lap: 58.25 }, { post_id: "one" })).status;
await game.post("laps", [{ owner: "ada", stats: { lap: "58.250" } }, { owner: "cy", stats: { lap: 60 } }]);
found.top = (await game.top("laps", 2)).map(({ rank, owner, value }) => [rank, owner, value]);
found.rank = [await game.rank("laps", "ada"), await game.rank("laps", "cy", "lap")];
found.laps = (await game.board("laps")).entries;
await game.createBoard("both", { columns: [...spec.columns, { name: "xp", merge: "sum" }] });
await game.postOne("both", "ada", { lap: 1, xp: 1 });
found.ambiguous = [await codeOf(game.page("both")), await codeOf(game.rank("both", "ada"))];
const week = { ...spec, periods: ["day", "week"], facets: [[], ["country"]] };
found.family = [(await game.createFamily("weeks", week)).id, (await game.family("weeks")).periods];
for await (const { id } of game.families()) found.family.push(id);
const yesterday = new Date(Date.now() - 86_400_000).toISOString();
for (const at of [yesterday, new Date().toISOString()])
  await game.postToFamily("weeks", { owner: "ada", stats: { lap: 58 }, facets: { country: "Côte d'Ivoire" }, at });
await game.postToBoards({ owner: "ada", stats: { lap: 57 }, boards: ["laps", "both"] });
found.country = await game.familyBoard("weeks", { period: "week", country: "Co\u0302te d'Ivoire" });
found.ivorians = (await game.top(found.country.board, 1)).map(({ owner }) => owner);
found.countries = [];
for await (const { value, entries } of game.facetValues("weeks", { facet: "country", period: "day" })) found.countries.push([value, entries]);
await game.postToLeague("zenith", [{ owner: "ada", stats: { lap: 2 } }, { owner: "bob", stats: { lap: 1 }, division: "gold" }]);
const { cohort, zone, entries } = await game.leagueOwner("zenith", "ada");
found.league = [cohort, zone, entries.length, (await game.cohort("zenith", "gold-1")).entries[0].owner];
found.league.push((await game.divisions("zenith")).divisions.map(({ owners }) => owners));
for await (const past of game.leagueHistory("zenith", "ada")) found.league.push(past); // no period has closed
found.history = [];
for await (const past of game.history("weeks", "ada", { period: "day" })) found.history.push(past); // no day has closed
const pages = [{ history: [{ board: "weeks:2026-11-20" }], next: "more" }, { history: [{ board: "weeks:2026-11-19" }], next: null }];
const asked = [];
const earlier = new Client("http://x", { fetch: async (address) => (asked.push(address), Response.json(pages.shift())) });
for await (const { board } of earlier.history("weeks", "ada", { period: "day", country: "se" })) found.history.push(board);
found.asked = asked;

let sent = 0;
const unsteady = async (...request) => {
  sent += 1;
  if (sent % 3 === 0) return new Response("<html>", { status: 500 });
  const answer = await fetch(...request);
  if (sent % 3 === 1) throw new TypeError("the answer was lost");
  return answer;
};
const results = [];
const buffer = new Client(url, { key, retries: 0, fetch: unsteady }).buffer(
  { board: "laps" },
  { postsPerRequest: 100, postsMax: 250, onResult: (receipt, { status }) => results.push([receipt.owner, status]) },
);
const receipts = [];
let unsettled = 0;
for (let number = 0; number < 1000; number += 1) {
  receipts.push(await buffer.submit(`b${number}`, { lap: number % 100 === 7 ? "fast" : 90 + number }));
  unsettled = Math.max(unsettled, buffer.unsettled);
}
await buffer.flush();
const last = await buffer.submit("", { lap: 1 });
await buffer.close();
found.buffer = {
  unsettled, rejected: buffer.rejected, last: (await last.result).error.code, results: results.length, sent,
  inOrder: results.every(([owner], index) => owner === (index < 1000 ? `b${index}` : "")),
  closed: await codeOf(buffer.submit("late", { lap: 1 })), one: (await receipts[0].result).stats,
};
const refused = new Client(url, { key: "rk_0_0" }).buffer({ board: "laps" });
const never = await refused.submit("ada", { lap: 1 });
found.refused = [await codeOf(refused.close()), await codeOf(never.result), refused.unsettled];
const away = new Client("http://127.0.0.1:9", { retries: 0 }).buffer({}, { patienceMs: 1 });
await away.submit("ada", { lap: 1 }, { boards: ["laps"] });
found.away = await codeOf(away.close());
// The clock of the day is set ten hours ahead, and a laptop sleeps for ten hours, while no answer comes.
found.slept = [];
for (const [clock, failures] of [[Date, 1], [performance, 1], [performance, 3]]) {
  const now = clock.now;
  const set = (value) => Object.defineProperty(clock, "now", { value, configurable: true }); // Node 18 refuses `=`
  let left = failures, ahead = 0;
  set(() => now.call(clock) + ahead);
  const asleep = async (...request) => {
    if ((left -= 1) < 0) return fetch(...request);
    ahead += 36_000_000;
    throw new TypeError("no network");
  };
  const patient = new Client(url, { key, retries: 0, fetch: asleep }).buffer({ board: "laps" }, { patienceMs: 150_000 });
  const receipt = await patient.submit(`slept${found.slept.length}`, { lap: 1 });
  await patient.close().catch(() => undefined);
  set(now);
  found.slept.push(await receipt.result.then(({ status }) => status, () => "lost"));
}

// A player's program asks a function for tokens, and again once a token is over.
const askToken = async () => (found.issued = (await game.issueToken({ owner: "tess", boards: ["high"], limits: { xp: 500 } })).token);
const player = new Client(url, { key: askToken });
found.byToken = [];
for (const xp of [5, 5, 501]) found.byToken.push(await player.postOne("high", "tess", { xp }, { n: 0 }).then(({ status }) => status, ({ code }) => code));
const voided = found.issued;
await game.voidTokens("tess", "a lost phone");
for await (const { data } of player.stream("high", { owner: "tess" })) {
  found.byToken.push(data.value, found.issued !== voided);
  break;
}
let number = 0, losing = "";
const [refusedTokens, sentTokens] = [{ t1: "token_expired" }, []];
const refusing = async (_, init) => {
  const token = init.headers["Authorization"].slice("Bearer ".length);
  sentTokens.push(token);
  if (token === losing) {
    [losing, refusedTokens[token]] = ["", "token_expired"];
    throw new TypeError("the answer was lost");
  }
  const code = refusedTokens[token];
  const headers = { "Content-Type": "application/problem+json" };
  if (code) return Response.json({ type: `urn:rankcurve:problem:${code}`, code }, { status: 401, headers });
  return Response.json({ results: [{ owner: "ada", status: init.body.includes("post_id") ? "named" : "applied" }] });
};
const renewing = new Client(url, { key: () => `t${(number += 1)}`, fetch: refusing });
const postByToken = () => renewing.postOne("high", "ada", { xp: 1 }, { n: 0 }).then(({ status }) => status, ({ code }) => code);
found.renewed1 = [await postByToken(), ...sentTokens.splice(0)];
Object.assign(refusedTokens, { t2: "token_expired", t3: "token_voided" });
found.renewed2 = [await postByToken(), ...sentTokens.splice(0)];
found.renewed3 = await Promise.all([postByToken(), postByToken(), postByToken()]);
sentTokens.splice(0);
losing = "t4";
found.renewed4 = [await postByToken(), ...sentTokens.splice(0)];
const failing = [() => "t 1", () => { throw new TypeError("not logged in"); }, () => "t9"];
const unsure = new Client(url, { key: () => failing.shift()(), fetch: refusing });
found.tokenless = [await codeOf(unsure.board("high")), await codeOf(unsure.postOne("high", "ada", {})), failing.length, number];
clearInterval(awake);
console.log(JSON.stringify(found));
