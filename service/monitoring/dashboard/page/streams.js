// Reads event streams by fetch, which can send a key and shows why a stream was refused; EventSource can do neither.
// After a break, the page sends the id of the last event, so it misses no change.

import { Away, Problem, call, parsed, pause, visible } from "./api.js";
import { STREAM_LINE_CHARS_MAX, STREAM_RETRY_MS, STREAM_RETRY_MS_MAX, STREAM_SILENCE_MS } from "./limits.js";

/**
 * Follow a stream until `signal` aborts. Call `onEvent(name, data)`, `onState("live" | "away" | "refused", problem)`.
 * There is no connection while the page is hidden, because a browser opens only few connections to one service.
 */
export async function follow(target, { onEvent, onState }, signal) {
  const reader = { lastId: "", retryMs: STREAM_RETRY_MS, failures: 0 };
  while (!signal.aborted) {
    await visible(signal);
    if (signal.aborted) return;
    try {
      await readOnce(target, reader, { onEvent, onState }, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && error.status < 500 && error.status !== 429) {
        onState("refused", error);
        return;
      }
      reader.failures += 1;
    }
    if (signal.aborted) return;
    if (!document.hidden) onState("away", null);
    const backedOff = reader.retryMs * 2 ** Math.min(reader.failures, 6);
    await pause(Math.min(backedOff, STREAM_RETRY_MS_MAX) * (0.5 + Math.random() / 2), signal);
  }
}

async function readOnce(target, reader, { onEvent, onState }, signal) {
  const connection = new AbortController();
  const end = () => connection.abort();
  const hide = () => document.hidden && connection.abort();
  let silence = setTimeout(end, STREAM_SILENCE_MS);
  signal.addEventListener("abort", end);
  document.addEventListener("visibilitychange", hide);
  try {
    const headers = { Accept: "text/event-stream" };
    if (reader.lastId) headers["Last-Event-ID"] = reader.lastId;
    const response = await call(target, { headers, signal: connection.signal });
    onState("live", null);
    reader.failures = 0;
    const lines = new Lines(reader, onEvent);
    const chunks = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await chunks.read();
      if (done) return;
      clearTimeout(silence);
      silence = setTimeout(end, STREAM_SILENCE_MS);
      lines.take(value);
    }
  } catch (error) {
    throw error instanceof Problem ? error : new Away();
  } finally {
    clearTimeout(silence);
    signal.removeEventListener("abort", end);
    document.removeEventListener("visibilitychange", hide);
    connection.abort();
  }
}

/** Splits the text of a stream into lines, and calls `onEvent` for each complete event. */
class Lines {
  constructor(reader, onEvent) {
    this.reader = reader;
    this.onEvent = onEvent;
    this.rest = "";
    this.name = "message";
    this.data = [];
  }

  take(text) {
    this.rest += text;
    if (this.rest.length > STREAM_LINE_CHARS_MAX) throw new Away();
    const lines = this.rest.split("\n");
    this.rest = lines.pop();
    for (const line of lines) this.line(line);
  }

  line(line) {
    if (line === "") {
      this.dispatch();
      return;
    }
    const [field, value = ""] = line.split(/: ?(.*)/s);
    if (field === "id") this.reader.lastId = value;
    else if (field === "event") this.name = value;
    else if (field === "data") this.data.push(value);
    else if (field === "retry" && /^\d+$/.test(value)) this.reader.retryMs = Number(value);
  }

  dispatch() {
    const { name, data } = this;
    this.name = "message";
    this.data = [];
    if (data.length && name !== "reset") this.onEvent(name, parsed(data.join("\n")));
  }
}
