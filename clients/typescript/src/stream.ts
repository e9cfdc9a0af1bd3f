/** Reads server-sent events, and continues where it stopped after an interruption. */

import { ApiError, RankcurveError } from "./errors.js";
import { drawPauseMs, pause, PAUSE_MS_MAX, readProblem, type Transport } from "./transport.js";
import type { StreamEvent } from "./types.js";

const EVENT_CHARS_MAX = 1 << 20;

interface Place {
  lastId: string;
  retryMs: number;
}

/**
 * Yield the events of a stream until the signal is aborted. Throws ApiError if the service rejects the stream, and
 * RankcurveError if the answer is not one of the service's streams.
 */
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
      // If the service has no room for the stream now, it may be opened later.
      const passes = error instanceof ApiError && (error.status === 429 || error.status >= 500);
      if (error instanceof RankcurveError && !passes) throw error;
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
      if (text.length > EVENT_CHARS_MAX) throw new RankcurveError("an event of the stream is too long");
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
  const retry = fields.get("retry") ?? "";
  if (/^\d+$/.test(retry)) place.retryMs = Math.min(PAUSE_MS_MAX, Number(retry));
  if (!fields.has("data")) return undefined;
  const id = fields.get("id") ?? place.lastId;
  try {
    if (!/^[ -~]*$/.test(id)) throw new TypeError("an event has no valid id");
    place.lastId = id;
    return { event: fields.get("event"), id, data: JSON.parse(fields.get("data")!) } as StreamEvent;
  } catch (error) {
    throw new RankcurveError(`the stream does not come from rankcurve: ${String(error)}`, { cause: error });
  }
}
