using System;
using System.Globalization;
using System.Linq;
using Newtonsoft.Json;
using Newtonsoft.Json.Linq;

namespace Rankcurve {
    /// <summary>One contribution to a board: <c>new Post("ada") { ["lap"] = 58.25 }</c>. It gets its id when it is
    /// created, so it counts once however often it is sent. Do not change it after it was sent.</summary>
    public sealed class Post {
        internal JObject Json { get; }

        /// <summary>Create a post for an owner: the player, or whoever has the entry.</summary>
        public Post(string owner) {
            Json = new JObject { { "owner", owner }, { "stats", new JObject() } };
            Id = Guid.NewGuid().ToString("N");
        }

        Post(JObject json) => Json = json;

        public string Owner => Json.Text("owner");

        /// <summary>The id, by default a random one. An id counts once for each owner.</summary>
        public string Id {
            get => Json.Text("post_id");
            set => Json["post_id"] = value;
        }

        /// <summary>The number of a post that is made with a player token, counted from 0, which replaces the id. A
        /// token counts each number once.</summary>
        public int N {
            set {
                Json["n"] = value;
                Json.Remove("post_id");
            }
        }

        /// <summary>When it happened; by default, when the service receives the post.</summary>
        public DateTimeOffset At { set => Json["at"] = value.UtcDateTime.ToString("O"); }

        /// <summary>A column's value: text, or a number, which is sent with as many decimals as it has.</summary>
        public object this[string column] { set => Json["stats"][column] = TokenOf(value); }

        /// <summary>Add a facet value, for a post to a family.</summary>
        public Post WithFacet(string facet, string value) {
            Json["facets"] = Json["facets"] ?? new JObject();
            Json["facets"][facet] = value;
            return this;
        }

        /// <summary>Return the post as JSON on one line, so that it can be kept until it is sent.</summary>
        public override string ToString() => Json.ToString(Formatting.None);

        /// <summary>Parse a post that <c>ToString</c> has written. Throws RankcurveException.</summary>
        public static Post Parse(string text) => Rankcurve.Json.Understand(() => {
            JToken json = Rankcurve.Json.Parse(text);
            json.Require(json.Member("n") == null ? "post_id" : "n");
            return new Post((JObject)json);
        });

        static JToken TokenOf(object value) {
            if (value is string text) {
                return text;
            }
            decimal number = Convert.ToDecimal(value, CultureInfo.InvariantCulture);
            return new JRaw(number.ToString(CultureInfo.InvariantCulture)); // 25 and not 25.0, and without an exponent
        }
    }
}
