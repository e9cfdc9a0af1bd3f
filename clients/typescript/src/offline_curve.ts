import { makeKeyed, rankOf } from "./rank_of.js";
import { tierOf } from "./tier_of.js";
import type { Transport } from "./transport.js";
import type { Bracket, Curve, OfflineTier } from "./types.js";

/** A curve that was fetched once, and ranks values without further requests. */
export class OfflineCurve {
  readonly #transport: Transport;
  readonly #path: string;
  #keyed: ReturnType<typeof makeKeyed>;
  #tag: string;

  private constructor(transport: Transport, path: string, curve: Curve, tag: string) {
    this.#transport = transport;
    this.#path = path;
    this.#keyed = makeKeyed(curve);
    this.#tag = tag;
  }

  static async fetch(transport: Transport, path: string): Promise<OfflineCurve> {
    const answer = await transport.send(path);
    return new OfflineCurve(transport, path, (await answer.json()) as Curve, tagOf(answer));
  }

  /** The service's answer about the curve. Its `as_of` tells how old the ranks are. */
  get curve(): Curve {
    return this.#keyed.curve;
  }

  /** Return the rank of a value. `ties` (values of the board's tie columns) and `reachedAt` order equal values. */
  rank(value: number | string, reachedAt?: string, ties?: Record<string, number | string>): Bracket {
    return rankOf(this.#keyed, value, reachedAt, ties);
  }

  /** Return the tier of the rank that `rank` returns for the same arguments. */
  tier(value: number | string, reachedAt?: string, ties?: Record<string, number | string>): OfflineTier {
    return tierOf(this.curve, value, this.rank(value, reachedAt, ties));
  }

  /** Refetch the curve if it has changed on the service. Return whether it has changed. */
  async renew(): Promise<boolean> {
    const answer = await this.#transport.send(this.#path, { headers: { "If-None-Match": this.#tag } });
    if (answer.status === 304) return false;
    const curve = (await answer.json()) as Curve;
    // A browser's cache turns the answer for an unchanged curve into a 200 with the same tag.
    const changed = tagOf(answer) !== this.#tag;
    this.#keyed = makeKeyed(curve);
    this.#tag = tagOf(answer);
    return changed;
  }
}

function tagOf(answer: Response): string {
  return answer.headers.get("ETag") ?? "";
}
