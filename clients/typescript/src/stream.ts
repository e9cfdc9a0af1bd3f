/** Reads server-sent events, and comes back after a break where it stopped. */

import { ApiError } from "./errors.js";
import { drawPauseMs, pause, readProblem, type Transport } from "./transport.js";
import type { StreamEvent } from "./types.js";

interface Place {
  lastId: string;
  retryMs: number;
}

/** Yield the events of a stream until the signal is aborted. Throws ApiError if the service refuses the stream. */
export async function* followStream(
  transport: Transport,
  path: string,
  query: object,
  signal?: AbortSignal,
): AsyncGenerator<StreamEvent> {
  const place: Place = { lastId: "", retryMs: 1000 };
  for (let failed = 0; !signal?.aborted; failed += 1) {
    try {
      const headers: Record<string, string> = { Accept: "text/event-stream" };
      if (place.lastId !== "") headers["Last-Event-ID"] = place.lastId;
      const answer = await transport.open(path, signal ? { query, headers, signal } : { query, headers });
      if (!answer.ok) throw new ApiError(answer.status, await readProblem(answer));
      for await (const event of readEvents(answer, place)) {
        failed = 0;
        yield event;
      }
    } catch (error) {
      if (signal?.aborted) return;
      // A stream that the service has no room for may be opened later.
      if (error instanceof ApiError && error.status !== 429 && error.status < 500) throw error;
    }
    await pause(place.retryMs + drawPauseMs(failed), signal).catch(() => undefined);
  }
}

async function* readEvents(answer: Response, place: Place): AsyncGenerator<StreamEvent> {
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (text + value).split("\n\n");
      text = parts.pop()!; // an event that has not ended yet
      for (const part of parts) {
        const event = parseEvent(part, place);
        if (event) yield event;
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

function parseEvent(part: string, place: Place): StreamEvent | undefined {
  const fields = new Map<string, string>();
  for (const line of part.split("\n")) {
    const colon = line.indexOf(":");
    if (colon > 0) fields.set(line.slice(0, colon), line.slice(colon + 1).trimStart());
  }
  if (fields.has("retry")) place.retryMs = Number(fields.get("retry"));
  if (!fields.has("data")) return undefined;
  const id = fields.get("id") ?? place.lastId;
  place.lastId = id;
  return { event: fields.get("event"), id, data: JSON.parse(fields.get("data")!) } as StreamEvent;
}
