using System;
using System.Collections.Generic;
using System.Linq;
using System.Net.Http;
using System.Threading.Tasks;
using Newtonsoft.Json.Linq;
using static Rankcurve.Transport;

namespace Rankcurve {
    /// <summary>A client for one service. Its methods throw ApiException if the service rejects the request,
    /// UnreachableException if no answer comes, and UnexpectedAnswerException if something else answers. It can be
    /// shared between threads and has none of its own, so after an <c>await</c> on Unity's main thread your code
    /// continues there.</summary>
    public sealed class Client : IDisposable {
        readonly Transport transport;

        /// <summary>Create a client. Omit the key if the service lets readers in without one. Each attempt to send a
        /// request may take <c>timeoutS</c>. A <c>handler</c> replaces the client's own and must not follow
        /// redirects.</summary>
        public Client(string url, string key = null, double timeoutS = 10, int attemptsMax = 5,
            HttpMessageHandler handler = null) : this(url, Always(CheckKey(key)), timeoutS, attemptsMax, handler) { }

        /// <summary>Create a client for a player, whose token the function returns. The function is called when there
        /// is no token, and once more for a request whose token has expired or was voided. It may be called on any
        /// thread.</summary>
        public Client(string url, Func<Task<string>> askToken, double timeoutS = 10, int attemptsMax = 5,
            HttpMessageHandler handler = null) =>
            transport = new Transport(url, askToken, timeoutS, attemptsMax, handler);

        static Func<Task<string>> Always(string key) => () => Task.FromResult(key);

        /// <summary>Close the connections. Requests that are still waiting end with
        /// OperationCanceledException.</summary>
        public void Dispose() => transport.Dispose();

        /// <summary>Send one or more posts to a board, and return a result for each once they are durable. After an
        /// UnreachableException, call this again with the same <c>Post</c> objects, each of which counts once. Throws
        /// PostsRejectedException if some were rejected.</summary>
        public Task<IReadOnlyList<PostResult>> PostAsync(string board, params Post[] posts) =>
            SendPostsAsync(PathOf("leaderboards", board, "posts"), posts);

        /// <summary>Post to a board as <c>PostAsync</c> does, and include the owner's positions in these columns in the
        /// result. With <c>moved</c>, each position has <c>RankBefore</c>.</summary>
        public Task<PostResult> PostOneAsync(string board, Post post, string[] positions = null, bool moved = false) =>
            SendPostAsync(PathOf("leaderboards", board, "posts"), post, positions, moved);

        /// <summary>Post to a family's boards of all periods, as <c>PostAsync</c> does for a single board.</summary>
        public Task<IReadOnlyList<PostResult>> PostToFamilyAsync(string family, params Post[] posts) =>
            SendPostsAsync(PathOf("families", family, "posts"), posts);

        /// <summary>Post to a league. An owner's first post of a period takes a seat in a cohort.</summary>
        public Task<IReadOnlyList<PostResult>> PostToLeagueAsync(string league, params Post[] posts) =>
            SendPostsAsync(PathOf("leagues", league, "posts"), posts);

        /// <summary>Return an owner's division and cohort in the current period of a league.</summary>
        public Task<LeagueOwner> LeagueOwnerAsync(string league, string owner) =>
            GetAsync(PathOf("leagues", league, "owners", owner), json => new LeagueOwner(CheckOwner(json, owner)));

        /// <summary>Post to the boards of a family as <c>PostOneAsync</c> does. Each of the result's <c>Boards</c> has
        /// the positions.</summary>
        public Task<PostResult> PostOneToFamilyAsync(string family, Post post, string[] positions = null,
            bool moved = false) => SendPostAsync(PathOf("families", family, "posts"), post, positions, moved);

        /// <summary>Return an owner's positions in these columns, or by default in every ranked column. <c>rank</c> is
        /// <c>auto</c>, <c>exact</c> or <c>estimate</c>. With <c>next</c>, each has the next better place and the
        /// points still needed to reach it.</summary>
        public Task<IReadOnlyList<Position>> PositionsAsync(string board, string owner, string[] columns = null,
            string rank = null, bool next = false) {
            string path = WithQuery(PathOf("leaderboards", board, "entries", owner, "positions"),
                ("columns", columns), ("rank", rank), ("next", next));
            return GetAsync(path, json => CheckOwner(json, owner).List("positions", each => new Position(each)));
        }

        /// <summary>Return the rows around an owner, best to worst, including the owner's own row.</summary>
        public Task<Page> AroundAsync(string board, string owner, string column, int better = 5, int worse = 5,
            bool profiles = false) {
            string path = WithQuery(PathOf("leaderboards", board, "entries", owner, "around"),
                ("column", column), ("better", better), ("worse", worse), ("profiles", profiles));
            return GetAsync(path, json => new Page(json));
        }

        /// <summary>Return the top rows of a ranking, or the rows that begin at a rank or a cursor.</summary>
        public Task<Page> TopAsync(string board, string column, int limit = 10, long? fromRank = null,
            string cursor = null, bool profiles = false) {
            string path = WithQuery(PathOf("leaderboards", board, "rankings", column),
                ("limit", limit), ("from_rank", fromRank), ("cursor", cursor), ("profiles", profiles));
            return GetAsync(path, json => new Page(json));
        }

        /// <summary>Return an owner's stats.</summary>
        public Task<Entry> EntryAsync(string board, string owner, bool profiles = false) =>
            GetAsync(WithQuery(PathOf("leaderboards", board, "entries", owner), ("profiles", profiles)),
                json => new Entry(CheckOwner(json, owner)));

        /// <summary>Enter an owner on a board with entry rules, and return how many posts the owner has left, or null
        /// if there is no limit. Joining again returns the same.</summary>
        public Task<long?> JoinAsync(string board, string owner) =>
            transport.SendAsync(HttpMethod.Post, PathOf("leaderboards", board, "entries"),
                new JObject(new JProperty("owner", owner)), (json, _) => CheckOwner(json, owner).Whole("posts_left"));

        /// <summary>Return at most a page of an owner's grants, those of the newest board first. With <c>state</c> set
        /// to <c>open</c>, return only grants that are not claimed yet.</summary>
        public Task<IReadOnlyList<Grant>> OwnerGrantsAsync(string owner, string state = null) =>
            GetAsync(WithQuery(PathOf("owners", owner, "grants"), ("state", state)),
                json => CheckOwner(json, owner).List("grants", each => new Grant(each)));

        /// <summary>Claim a grant (role <c>writer</c>). A repeated call returns the same, with <c>First</c> set to
        /// false. So pay before you claim, and use the grant's id as the idempotency key of the payout.</summary>
        public Task<Grant> ClaimGrantAsync(string id) =>
            transport.SendAsync(HttpMethod.Post, PathOf("grants", id, "claim"), null, (json, _) => new Grant(json));

        /// <summary>Issue a player token (role <c>writer</c>), and return it. <c>asked</c> must have <c>owner</c>, and
        /// may have <c>boards</c>, <c>families</c>, <c>posts</c>, <c>expires_in</c> and <c>limits</c>.</summary>
        public Task<string> IssueTokenAsync(JObject asked) => transport.SendAsync(HttpMethod.Post, PathOf("tokens"),
            asked, (json, _) => (string)json.Require("token"));

        /// <summary>Void every player token that was issued for an owner until now (role <c>ops</c>).</summary>
        public Task VoidTokensAsync(string owner) =>
            RequestAsync(HttpMethod.Delete, PathOf("owners", owner, "tokens"));

        /// <summary>Erase an owner's entry on one board (role <c>ops</c>), but keep those on other boards.</summary>
        public Task EraseEntryAsync(string board, string owner) =>
            RequestAsync(HttpMethod.Delete, PathOf("leaderboards", board, "entries", owner));

        /// <summary>Return the entries of several owners, such as friends, with their positions in a column if one is
        /// given.</summary>
        public Task<Lookup> LookupAsync(string board, string[] owners, string column = null, bool profiles = false) {
            string path = WithQuery(PathOf("leaderboards", board, "entries", "lookup"), ("profiles", profiles));
            var asked = new JProperty("owners", new JArray(owners));
            JObject body = column == null ? new JObject(asked) : new JObject(asked, new JProperty("column", column));
            return transport.SendAsync(HttpMethod.Post, path, body, (json, _) => new Lookup(json));
        }

        /// <summary>Follow the top of a ranking or an owner's position, in a stream that <c>NextAsync</c>
        /// opens.</summary>
        public RankingStream Stream(string board, string column, int? top = null, string owner = null,
            string lastEventId = "") {
            string path = WithQuery(PathOf("leaderboards", board, "stream"),
                ("column", column), ("top", top), ("owner", owner));
            return new RankingStream(transport, path, lastEventId);
        }

        /// <summary>Fetch a column's curve, which ranks values without further requests.</summary>
        public Task<OfflineCurve> CurveAsync(string board, string column) {
            string path = PathOf("leaderboards", board, "rankings", column, "curve");
            return transport.SendAsync(HttpMethod.Get, path, null, (json, tag) => new OfflineCurve(json, tag, path));
        }

        /// <summary>Return the current curve. If it has not changed, this is the same object, after a short
        /// answer.</summary>
        public Task<OfflineCurve> RenewCurveAsync(OfflineCurve curve) =>
            transport.SendAsync(HttpMethod.Get, curve.Path, null,
                (json, tag) => json == null ? curve : new OfflineCurve(json, tag, curve.Path), tag: curve.Tag);

        /// <summary>Send a request that has no method here, and return the answer's JSON, or null if it has none.
        /// <c>path</c> must be percent-encoded. A request that is not <c>repeatable</c> is sent again only if the
        /// service rejected it without reading it.</summary>
        public Task<JToken> RequestAsync(HttpMethod method, string path, JToken body = null, bool repeatable = false) =>
            transport.SendAsync(method, path, body, (json, _) => json, repeatable);

        Task<T> GetAsync<T>(string path, Func<JToken, T> read) =>
            transport.SendAsync(HttpMethod.Get, path, null, (json, _) => read(json));

        async Task<PostResult> SendPostAsync(string path, Post post, string[] positions, bool moved) {
            string asking = WithQuery(path, ("positions", positions), ("moved", moved));
            return (await SendPostsAsync(asking, new[] { post }).ConfigureAwait(false))[0];
        }

        async Task<IReadOnlyList<PostResult>> SendPostsAsync(string path, Post[] posts) {
            var body = new JObject { { "posts", new JArray(posts.Select(post => post.Json)) } };
            PostResult[] results = await transport.SendAsync(HttpMethod.Post, path, body, (json, _) => {
                JToken[] read = json.Require("results").ToArray();
                if (read.Length != posts.Length) {
                    throw new UnexpectedAnswerException($"{posts.Length} posts have {read.Length} results");
                }
                return read.Zip(posts, (result, post) => new PostResult(CheckOwner(result, post.Owner))).ToArray();
            }, numbered: true).ConfigureAwait(false);
            bool isStored = results.All(result => result.Status != "rejected");
            return isStored ? results : throw new PostsRejectedException(results);
        }

        // Throw UnexpectedAnswerException if an answer names another owner, because it then belongs to another request.
        // The service normalises names beyond ASCII, which not every runtime can do.
        static JToken CheckOwner(JToken json, string owner) {
            string named = json.Text("owner");
            return named != null && (named == owner || owner.Any(letter => letter > '~')) ? json
                : throw new UnexpectedAnswerException($"the answer is about '{named}', and '{owner}' was asked for");
        }
    }
}
