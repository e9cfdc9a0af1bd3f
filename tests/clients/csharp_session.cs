// Use the C# client against a service: mono csharp_session.exe URL KEY. Prints what it found as JSON.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Net;
using System.Net.Http;
using System.Text;
using System.Threading;
using System.Threading.Tasks;
using Newtonsoft.Json.Linq;
using Rankcurve;

/// <summary>Sends each request by a function, with the number of the attempt, which may send it on.</summary>
sealed class Between : HttpMessageHandler {
    readonly HttpMessageInvoker onwards = new HttpMessageInvoker(new HttpClientHandler { AllowAutoRedirect = false });
    readonly Func<int, HttpRequestMessage, Func<Task<HttpResponseMessage>>, Task<HttpResponseMessage>> answer;
    int attempts;

    public int Attempts => attempts;

    public Between(Func<int, HttpRequestMessage, Func<Task<HttpResponseMessage>>, Task<HttpResponseMessage>> answer) {
        this.answer = answer;
    }

    protected override Task<HttpResponseMessage> SendAsync(HttpRequestMessage request, CancellationToken cancellation) =>
        answer(Interlocked.Increment(ref attempts), request, () => onwards.SendAsync(request, cancellation));
}

/// <summary>Never answers.</summary>
sealed class Silent : HttpMessageHandler {
    protected override async Task<HttpResponseMessage> SendAsync(HttpRequestMessage request, CancellationToken cancellation) {
        await Task.Delay(Timeout.Infinite, cancellation);
        return null;
    }
}

/// <summary>The bytes of an answer, which tell when they are disposed.</summary>
sealed class Told : MemoryStream {
    public static int Disposed;

    public Told(string text) : base(Encoding.UTF8.GetBytes(text)) { }

    protected override void Dispose(bool disposing) {
        Interlocked.Increment(ref Disposed);
        base.Dispose(disposing);
    }
}

static class Session {
    static readonly JObject found = new JObject();
    static string url;
    static string key;

    static int Main(string[] arguments) {
        url = arguments[0];
        key = arguments[1];
        RunAsync().GetAwaiter().GetResult();
        Console.WriteLine(found.ToString());
        return 0;
    }

    static async Task RunAsync() {
        using (var game = new Client(url + "/", key)) {
            await ReadAsync(game);
            await RankOfflineAsync(game);
            await PostAsync(game);
            await PostToFamilyAsync(game);
            await FollowAsync(game);
            await UseTokensAsync(game);
        }
        await FailAsync();
        await RepeatAsync();
    }

    static async Task ReadAsync(Client game) {
        IReadOnlyList<Position> positions = await game.PositionsAsync("high", "p7", new[] { "xp" }, "exact", next: true);
        found["positions"] = positions[0].Json;
        found["typed"] = new JArray(positions[0].Value, positions[0].Rank, positions[0].Low, positions[0].High, positions[0].Total,
            positions[0].Percentile, positions[0].AsOf.Value.UtcDateTime.Year, positions[0].Tier, positions[0].TierCertain,
            positions[0].Next["rank"]);
        found["around"] = (await game.AroundAsync("high", "p7", "xp", 1, 1)).Json;
        found["entry"] = (await game.EntryAsync("low", "p7")).Json;
        Lookup friends = await game.LookupAsync("high", new[] { "p7", "p8", "nobody" }, "xp");
        found["lookup"] = friends.Json;
        found["friends"] = new JArray(friends.Entries.Select(entry => $"{entry.Place} {entry.Owner} {entry.Position.Rank}"));
        found["missing"] = new JArray(friends.Missing);
        found["fromRank"] = (await game.TopAsync("high", "xp", 2, fromRank: 100)).Json;
        var owners = new JArray();
        for (Page page = await game.TopAsync("high", "xp", 400); ; page = await game.TopAsync("high", "xp", 400, cursor: page.Next)) {
            foreach (Row row in page.Rows) {
                owners.Add(row.Owner);
            }
            if (page.Next == null) {
                break;
            }
        }
        found["owners"] = owners;
        found["row"] = (await game.TopAsync("low", "xp", 1)).Rows[0].Value;
        IReadOnlyList<Grant> open = await game.OwnerGrantsAsync("ada", "open");
        found["granted"] = new JArray(open.Select(each => $"{each.Owner} {each.Board} {each.Reward} {each.Rank} {each.Data["coins"]}"));
        Grant claimed = await game.ClaimGrantAsync(open[0].Id), again = await game.ClaimGrantAsync(open[0].Id);
        found["claimed"] = new JArray(claimed.First, again.First, claimed.ClaimedAt == again.ClaimedAt, open[0].ClaimedAt,
            (await game.OwnerGrantsAsync("ada", "open")).Count);
        found["families"] = (await game.RequestAsync(HttpMethod.Get, "/v1/families"))["families"];
    }

    static async Task RankOfflineAsync(Client game) {
        foreach (string board in new[] { "high", "low" }) {
            OfflineCurve curve = await game.CurveAsync(board, "xp");
            decimal[] values = Enumerable.Range(0, 300).Select(index => board == "high" ? index * 19 : index * 1.25m).ToArray();
            OfflineCurve kept = OfflineCurve.Parse(curve.Document.ToString());
            found["offline " + board] = new JArray(values.Select(value => Bracketed(curve.Rank(value))));
            found["kept " + board] = new JArray(values.Select(value => Bracketed(kept.Rank(value))));
            found["tiers " + board] = new JArray(values.Select(value => {
                var tier = curve.Tier(value);
                return new JArray(tier.Name, tier.Certain);
            }));
            found["unchanged " + board] = await game.RenewCurveAsync(curve) == curve;
            await game.PostAsync(board, new Post("renewer") { ["xp"] = 1 });
            await game.RequestAsync(HttpMethod.Post, $"/v1/leaderboards/{board}/rankings/xp/refresh");
            OfflineCurve renewed = await game.RenewCurveAsync(curve);
            found["renewed " + board] = new JArray((int)curve.Document["total"], (int)renewed.Document["total"]);
        }
    }

    static JArray Bracketed(Bracket bracket) => new JArray(bracket.Rank, bracket.Low, bracket.High, bracket.Exact);

    static async Task PostAsync(Client game) {
        // The answers of two attempts are lost on the way, one is what a proxy says, and one that of a busy service.
        var lossy = new Between(async (attempt, request, send) => {
            if (attempt == 3) {
                return new HttpResponseMessage(HttpStatusCode.Unauthorized) { Content = new StringContent("<html>") };
            }
            HttpResponseMessage answer = await send();
            return attempt == 1 || attempt == 2 ? throw new HttpRequestException("the answer was lost") : answer;
        });
        using (var client = new Client(url, key, handler: lossy)) {
            IReadOnlyList<PostResult> posted = await client.PostAsync("high", new Post("new") { ["xp"] = 5 });
            found["lost"] = new JArray(lossy.Attempts, posted[0].Status, posted[0].Owner, posted[0].Stats);
        }
        Post[] often = Enumerable.Range(0, 1500).Select(_ => new Post("often") { ["xp"] = 1 }).ToArray();
        found["many"] = (await game.PostAsync("high", often)).Count;
        Post kept = Post.Parse(new Post("kept") { ["xp"] = 2.5f * 2, At = DateTimeOffset.UtcNow }.ToString());
        await game.PostAsync("high", kept);
        found["kept"] = (await game.PostAsync("high", kept))[0].Status;
        PostResult placed = await game.PostOneAsync("high", new Post("best") { ["xp"] = 9000 }, new[] { "xp" }, moved: true);
        found["placed"] = new JArray(placed.Positions[0].Rank, placed.Positions[0].RankBefore);
        await game.PostAsync("low", new Post("float") { ["xp"] = 58.25f }, new Post("double") { ["xp"] = 0.1 },
            new Post("decimal") { ["xp"] = 1.50m }, new Post("text") { ["xp"] = "7.25" });
        Lookup numbers = await game.LookupAsync("low", new[] { "float", "double", "decimal", "text" });
        found["numbers"] = new JArray(numbers.Entries.Select(entry => entry.Stats["xp"]));
        foreach (string owner in new[] { "a/b?c#d", "%2F ü\\ +&=", "e\u0301", "\ud83c\udfc1" }) {
            await game.PostAsync("high", new Post(owner) { ["xp"] = 3 });
            found["owner " + owner] = (await game.EntryAsync("high", owner)).Owner;
        }
        found["rejected"] = await CodeOfAsync(async () => {
            try {
                await game.PostAsync("high", new Post("fine") { ["xp"] = 1 }, new Post("bad") { ["xp"] = 1, ["none"] = 1 });
            } catch (PostsRejectedException error) {
                throw new InvalidOperationException(string.Join(",", error.Results.Select(result => result.Status)));
            }
        });
        found["refused"] = await CodeOfAsync(() => game.PostAsync("high", new Post("") { ["xp"] = 1 }));
    }

    static async Task PostToFamilyAsync(Client game) {
        await game.PostToFamilyAsync("season", new Post("ada") { ["xp"] = 9 }.WithFacet("clan", "fox"));
        await game.PostToLeagueAsync("zenith", new Post("ada") { ["xp"] = 9 }, new Post("bob") { ["xp"] = 8 });
        LeagueOwner own = await game.LeagueOwnerAsync("zenith", "bob");
        found["league"] = new JArray(own.Division, own.Cohort, own.Position, own.EndsAt > DateTimeOffset.UtcNow,
            own.Rows[0].Owner, own.Rows[0].Rank, own.Rows[0].Value, own.Rows[0].Zone);
        PostResult placed = await game.PostOneToFamilyAsync("season", new Post("bob") { ["xp"] = 12 }, new[] { "xp" }, true);
        found["family"] = new JArray(placed.Boards.Select(each => new JArray(each.Board.Split(':')[0], each.Status,
            each.Positions[0].Rank)));
        found["week"] = (await game.PositionsAsync("season:this-week:clan=fox", "ada"))[0].Rank;
    }

    static async Task FollowAsync(Client game) {
        // The first connection breaks after its first event. Over the second one comes what is posted then.
        string resumed = null;
        HttpResponseMessage first = null;
        var breaking = new Between(async (attempt, request, send) => {
            HttpResponseMessage answer = await send();
            if (attempt == 1) {
                first = answer;
            } else {
                resumed = request.Headers.GetValues("Last-Event-ID").Single();
                await game.PostAsync("high", new Post("p7") { ["xp"] = 10000 });
            }
            return answer;
        });
        using (var client = new Client(url, key, handler: breaking))
        using (RankingStream stream = client.Stream("high", "xp", owner: "p7")) {
            StreamEvent before = await stream.NextAsync();
            first.Dispose();
            StreamEvent after = await stream.NextAsync();
            found["followed"] = new JArray(before.Kind, after.Kind, after.Position.Rank, resumed == before.Id);
        }
        using (RankingStream top = game.Stream("high", "xp", top: 3)) {
            found["top"] = new JArray((await top.NextAsync()).Top.Rows.Select(row => row.Owner));
            Task<StreamEvent> waiting = top.NextAsync();
            top.Dispose();
            found["ended"] = await CodeOfAsync(() => waiting);
        }
        found["nowhere"] = await CodeOfAsync(() => game.Stream("none", "xp", top: 3).NextAsync());
    }

    static async Task UseTokensAsync(Client game) {
        int asked = 0;
        Func<Task<string>> ask = () => {
            asked++;
            return game.IssueTokenAsync(new JObject { { "owner", "tess" }, { "boards", new JArray("high") } });
        };
        using (var player = new Client(url, ask)) {
            Post post = Post.Parse(new Post("tess") { N = 0, ["xp"] = 5 }.ToString());
            var posted = new[] { await player.PostOneAsync("high", post), await player.PostOneAsync("high", post) };
            await game.VoidTokensAsync("tess");
            using (RankingStream stream = player.Stream("high", "xp", owner: "tess")) {
                found["byToken"] = new JArray(posted[0].Status, posted[1].Status, (await stream.NextAsync()).Position.Value, asked);
            }
        }
        foreach (bool isLost in new[] { false, true }) {
            int number = 0;
            var sent = new JArray();
            var refusing = new Between((attempt, request, send) => {
                sent.Add(request.Headers.Authorization.Parameter);
                string problem = "{\"type\":\"urn:rankcurve:problem:token_expired\",\"code\":\"token_expired\"}";
                var content = new StringContent(problem, Encoding.UTF8, "application/problem+json");
                return isLost && attempt == 1 ? Task.FromException<HttpResponseMessage>(new HttpRequestException("lost"))
                    : Task.FromResult(new HttpResponseMessage(HttpStatusCode.Unauthorized) { Content = content });
            });
            using (var client = new Client(url, () => Task.FromResult("t" + ++number), handler: refusing)) {
                sent.Add(await CodeOfAsync(() => client.PostAsync("high", new Post("ada") { N = 0, ["xp"] = 1 })));
            }
            found["tokens" + (isLost ? " lost" : "")] = sent;
        }
        found["badToken"] = await CodeOfAsync(() => new Client(url, () => Task.FromResult("t 1")).EntryAsync("high", "p7"));
    }

    static async Task FailAsync() {
        var game = new Client(url, key);
        found["unknown"] = await CodeOfAsync(() => game.EntryAsync("high", "nobody"));
        found["joined"] = await CodeOfAsync(() => game.JoinAsync("high", "p7"));
        found["badKey"] = await CodeOfAsync(() => new Client(url, "rk_0_0").EntryAsync("high", "p7"));
        found["away"] = await CodeOfAsync(() => new Client("http://127.0.0.1:9", attemptsMax: 2).EntryAsync("high", "p7"));
        var silent = new Client(url, key, handler: new Silent());
        Task<Entry> abandoned = silent.EntryAsync("high", "p7");
        silent.Dispose();
        found["disposed"] = await CodeOfAsync(() => abandoned);
        found["dots"] = new JArray();
        foreach (string name in new[] { ".", ".." }) {
            await game.PostAsync("high", new Post(name) { ["xp"] = 7 });
            ((JArray)found["dots"]).Add((await game.EntryAsync("high", name)).Owner);
            await game.EraseEntryAsync("high", name);
            ((JArray)found["dots"]).Add(await CodeOfAsync(() => game.EntryAsync("high", name)));
        }
        found["late"] = await CodeOfAsync(() => new Client(url, key, 0.01, 2, new Silent()).EntryAsync("high", "p7"));
        foreach (string text in new[] { "{}", "<html>", "[1]", "{\"owner\":\"other\",\"stats\":{}}" }) {
            found["foreign " + text] = await CodeOfAsync(() => Answering(text).EntryAsync("high", "p7"));
        }
        foreach (string text in new[] { "data: {\n\n", "id: é\ndata: {}\n\n", new string('x', (1 << 20) + 1), "event: top\ndata: {\n\n" }) {
            string name = "nonsense " + text.Substring(0, Math.Min(20, text.Length));
            found[name] = await CodeOfAsync(() => Answering(text).Stream("high", "xp", top: 1).NextAsync());
        }
        string withPassword = url.Replace("//", "//ada:rk_a_b@");
        var bad = new[] { (url, "rk_a_b\n"), (url, "rk_a b"), (url, "rk_é"), (withPassword, key), ("nonsense rk_", key), ("file:///rk_", key) };
        found["badAddresses"] = new JArray(bad.Select(each => {
            try {
                return new Client(each.Item1, each.Item2).ToString();
            } catch (ArgumentException error) {
                return error.Message.Contains("rk_") ? "shown" : "refused";
            }
        }));
    }

    static Client Answering(string text) => new Client(url, key, attemptsMax: 1, handler: new Between((attempt, request, send) =>
        Task.FromResult(new HttpResponseMessage { Content = new StreamContent(new Told(text)) })));

    /// <summary>Repeat posts and streams ten thousand times, and count what is left open.</summary>
    static async Task RepeatAsync() {
        const int times = 10000;
        int answers = 0;
        var seen = new HashSet<string>();
        var failing = new Between(async (attempt, request, send) => {
            if (request.Method == HttpMethod.Get) {
                Interlocked.Increment(ref answers);
                string events = $"retry: 0\n\nid: {attempt}\nevent: position\ndata: {{\"column\":\"xp\",\"rank\":{attempt}}}\n\n";
                return new HttpResponseMessage { Content = new StreamContent(new Told(events)) };
            }
            JToken post = JObject.Parse(await request.Content.ReadAsStringAsync())["posts"][0];
            bool isFirst;
            lock (seen) {
                isFirst = seen.Add((string)post["post_id"]);
            }
            Interlocked.Increment(ref answers);
            string text = "{\"results\":[{\"owner\":\"ada\",\"status\":\"applied\"}]}";
            var status = isFirst ? HttpStatusCode.BadGateway : HttpStatusCode.OK;
            return new HttpResponseMessage(status) { Content = new StreamContent(new Told(text)) };
        });
        Told.Disposed = 0;
        using (var client = new Client("http://127.0.0.1:9", handler: failing)) {
            await Task.WhenAll(Enumerable.Range(0, times).Select(_ => client.PostAsync("high", new Post("ada") { ["xp"] = 1 })));
            await Task.WhenAll(Enumerable.Range(0, times).Select(_ => FollowTwiceAsync(client)));
        }
        found["repeated"] = new JArray(seen.Count, answers, Told.Disposed);
    }

    static async Task FollowTwiceAsync(Client client) {
        using (RankingStream stream = client.Stream("high", "xp", owner: "ada")) {
            await stream.NextAsync();
            await stream.NextAsync();
        }
    }

    /// <summary>Return the name of the error, and the status and the code of a refusal.</summary>
    static async Task<JToken> CodeOfAsync(Func<Task> ask) {
        try {
            await ask();
            return "no error";
        } catch (ApiException error) {
            return new JArray(error.GetType().Name, error.Status, error.Code);
        } catch (InvalidOperationException error) {
            return error.Message;
        } catch (Exception error) {
            return error.GetType().Name;
        }
    }
}
