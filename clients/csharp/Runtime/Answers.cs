using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Linq;
using Newtonsoft.Json;
using Newtonsoft.Json.Linq;

namespace Rankcurve {
    /// <summary>An answer of the service, or a part of one.</summary>
    public abstract class Answer {
        /// <summary>The whole answer, including members that have no property here.</summary>
        public JToken Json { get; }

        internal Answer(JToken json) => Json = json;
    }

    /// <summary>A rank and its bracket. The true rank lies between <c>Low</c> and <c>High</c>.</summary>
    public sealed class Position : Answer {
        /// <summary>Null if the owner has no value, in which case the ranks are null, too.</summary>
        public decimal? Value => Json.Number("value");
        public string Column => Json.Text("column");
        public long? Rank => Json.Whole("rank");
        public long? Low => Json.Whole("low");
        public long? High => Json.Whole("high");
        public long? Total => Json.Whole("total");
        public decimal? Percentile => Json.Number("percentile");
        public DateTimeOffset? AsOf => Json.Time("as_of");
        /// <summary>When the owner reached the value, or null unless the earlier of two equal values ranks
        /// better.</summary>
        public DateTimeOffset? ReachedAt => Json.Time("reached_at");
        /// <summary>The rank of the value before a post, if the post asked for it, or null for a first value.</summary>
        public long? RankBefore => Json.Whole("rank_before");
        /// <summary>Null if no tier fits, or if the column has none.</summary>
        public string Tier => Json.Text("tier");
        /// <summary>False if the ranks between <c>Low</c> and <c>High</c> fall into several tiers.</summary>
        public bool TierCertain => (bool?)Json.Member("tier_certain") ?? true;
        /// <summary>The next better place (<c>rank</c>, the missing <c>points</c>, …), if asked for.</summary>
        public JToken Next => Json.Member("next");

        internal Position(JToken json) : base(json) => json.Require("column");
    }

    /// <summary>A row of a ranking.</summary>
    public sealed class Row : Answer {
        public long Rank => (long)Json["rank"];
        public string Owner => Json.Text("owner");
        public decimal Value => (decimal)Json["value"];
        public JToken Stats => Json["stats"];
        public string Tier => Json.Text("tier");
        /// <summary>In a league: <c>promotion</c>, <c>safe</c> or <c>relegation</c>.</summary>
        public string Zone => Json.Text("zone");
        public DateTimeOffset? ReachedAt => Json.Time("reached_at");
        /// <summary>The owner's profile, if profiles were asked for and there is one.</summary>
        public JToken Profile => Json.Member("profile");

        internal Row(JToken json) : base(json) => json.Require("rank");
    }

    /// <summary>Rows of a ranking, best to worst.</summary>
    public sealed class Page : Answer {
        public IReadOnlyList<Row> Rows { get; }
        public long Total => (long)Json["total"];
        /// <summary>The cursor of the next page, or null at the end.</summary>
        public string Next => Json.Text("next");

        internal Page(JToken json) : base(json) => Rows = json.List("entries", row => new Row(row));
    }

    /// <summary>An owner in the current period of a league, together with the rows of its cohort, best first.</summary>
    public sealed class LeagueOwner : Answer {
        public IReadOnlyList<Row> Rows { get; }
        /// <summary>Null while the owner is waiting for its last result.</summary>
        public string Division => Json.Text("division");
        /// <summary>Null before the first post of the period.</summary>
        public string Cohort => Json.Text("cohort");
        public long? Position => Json.Whole("position");
        public DateTimeOffset? EndsAt => Json.Time("ends_at");

        internal LeagueOwner(JToken json) : base(json) => Rows = json.List("entries", row => new Row(row));
    }

    /// <summary>One owner's stats.</summary>
    public sealed class Entry : Answer {
        public string Owner => Json.Text("owner");
        public JToken Stats => Json["stats"];
        public JToken Profile => Json.Member("profile");
        public DateTimeOffset? UpdatedAt => Json.Time("updated_at");
        /// <summary>In a lookup with a column: the rank among all, or null if the owner has no value.</summary>
        public Position Position => Json.Member("position") is JToken position ? new Position(position) : null;
        /// <summary>In a lookup with a column: the rank among the owners asked for.</summary>
        public long? Place => Json.Whole("place");

        internal Entry(JToken json) : base(json) => json.Require("stats");
    }

    /// <summary>The entries found, in the order of the request, and the owners who have none.</summary>
    public sealed class Lookup : Answer {
        public IReadOnlyList<Entry> Entries { get; }
        public IReadOnlyList<string> Missing => Json.List("missing", owner => (string)owner);

        internal Lookup(JToken json) : base(json) => Entries = json.List("entries", entry => new Entry(entry));
    }

    /// <summary>A reward that an owner was granted.</summary>
    public sealed class Grant : Answer {
        /// <summary>An id that never changes and is unique to this grant. Use it as the key of your payout.</summary>
        public string Id => Json.Text("id");
        public string Owner => Json.Text("owner");
        public string Board => Json.Text("board");
        public string Reward => Json.Text("reward");
        public long Rank => (long)Json["rank"];
        /// <summary>What the board's specification says about the reward.</summary>
        public JToken Data => Json["data"];
        public DateTimeOffset? ClaimedAt => Json.Time("claimed_at");
        /// <summary>Whether it was this request that claimed the grant.</summary>
        public bool First => (bool?)Json.Member("first") ?? false;

        internal Grant(JToken json) : base(json) => json.Require("id");
    }

    /// <summary>The result of a post.</summary>
    public sealed class PostResult : Answer {
        /// <summary>The owner, or null in the results in <c>Boards</c>.</summary>
        public string Owner => Json.Text("owner");
        /// <summary>"applied", "unchanged" (nothing was better), "duplicate", "held" (waiting for a verdict), or
        /// "rejected".</summary>
        public string Status => Json.Text("status");
        /// <summary>For a post to a family, the result on each board that it reached; otherwise empty.</summary>
        public IReadOnlyList<PostResult> Boards => Json.Member("boards") == null ? Array.Empty<PostResult>()
            : Json.List("boards", each => new PostResult(each));
        /// <summary>The board, if this is a result in <c>Boards</c>; otherwise null.</summary>
        public string Board => (string)Json.Member("board");
        /// <summary>The stored values, or null for a post to a family, where each of <c>Boards</c> has its
        /// own.</summary>
        public JToken Stats => Json.Member("stats");
        /// <summary>The owner's positions, if the post asked for them.</summary>
        public IReadOnlyList<Position> Positions => Json.Member("positions") == null ? Array.Empty<Position>()
            : Json.List("positions", each => new Position(each));
        /// <summary>Why the post was rejected. The problem's <c>code</c> is stable.</summary>
        public JToken Error => Json.Member("error");

        internal PostResult(JToken json) : base(json) => json.Require("status");
    }

    /// <summary>An event of a stream.</summary>
    public sealed class StreamEvent : Answer {
        /// <summary>"top", "position", or "reset", before which events may have been missed.</summary>
        public string Kind { get; }
        /// <summary>A place in the journal, from which another stream can continue.</summary>
        public string Id { get; }
        /// <summary>The best rows, if this is a "top" event.</summary>
        public Page Top => Kind == "top" ? new Page(Json) : null;
        /// <summary>The owner's position, if this is a "position" event. <c>Json["overtaken_by"]</c> has
        /// names.</summary>
        public Position Position => Kind == "position" ? new Position(Json) : null;

        internal StreamEvent(string kind, string id, JToken json) : base(json) {
            Kind = kind;
            Id = id;
        }
    }

    // Reads JSON with exact decimals, and members of objects by name. It needs no reflection, so Unity's
    // code stripping and ahead-of-time compilation remove nothing that is used.
    static class Json {
        const int DepthMax = 64;
        static readonly CultureInfo Invariant = CultureInfo.InvariantCulture;

        public static JToken Parse(string text) {
            var reader = new JsonTextReader(new StringReader(text)) { MaxDepth = DepthMax };
            reader.DateParseHandling = DateParseHandling.None;
            reader.FloatParseHandling = FloatParseHandling.Decimal;
            return JToken.ReadFrom(reader);
        }

        // Return the result of a reading function. Throws UnexpectedAnswerException if the JSON is not as expected.
        public static T Understand<T>(Func<T> read) {
            try {
                return read();
            } catch (Exception cause) when (!(cause is RankcurveException)) {
                throw new UnexpectedAnswerException($"the answer does not come from rankcurve: {cause.Message}", cause);
            }
        }

        // Return a member, or null if it is missing or null.
        public static JToken Member(this JToken json, string name) {
            JToken member = json[name];
            return member == null || member.Type == JTokenType.Null ? null : member;
        }

        // Return a member. Throws if it is missing or null.
        public static JToken Require(this JToken json, string name) =>
            json.Member(name) ?? throw new JsonException($"the member {name} is missing");

        public static string Text(this JToken json, string name) => (string)json.Member(name);
        public static decimal? Number(this JToken json, string name) => (decimal?)json.Member(name);
        public static long? Whole(this JToken json, string name) => (long?)json.Member(name);

        public static DateTimeOffset? Time(this JToken json, string name) =>
            json.Text(name) is string time ? DateTimeOffset.Parse(time, Invariant) : (DateTimeOffset?)null;

        // Read the items of a list that must be there.
        public static IReadOnlyList<T> List<T>(this JToken json, string name, Func<JToken, T> read) =>
            json.Require(name).Select(read).ToArray();
    }
}
