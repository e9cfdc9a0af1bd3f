// Play the sample scene's script without Unity: mono csharp_unity.exe URL. Frame after frame, prints what it newly shows,
// and ends the game at the end of its input.
using System;
using System.Collections.Concurrent;
using System.Reflection;
using System.Threading;
using System.Threading.Tasks;
using UnityEngine;

namespace UnityEngine {
    public class MonoBehaviour { }

    public static class GUILayout {
        public static string Shown;

        public static void Label(string text) {
            if (text != Shown) {
                Shown = text;
                Console.WriteLine(text.Replace("\n", " | "));
            }
        }
    }
}

/// <summary>Runs on the main thread what goes on after an await there, as Unity's does.</summary>
sealed class FrameContext : SynchronizationContext {
    readonly BlockingCollection<Action> waiting = new BlockingCollection<Action>();

    public override void Post(SendOrPostCallback work, object state) => waiting.Add(() => work(state));

    public void RunFrame() {
        while (waiting.TryTake(out Action work, TimeSpan.FromMilliseconds(10))) {
            work();
        }
    }
}

static class Game {
    const int FramesMax = 3000;

    static int Main(string[] arguments) {
        var frames = new FrameContext();
        SynchronizationContext.SetSynchronizationContext(frames);
        Task<bool> staying = StaysOnThreadAsync(arguments[0]);
        var board = new RacingBoard { url = arguments[0] };
        Call(board, "OnEnable");
        Task<string> input = Task.Run(() => Console.In.ReadToEnd());
        while (!input.IsCompleted || !staying.IsCompleted) {
            frames.RunFrame();
            Call(board, "OnGUI");
        }
        string last = GUILayout.Shown;
        Call(board, "OnDisable");
        for (int frame = 0; frame < FramesMax && GUILayout.Shown == last; frame++) {
            frames.RunFrame();
            Call(board, "OnGUI");
        }
        return staying.Result ? 0 : 1;
    }

    static async Task<bool> StaysOnThreadAsync(string url) {
        int thread = Thread.CurrentThread.ManagedThreadId;
        using (var game = new Rankcurve.Client(url)) {
            await game.TopAsync("laps", "lap");
            await game.Stream("laps", "lap", top: 1).NextAsync();
            return thread == Thread.CurrentThread.ManagedThreadId;
        }
    }

    static void Call(object script, string method) =>
        script.GetType().GetMethod(method, BindingFlags.Instance | BindingFlags.NonPublic).Invoke(script, null);
}
