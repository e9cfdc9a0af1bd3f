using System;
using System.Collections.Generic;
using System.Linq;
using System.Numerics;
using Newtonsoft.Json.Linq;

namespace Rankcurve {
    /// <summary>A rank, 1-based. The true rank as of the curve lies between <c>Low</c> and <c>High</c>.</summary>
    public struct Bracket {
        public long Rank { get; internal set; }
        public long Low { get; internal set; }
        public long High { get; internal set; }
        public bool Exact => Low == High;
    }

    /// <summary>A curve that was fetched once, and ranks values without further requests, as the service does with
    /// <c>rank=estimate</c>. All arithmetic uses whole numbers.</summary>
    public sealed class OfflineCurve {
        const int PercentDigits = 28; // no decimal has more
        static readonly BigInteger TimeLimit = BigInteger.Pow(10, 16); // µs since 1970, after every stored time
        static readonly long EpochTicks = new DateTime(1970, 1, 1).Ticks;

        readonly int scale;
        readonly int sign; // of a key: a smaller key is better
        readonly bool isTimed;
        readonly JToken[] tieColumns;
        readonly CurveSegment[] segments;

        /// <summary>The curve as the service sent it. Its <c>as_of</c> tells how old the ranks are.</summary>
        public JToken Document { get; }
        internal string Tag { get; }
        internal string Path { get; }

        internal OfflineCurve(JToken document, string tag, string path) {
            Document = document;
            Tag = tag;
            Path = path;
            scale = (int)document.Require("scale");
            sign = document.Text("best") == "low" ? 1 : -1;
            isTimed = document.Require("ties").ToString().Contains("earliest"); // a word, or a list of words
            tieColumns = document.Member("tie_columns")?.ToArray() ?? new JToken[0];
            JToken parts = document.Member("segments") ?? new JArray(document);
            segments = parts.Select(part => new CurveSegment(part, KeyAt)).ToArray();
        }

        /// <summary>Return a curve from a document that was kept as text. Such a curve can't be renewed.</summary>
        public static OfflineCurve Parse(string document) =>
            Json.Understand(() => new OfflineCurve(Json.Parse(document), null, null));

        /// <summary>Return the rank of a value, even if nobody has it. The value may have no more decimals than its
        /// column. Where the earliest of equal values is better, <c>reachedAt</c> breaks ties; without it, the value
        /// comes after all others. <c>ties</c> holds values of the board's tie columns; without a value there, it
        /// comes after those that have one.</summary>
        public Bracket Rank(decimal value, DateTimeOffset? reachedAt = null, IDictionary<string, decimal> ties = null) {
            BigInteger key = Key(value, reachedAt, index => {
                string column = tieColumns[index].Text("column");
                return ties != null && ties.ContainsKey(column) ? ties[column] : (decimal?)null;
            });
            var sum = new Bracket { Rank = 1, Low = 1, High = 1 };
            foreach (Bracket found in segments.Select(segment => segment.Rank(key))) {
                sum.Rank += found.Rank - 1;
                sum.Low += found.Low - 1;
                sum.High += found.High - 1;
            }
            return sum;
        }

        /// <summary>Return the tier of the rank that <c>Rank</c> returns for the same arguments, or null if none fits.
        /// The tier is certain if all ranks of the bracket are in it.</summary>
        public (string Name, bool Certain) Tier(decimal value, DateTimeOffset? reachedAt = null,
            IDictionary<string, decimal> ties = null) {
            Bracket bracket = Rank(value, reachedAt, ties);
            bool isCertain = FindTier(value, bracket.Low) == FindTier(value, bracket.High);
            return (FindTier(value, bracket.Rank), isCertain);
        }

        string FindTier(decimal value, long rank) =>
            Document.Member("tiers")?.FirstOrDefault(tier => Fits(tier, value, rank))?.Text("name");

        bool Fits(JToken tier, decimal value, long rank) {
            if (tier.Whole("to_rank") is long worst) {
                return rank <= worst;
            }
            if (tier.Number("to_percent") is decimal percent) {
                BigInteger share = (long)Document["total"] * Scaled(percent, PercentDigits);
                return (rank - 1) * 100 * BigInteger.Pow(10, PercentDigits) < share; // the share is rounded up
            }
            return value.CompareTo(tier.Number("value") ?? 0) * sign <= 0;
        }

        BigInteger KeyAt(JToken at) {
            JToken tied = at.Member("tie_values");
            return Key((decimal)at.Require("value"), at.Time("reached_at"), index => (decimal?)tied?[index]);
        }

        BigInteger Key(decimal value, DateTimeOffset? reachedAt, Func<int, decimal?> tieAt) {
            BigInteger key = Scaled(value, scale) * sign;
            for (int index = 0; index < tieColumns.Length; index++) {
                key = AddTie(key, tieColumns[index], tieAt(index));
            }
            BigInteger time = reachedAt is DateTimeOffset at ? (at.UtcTicks - EpochTicks) / 10 : TimeLimit - 1;
            return isTimed ? key * TimeLimit + time : key;
        }

        // Adds a value's place in a tie column to a key: 0 for the best value, and the last place without a value.
        static BigInteger AddTie(BigInteger key, JToken column, decimal? value) {
            int scale = (int)column["scale"];
            BigInteger least = Scaled((decimal)column["min"], scale);
            BigInteger most = Scaled((decimal)column["max"], scale);
            BigInteger places = BigInteger.Pow(10, (most - least + 1).ToString().Length);
            if (value == null) {
                return key * places + places - 1;
            }
            BigInteger scaled = Scaled(value.Value, scale);
            return key * places + (column.Text("best") == "low" ? scaled - least : most - scaled);
        }

        // Returns a number times a power of ten. Throws ArgumentException if the product is not a whole number.
        static BigInteger Scaled(decimal number, int scale) {
            int[] bits = decimal.GetBits(number);
            int digits = (bits[3] >> 16) & 0xFF;
            var whole = new BigInteger(new decimal(bits[0], bits[1], bits[2], number < 0, 0));
            BigInteger unit = BigInteger.Pow(10, digits);
            BigInteger scaled = BigInteger.DivRem(whole * BigInteger.Pow(10, scale), unit, out BigInteger left);
            return left.IsZero ? scaled : throw new ArgumentException($"{number} has more than {scale} decimals");
        }
    }

    // The curve of one of a board's segments, with the keys of its knots. Most boards have a single segment.
    sealed class CurveSegment {
        const int ShapeUnit = 65536;

        readonly JToken curve;
        readonly BigInteger step;
        readonly BigInteger[] keys;
        readonly BigInteger? best; // the keys of the best and the worst entry beyond the knots
        readonly BigInteger? worst;

        public CurveSegment(JToken curve, Func<JToken, BigInteger> keyAt) {
            this.curve = curve;
            step = BigInteger.Parse(curve.Text("step") ?? "1");
            keys = curve.List("knots", keyAt).ToArray();
            JToken outside = curve.Member("outside");
            best = outside?.Member("best") is JToken first ? keyAt(first) : (BigInteger?)null;
            worst = outside?.Member("worst") is JToken last ? keyAt(last) : (BigInteger?)null;
        }

        public Bracket Rank(BigInteger key) {
            BigInteger onLattice = keys.Length == 0 ? key : key + Modulo(keys[0] - key, step);
            if ((bool?)curve.Member("snaps") == true) {
                key = onLattice; // no entry lies between two lattice points, so the next point has the same rank
            }
            int found = Array.BinarySearch(keys, key);
            int j = found < 0 ? ~found : found; // the first knot that is not better; gap j lies before this knot
            JToken before = j == 0 ? null : curve["knots"][j - 1];
            JToken after = j == keys.Length ? null : curve["knots"][j];
            long low = before == null ? 1 : (long)before["rank"] + (before.Whole("ties") ?? 1);
            long high = after == null ? (long)curve["total"] + 1 : (long)after["rank"];
            if (low == high || found >= 0 || (after == null && key > worst)) {
                return new Bracket { Rank = high, Low = high, High = high }; // of a knot, or nobody is worse
            }
            if (before == null && key <= best) {
                return new Bracket { Rank = low, Low = low, High = low }; // nobody is better
            }
            BigInteger start = before == null ? best.Value : keys[j - 1] + step;
            BigInteger end = after == null ? BigInteger.Max(worst.Value, start) + step : keys[j];
            bool isInside = before != null && after != null;
            JToken shape = isInside ? curve.Member("shapes")?[j - 1] : null;
            long rank = Estimate(low, high, onLattice - start, end - start, shape);
            JToken errors = isInside ? curve.Member("errors") : curve.Member("outside")?.Member("errors");
            long error = (long?)errors?[isInside ? j - 1 : before == null ? 0 : 1] ?? high - low;
            return new Bracket { Rank = rank, Low = Math.Max(low, rank - error), High = Math.Min(high, rank + error) };
        }

        // Returns the rank at a place of a gap, rounded half up, along a line or, with a shape, along a cubic.
        static long Estimate(long low, long high, BigInteger at, BigInteger run, JToken shape) {
            if (at.Sign <= 0 || at >= run) {
                return at.Sign <= 0 ? low : high;
            }
            BigInteger part = at;
            BigInteger whole = run;
            if (shape != null) {
                BigInteger left = run - at;
                part = at * (3 * left * (left * (long)shape[0] + at * (long)shape[1]) + at * at * ShapeUnit);
                whole = BigInteger.Pow(run, 3) * ShapeUnit;
            }
            return low + (long)((2 * (high - low) * part + whole) / (2 * whole));
        }

        static BigInteger Modulo(BigInteger a, BigInteger b) => ((a % b) + b) % b;
    }
}
