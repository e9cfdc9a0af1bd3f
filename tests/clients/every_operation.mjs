// Calls everything that jolokia.js can do, and prints each result by its name.
// argv: URL, user, password, a path to the installed modules.

import { pathToFileURL } from "node:url";

const [url, username, password, modules] = process.argv.slice(2);
globalThis.window = globalThis; // the client is for browsers
const at = (name) => import(pathToFileURL(`${modules}/${name}`).href);
const { default: Jolokia } = await at("jolokia.js/dist/jolokia.mjs");

const nodeName = "rankcurve:type=Node";
const fold = "rankcurve:type=Job,name=fold";
const jolokia = new Jolokia({ url, username, password });
const found = {};
const tell = async (name, work) => {
  try {
    found[name] = await work();
  } catch (error) {
    found[name] = { thrown: error instanceof Response ? error.status : String(error) };
  }
};

for (const method of ["get", "post"]) {
  const ask = (request, more) => jolokia.request(request, { method, ...more });
  await tell(`${method} version`, () => ask({ type: "version" }));
  await tell(`${method} read`, () => ask({ type: "read", mbean: nodeName, attribute: "Memory", path: "resident" }));
  await tell(`${method} read all`, () => ask({ type: "read", mbean: nodeName }));
  await tell(`${method} read path list`, () =>
    ask({ type: "read", mbean: nodeName, attribute: "Memory", path: ["resident"] }));
  await tell(`${method} read pattern`, () => ask({ type: "read", mbean: "rankcurve:type=N*", attribute: "Version" }));
  await tell(`${method} search`, () => ask({ type: "search", mbean: "rankcurve:type=Job,*" }));
  await tell(`${method} list`, () => ask({ type: "list", path: "rankcurve/name=fold,type=Job" }));
  await tell(`${method} list depth`, () => ask({ type: "list" }, { maxDepth: 1 }));
  await tell(`${method} exec`, () => ask({ type: "exec", mbean: fold, operation: "run" }));
  await tell(`${method} exec argument`, () =>
    ask({ type: "exec", mbean: fold, operation: "run", arguments: ["a/b!c", null, ""] }));
  await tell(`${method} write`, () => ask({ type: "write", mbean: nodeName, attribute: "Verbose", value: true }));
  await tell(`${method} parameters`, () =>
    ask({ type: "read", mbean: nodeName, attribute: "No" }, { ignoreErrors: true, includeRequest: false }));
  await tell(`${method} unknown`, () => ask({ type: "read", mbean: "no:type=such" }));
}
await tell("bulk", () => jolokia.request([
  { type: "version" }, { type: "read", mbean: "no:type=such" }, { type: "search", mbean: "rankcurve:type=N*" },
]));
await tell("several attributes", () =>
  jolokia.request({ type: "read", mbean: nodeName, attribute: ["Memory", "CpuSeconds"] }));
await tell("config", () => jolokia.request({ type: "list", config: { maxDepth: 1 } }));
await tell("text", () => jolokia.request({ type: "version" }, { dataType: "text" }));
await tell("response", async () => (await jolokia.request({ type: "version" }, { resolve: "response" })).status);
await tell("callbacks", () => new Promise((resolve) => {
  const said = [];
  jolokia.request([{ type: "version" }, { type: "read", mbean: "no:type=such" }], {
    success: (answer) => said.push(answer.status),
    error: (answer) => { said.push(answer.status); resolve(said); },
  });
}));
const value = async (request) => {
  const answer = await jolokia.request(request, { method: "post" });
  if (Jolokia.isError(answer)) throw answer.error;
  return answer.value;
};
await tell("value read", () => value({ type: "read", mbean: nodeName, attribute: "Memory", path: "resident" }));
await tell("value write", () => value({ type: "write", mbean: nodeName, attribute: "Verbose", value: true }));
await tell("value exec", () => value({ type: "exec", mbean: fold, operation: "run", arguments: [] }));
await tell("value search", () => value({ type: "search", mbean: "rankcurve:type=N*" }));
await tell("value version", () => value({ type: "version" }));
await tell("value list", () => value({ type: "list", path: ["rankcurve", "type=Job,name=fold", "desc"] }));
await tell("static", () => [Jolokia.escape("a/b!c"), Jolokia.escapePost("a/b!c"), Jolokia.isError({ status: 404 })]);
await tell("jobs", () => new Promise((resolve) => {
  let polls = 0;
  const handle = jolokia.register({
    callback: (...answers) => {
      polls += 1;
      if (polls === 3) {
        const [registered, running] = [jolokia.jobs().length, jolokia.isRunning()];
        jolokia.stop();
        jolokia.unregister(handle);
        resolve([answers.map((answer) => answer.status), registered, running, jolokia.jobs().length, jolokia.isRunning()]);
      }
    },
  }, { type: "read", mbean: nodeName, attribute: "Memory" }, { type: "read", mbean: "no:type=such" });
  jolokia.start(20);
}));
await tell("jobs unless changed", () => new Promise((resolve) => {
  const lists = [];
  const handle = jolokia.register({
    onlyIfModified: true,
    success: (answer) => lists.push(answer.status),
    error: () => lists.push("error"),
  }, { type: "list", config: { maxDepth: 1 } });
  let polls = 0;
  const counter = jolokia.register((answer) => {
    polls += 1;
    if (polls === 5) {
      jolokia.stop();
      jolokia.unregister(handle);
      jolokia.unregister(counter);
      resolve([lists.every((status) => status === 200), answer.status]);
    }
  }, { type: "version" });
  jolokia.start(20);
}));
await tell("notifications", () => jolokia.addNotificationListener({ mbean: nodeName, callback: () => {} }));
await tell("wrong key", () => new Jolokia({ url, username, password: "wrong" }).request({ type: "version" }));
console.log(JSON.stringify(found));
