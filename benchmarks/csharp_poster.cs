// Post with the C# client until standard input ends, for client_faults: mono csharp_poster.exe URL BOARD OWNERS FILE.
// FILE keeps posts before they are sent, and has a line SETTLED after those that were answered.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Threading.Tasks;
using Rankcurve;

static class Poster {
    const string Settled = "settled";
    const int PostsMax = 50; // of a request
    const int PauseMs = 5; // between two requests, so that one run does not make millions of posts

    static readonly Random random = new Random();

    static void Main(string[] arguments) {
        RunAsync(arguments[0], arguments[1], int.Parse(arguments[2]), arguments[3]).GetAwaiter().GetResult();
    }

    static async Task RunAsync(string url, string board, int owners, string file) {
        Task<string> input = Task.Run(() => Console.In.ReadToEnd());
        using (var game = new Client(url)) {
            Console.WriteLine("ready");
            await SettleAsync(game, board, ReadLeft(file));
            using (var kept = new StreamWriter(file) { AutoFlush = true }) {
                while (!input.IsCompleted) {
                    Post[] posts = Enumerable.Range(0, random.Next(1, PostsMax)).Select(_ => MakePost(owners)).ToArray();
                    foreach (Post post in posts) {
                        kept.WriteLine(post.ToString());
                        Console.WriteLine("submitted " + post.Id);
                    }
                    await SettleAsync(game, board, posts);
                    kept.WriteLine(Settled);
                    await Task.Delay(PauseMs);
                }
            }
        }
    }

    static Post MakePost(int owners) =>
        new Post("owner-" + random.Next(owners)) { ["xp"] = random.Next(1, 100), ["posts"] = 1 };

    // Return the posts that an earlier process has kept, and was perhaps not answered. It did not submit a line without end.
    static Post[] ReadLeft(string file) {
        IEnumerable<string> lines = File.Exists(file) ? File.ReadAllText(file).Split('\n').Reverse().Skip(1) : new string[0];
        return lines.TakeWhile(line => line != Settled).Select(Post.Parse).ToArray();
    }

    // Send posts until the service answers. What may pass is any error but a refusal by the service itself.
    static async Task SettleAsync(Client game, string board, Post[] posts) {
        while (posts.Length > 0) {
            try {
                foreach (PostResult result in await game.PostAsync(board, posts)) {
                    Console.WriteLine("settled " + result.Status);
                }
                return;
            } catch (RankcurveException error) when ((error as ApiException)?.IsFinal != true) { // again
            }
        }
    }
}
