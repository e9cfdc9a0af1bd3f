using System;
using System.Collections.Generic;
using System.Linq;
using System.Net.Http;
using System.Threading.Tasks;
using Newtonsoft.Json.Linq;
using static Rankcurve.Transport;

namespace Rankcurve {
    /// <summary>A client of one service. Its methods throw ApiException if the service refuses, UnreachableException
    /// if no answer comes, and UnexpectedAnswerException if something else answers. Any thread may use it. It has no
    /// threads of its own: where you <c>await</c> on Unity's main thread, your code goes on there.</summary>
    public sealed class Client : IDisposable {
        readonly Transport transport;

        /// <summary>Make a client. Leave out the key where the service lets readers in without one. One attempt to send
        /// a request may take <c>timeoutS</c>. A <c>handler</c> sends requests in place of the client's own; it must
        /// not follow redirects.</summary>
        public Client(string url, string key = null, double timeoutS = 10, int attemptsMax = 5,
            HttpMessageHandler handler = null) : this(url, Always(CheckKey(key)), timeoutS, attemptsMax, handler) { }

        /// <summary>Make a client of a player: the function returns a player token. It is called when there is none,
        /// and once more for a request whose token has expired or was voided, on any thread.</summary>
        public Client(string url, Func<Task<string>> askToken, double timeoutS = 10, int attemptsMax = 5,
            HttpMessageHandler handler = null) =>
            transport = new Transport(url, askToken, timeoutS, attemptsMax, handler);

        static Func<Task<string>> Always(string key) => () => Task.FromResult(key);

        /// <summary>Close the connections. Whatever still waits ends with an OperationCanceledException.</summary>
        public void Dispose() => transport.Dispose();

        /// <summary>Post to a board, one or many, and return a result for each, once they are durable. After an
        /// UnreachableException call it again with the same <c>Post</c> objects: each counts once. Throws
        /// PostsRejectedException if some were rejected.</summary>
        public Task<IReadOnlyList<PostResult>> PostAsync(string board, params Post[] posts) =>
            SendPostsAsync(PathOf("leaderboards", board, "posts"), posts);

        /// <summary>Post to a board as <c>PostAsync</c> does, and return the result with the owner's positions in these
        /// columns. With <c>moved</c>, each has <c>RankBefore</c>.</summary>
        public Task<PostResult> PostOneAsync(string board, Post post, string[] positions = null, bool moved = false) =>
            SendPostAsync(PathOf("leaderboards", board, "posts"), post, positions, moved);

        /// <summary>Post to the boards of a family, as <c>PostAsync</c> does, for all its periods.</summary>
        public Task<IReadOnlyList<PostResult>> PostToFamilyAsync(string family, params Post[] posts) =>
            SendPostsAsync(PathOf("families", family, "posts"), posts);

        /// <summary>Post to a league. The first post of a period takes a seat in a cohort.</summary>
        public Task<IReadOnlyList<PostResult>> PostToLeagueAsync(string league, params Post[] posts) =>
            SendPostsAsync(PathOf("leagues", league, "posts"), posts);

        /// <summary>Return an owner's division and its cohort in the current period of a league.</summary>
        public Task<LeagueOwner> LeagueOwnerAsync(string league, string owner) =>
            GetAsync(PathOf("leagues", league, "owners", owner), json => new LeagueOwner(CheckOwner(json, owner)));

        /// <summary>Post to the boards of a family as <c>PostOneAsync</c> does. Each of the result's <c>Boards</c> has
        /// the positions.</summary>
        public Task<PostResult> PostOneToFamilyAsync(string family, Post post, string[] positions = null,
            bool moved = false) => SendPostAsync(PathOf("families", family, "posts"), post, positions, moved);

        /// <summary>Return an owner's positions in these columns, by default in every ranked one. <c>rank</c> is
        /// <c>auto</c>, <c>exact</c> or <c>estimate</c>. With <c>next</c>, each has what is missing to the next
        /// better place.</summary>
        public Task<IReadOnlyList<Position>> PositionsAsync(string board, string owner, string[] columns = null,
            string rank = null, bool next = false) {
            string path = WithQuery(PathOf("leaderboards", board, "entries", owner, "positions"),
                ("columns", columns), ("rank", rank), ("next", next));
            return GetAsync(path, json => CheckOwner(json, owner).List("positions", each => new Position(each)));
        }

        /// <summary>Return the rows around an owner, best to worst, with the owner's own.</summary>
        public Task<Page> AroundAsync(string board, string owner, string column, int better = 5, int worse = 5,
            bool profiles = false) {
            string path = WithQuery(PathOf("leaderboards", board, "entries", owner, "around"),
                ("column", column), ("better", better), ("worse", worse), ("profiles", profiles));
            return GetAsync(path, json => new Page(json));
        }

        /// <summary>Return the best rows of a ranking, or the rows from a rank or a cursor on.</summary>
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

        /// <summary>Let an owner join a board with entry rules, and return how many posts the owner has left; null if
        /// any number. Joining again returns the same.</summary>
        public Task<long?> JoinAsync(string board, string owner) =>
            transport.SendAsync(HttpMethod.Post, PathOf("leaderboards", board, "entries"),
                new JObject(new JProperty("owner", owner)), (json, _) => CheckOwner(json, owner).Whole("posts_left"));

        /// <summary>Return an owner's grants, at most a page of them, those of the newest board first. <c>state</c>
        /// <c>open</c>: only those to claim.</summary>
        public Task<IReadOnlyList<Grant>> OwnerGrantsAsync(string owner, string state = null) =>
            GetAsync(WithQuery(PathOf("owners", owner, "grants"), ("state", state)),
                json => CheckOwner(json, owner).List("grants", each => new Grant(each)));

        /// <summary>Claim a grant (role <c>writer</c>). Again, it returns the same, with <c>First</c> false: pay
        /// before you claim, with the grant's id as the key of the payout.</summary>
        public Task<Grant> ClaimGrantAsync(string id) =>
            transport.SendAsync(HttpMethod.Post, PathOf("grants", id, "claim"), null, (json, _) => new Grant(json));

        /// <summary>Issue a player token (role <c>writer</c>), and return it. <c>asked</c> has <c>owner</c>, and may
        /// have <c>boards</c>, <c>families</c>, <c>posts</c>, <c>expires_in</c> and <c>limits</c>.</summary>
        public Task<string> IssueTokenAsync(JObject asked) => transport.SendAsync(HttpMethod.Post, PathOf("tokens"),
            asked, (json, _) => (string)json.Require("token"));

        /// <summary>Void all player tokens that were issued for an owner until now (role <c>ops</c>).</summary>
        public Task VoidTokensAsync(string owner) =>
            RequestAsync(HttpMethod.Delete, PathOf("owners", owner, "tokens"));

        /// <summary>Erase an owner's entry on one board (role <c>ops</c>). Entries on other boards stay.</summary>
        public Task EraseEntryAsync(string board, string owner) =>
            RequestAsync(HttpMethod.Delete, PathOf("leaderboards", board, "entries", owner));

        /// <summary>Return the entries of owners, such as friends; with a column, also their positions.</summary>
        public Task<Lookup> LookupAsync(string board, string[] owners, string column = null, bool profiles = false) {
            string path = WithQuery(PathOf("leaderboards", board, "entries", "lookup"), ("profiles", profiles));
            var asked = new JProperty("owners", new JArray(owners));
            JObject body = column == null ? new JObject(asked) : new JObject(asked, new JProperty("column", column));
            return transport.SendAsync(HttpMethod.Post, path, body, (json, _) => new Lookup(json));
        }

        /// <summary>Follow the top of a ranking, or an owner's position. <c>NextAsync</c> opens the stream.</summary>
        public RankingStream Stream(string board, string column, int? top = null, string owner = null,
            string lastEventId = "") {
            string path = WithQuery(PathOf("leaderboards", board, "stream"),
                ("column", column), ("top", top), ("owner", owner));
            return new RankingStream(transport, path, lastEventId);
        }

        /// <summary>Return the curve of a column, which ranks values without further requests.</summary>
        public Task<OfflineCurve> CurveAsync(string board, string column) {
            string path = PathOf("leaderboards", board, "rankings", column, "curve");
            return transport.SendAsync(HttpMethod.Get, path, null, (json, tag) => new OfflineCurve(json, tag, path));
        }

        /// <summary>Return the curve of now: the same one, after a short answer, if it has not changed.</summary>
        public Task<OfflineCurve> RenewCurveAsync(OfflineCurve curve) =>
            transport.SendAsync(HttpMethod.Get, curve.Path, null,
                (json, tag) => json == null ? curve : new OfflineCurve(json, tag, curve.Path), tag: curve.Tag);

        /// <summary>Send a request that has no method here, and return its JSON, or null if it has none. <c>path</c>
        /// is percent-encoded. A request that is not <c>repeatable</c> is sent again only if the service has refused
        /// it unread.</summary>
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

        // Throw UnexpectedAnswerException if an answer names another owner, and so is another's answer. The service
        // normalises names beyond ASCII, which not every runtime can do.
        static JToken CheckOwner(JToken json, string owner) {
            string named = json.Text("owner");
            return named != null && (named == owner || owner.Any(letter => letter > '~')) ? json
                : throw new UnexpectedAnswerException($"the answer is about '{named}', and '{owner}' was asked for");
        }
    }
}
