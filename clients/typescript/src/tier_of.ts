/** Finds the tier of a rank, as the service does. All arithmetic uses whole numbers. */

import { scaledOf } from "./rank_of.js";
import type { Bracket, Curve, OfflineTier } from "./types.js";

type Value = number | string;

/** Return the tier of a value with this bracket, which is certain if all of the bracket's ranks are in that tier. */
export function tierOf(curve: Curve, value: Value, bracket: Bracket): OfflineTier {
  const [name, first, last] = [bracket.rank, bracket.low, bracket.high].map((rank) => findTier(curve, value, rank));
  return { name: name!, certain: first === last };
}

function findTier(curve: Curve, value: Value, rank: number): string | null {
  for (const tier of curve.tiers ?? []) {
    let fits;
    if (tier.to_rank !== undefined) fits = rank <= tier.to_rank;
    else if (tier.to_percent !== undefined) fits = BigInt(rank) <= shareOf(curve.total, tier.to_percent);
    else {
      const lead = scaledOf(value, curve.scale) - scaledOf(tier.value ?? 0, curve.scale);
      fits = curve.best === "high" ? lead >= 0n : lead <= 0n;
    }
    if (fits) return tier.name;
  }
  return null;
}

/** Return a percentage of a total, rounded up. The service rejects percentages whose text has an exponent. */
function shareOf(total: number, percent: number): bigint {
  const [whole, part = ""] = String(percent).split(".");
  const unit = 100n * 10n ** BigInt(part.length);
  return (BigInt(total) * BigInt(`${whole}${part}`) + unit - 1n) / unit;
}
