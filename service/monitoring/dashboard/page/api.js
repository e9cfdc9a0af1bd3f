// Requests to the service over its public API. There are two kinds of failures: a Problem is an error response of the
// service, and Away means that no response came.

import { keyHeader } from "./keys.js";
import { REQUEST_TIMEOUT_MS } from "./limits.js";

const LONG_NUMBER = /[\d.]{16}/;
const FIXED_POINT = /^-?\d+(\.\d{1,30})?$/;
const listeners = new Set();
let reachable = true;

/** An error response of the service, with the service's own text. */
export class Problem extends Error {
  constructor(status, document) {
    super(document.detail || document.title || `HTTP ${status}`);
    this.status = status;
    this.code = document.code ?? "";
    this.title = document.title ?? "";
  }
}

/** The service did not answer. */
export class Away extends Error {
  constructor() {
    super("The service does not answer.");
  }
}

/** Call `listener(reachable)` whenever the service becomes unreachable, or reachable again. */
export function onReach(listener) {
  listeners.add(listener);
}

function reached(now) {
  if (now === reachable) return;
  reachable = now;
  for (const listener of listeners) listener(now);
}

/** Return a path with its parts escaped: path`/v1/leaderboards/${id}`. */
export function path(texts, ...parts) {
  return texts.reduce((made, text, index) => made + segment(parts[index - 1]) + text);
}

/** Escape a part of a path. A browser takes `.` and `..` for folders, so they get an end that the service drops. */
function segment(part) {
  return encodeURIComponent(part) + (part === "." || part === ".." ? "%25%7F" : "");
}

/** Return the response to a request. Throws Away, the service's Problem, or the error of an abort by the page. */
export async function call(target, { method = "GET", body, headers = {}, signal } = {}) {
  const sent = { ...headers, ...keyHeader() };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(target, {
      method,
      headers: sent,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "omit", // with credentials, a browser shows a dialogue of its own on 401
      redirect: "error",
      referrerPolicy: "no-referrer",
      signal,
    });
  } catch (error) {
    throw unanswered(error, signal);
  }
  reached(true);
  if (response.ok) return response;
  throw new Problem(response.status, await response.json().catch(() => ({})));
}

/** Return the error to throw for a request without a complete answer: Away, unless the page itself aborted it. */
export function unanswered(error, signal) {
  if (signal?.aborted && signal.reason?.name !== "TimeoutError") return error;
  reached(false);
  return new Away();
}

/** Return the JSON of the response to a request as `data`, and its entity tag as `etag`. */
export async function ask(target, { signal, timeoutMs = REQUEST_TIMEOUT_MS, ...rest } = {}) {
  const timeout = AbortSignal.timeout(timeoutMs);
  const either = signal ? AbortSignal.any([signal, timeout]) : timeout;
  const response = await call(target, { ...rest, signal: either });
  try {
    return { data: parsed(await response.text()), etag: response.headers.get("ETag") };
  } catch (error) {
    throw unanswered(error, either);
  }
}

/** Parse JSON. A number that a double can't hold exactly becomes a text with all digits. Empty text becomes null. */
export function parsed(text) {
  if (text === "") return null;
  return LONG_NUMBER.test(text) ? JSON.parse(text, exact) : JSON.parse(text);
}

function exact(_, value, context) {
  const source = context?.source;
  if (typeof value !== "number" || source === undefined || !FIXED_POINT.test(source)) return value;
  const decimals = source.length - 1 - source.indexOf(".");
  return value.toFixed(source.includes(".") ? decimals : 0) === source ? value : source;
}

/** Call `work` now, and again after each pause of `everyMs`, until `signal` aborts. Wait while the page is hidden. */
export async function poll(work, everyMs, signal) {
  while (!signal.aborted) {
    await visible(signal);
    if (signal.aborted) return;
    await work();
    await pause(everyMs, signal);
  }
}

/** Return a function that calls `work` at most once every `everyMs`. Calls in between become one later call. */
export function throttled(work, everyMs, signal) {
  let running = false;
  let again = false;
  return async function run() {
    again = true;
    if (running) return;
    running = true;
    while (again && !signal.aborted) {
      again = false;
      await work();
      await pause(everyMs, signal);
    }
    running = false;
  };
}

/** Wait for `ms` milliseconds, or until `signal` aborts. */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    if (signal.aborted) done();
    else signal.addEventListener("abort", done, { once: true });
  });
}

/** Wait until the page is visible, or until `signal` aborts. */
export function visible(signal) {
  if (!document.hidden || signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const look = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      signal.removeEventListener("abort", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look);
  });
}
