using System;
using System.Globalization;
using System.Linq;
using Newtonsoft.Json;
using Newtonsoft.Json.Linq;

namespace Rankcurve {
    /// <summary>One contribution to a board: <c>new Post("ada") { ["lap"] = 58.25 }</c>. It gets an id when it is
    /// made, and so counts once, however often it is sent. Do not change it once it is sent.</summary>
    public sealed class Post {
        internal JObject Json { get; }

        /// <summary>Make a post of an owner: the player, or whoever has the entry.</summary>
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

        /// <summary>The number of a post by player token, from 0 on, in place of the id. A token counts each number
        /// once.</summary>
        public int N {
            set {
                Json["n"] = value;
                Json.Remove("post_id");
            }
        }

        /// <summary>The time at which it happened; by default the one at which the service gets it.</summary>
        public DateTimeOffset At { set => Json["at"] = value.UtcDateTime.ToString("O"); }

        /// <summary>A value of a column: a number, with as many decimals as it has, or text.</summary>
        public object this[string column] { set => Json["stats"][column] = TokenOf(value); }

        /// <summary>Add the value of a facet, for a post to a family.</summary>
        public Post WithFacet(string facet, string value) {
            Json["facets"] = Json["facets"] ?? new JObject();
            Json["facets"][facet] = value;
            return this;
        }

        /// <summary>Return the post as JSON on one line, to keep it until it is sent.</summary>
        public override string ToString() => Json.ToString(Formatting.None);

        /// <summary>Return the post that <c>ToString</c> has written. Throws RankcurveException.</summary>
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
