// Print the first request of every method of the TypeScript client: node typescript_names.mjs DIST
const { Client } = await import(`${process.argv[2]}/index.js`);

const sent = {};
const given = { lookup: ["b", ["ada"]], positionsOnBoards: ["ada", ["b"]], post: ["b", []], postToBoards: [[]] };
const post = { owner: "ada", stats: { xp: 1 } };
Object.assign(given, { post: ["b", post], postToFamily: ["f", post], postToBoards: [post], voidPost: ["b", "id", "ada"],
  voidFamilyPost: ["f", "id", "ada"], createBoard: ["b", {}], createFamily: ["f", {}], history: ["f", "ada", { period: "day" }],
  facetValues: ["f", { facet: "clan", period: "day" }], familyBoard: ["f", { period: "day" }], stream: ["b", {}],
  page: ["b"], pages: ["b"], top: ["b"], curve: ["b"], buckets: ["b"], values: ["b", {}], valuePositions: ["b", {}],
  valueAround: ["b", {}], board: ["b"], family: ["f"], families: [], postOne: ["b", "ada", {}], issueToken: [{ owner: "ada" }],
  voidTokens: ["ada"] });
for (const name of Object.getOwnPropertyNames(Client.prototype)) {
  if (name === "constructor" || name === "buffer") continue; // a buffer sends by `post`
  const fetch = async (address, { method }) => {
    sent[name] ??= [method, new URL(address).pathname];
    return Response.json({}, { status: 404 });
  };
  const asked = new Client("http://none", { fetch })[name](...(given[name] ?? ["b", "ada"]));
  await (asked.next ? asked.next() : asked).catch(() => undefined);
}
console.log(JSON.stringify(sent));
