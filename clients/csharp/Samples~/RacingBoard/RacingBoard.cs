using System;
using System.Linq;
using System.Threading.Tasks;
using Rankcurve;
using UnityEngine;

/// <summary>Shows the best laps, and the player among friends. Put it on an empty object, and play.</summary>
public class RacingBoard : MonoBehaviour {
    public string url = "http://127.0.0.1:8080";
    public string player = "ada";
    public string[] friends = { "bob", "cy" };

    Client game;
    string shown = "…";

    async void OnEnable() {
        game = new Client(url);
        try {
            await FinishLap(58.25f);
            for (RankingStream best = game.Stream("laps", "lap", top: 10); ;) {
                await Show((await best.NextAsync()).Top);
            }
        } catch (Exception error) when (error is RankcurveException || error is OperationCanceledException) {
            shown = error.Message; // the service refuses, or the object is disabled
        }
    }

    void OnDisable() => game.Dispose();

    public Task FinishLap(float seconds) =>
        game.PostAsync("laps", new Post(player) { ["lap"] = Math.Round((decimal)seconds, 3) });

    async Task Show(Page top) {
        Lookup found = await game.LookupAsync("laps", friends.Append(player).ToArray(), "lap");
        var rows = top.Rows.Select(row => $"{row.Rank}. {row.Owner} {row.Value}");
        var places = found.Entries.OrderBy(each => each.Place).Select(each => $"{each.Owner} is #{each.Position.Rank}");
        shown = string.Join("\n", rows.Concat(places));
    }

    void OnGUI() => GUILayout.Label(shown);
}
