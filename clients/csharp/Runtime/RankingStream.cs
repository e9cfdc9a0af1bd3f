using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Net.Http;
using System.Threading;
using System.Threading.Tasks;

namespace Rankcurve {
    /// <summary>A stream of changes to the top of a ranking, or to an owner's position. After an interruption it
    /// continues where it stopped. Ask for one event at a time.</summary>
    public sealed class RankingStream : IDisposable {
        const int EventCharsMax = 1 << 20;
        const int ChunkChars = 4096;
        const int AttemptsMax = 1000; // in a row; with the longest pauses these are eight hours
        const double PauseMsMax = 60000;
        static readonly TimeSpan SilenceMax = TimeSpan.FromSeconds(60); // the service sends something more often

        readonly Transport transport;
        readonly string path;
        readonly CancellationTokenSource ending;
        readonly Queue<StreamEvent> events = new Queue<StreamEvent>();
        double pauseMs = 1000; // before a stream is opened again, unless the service asks for another time
        string lastId;
        StreamReader reader; // null while the stream is not open
        string rest; // the letters of an event that has not ended yet

        internal RankingStream(Transport transport, string path, string lastEventId) {
            this.transport = transport;
            this.path = path;
            lastId = lastEventId;
            ending = CancellationTokenSource.CreateLinkedTokenSource(transport.Ending.Token);
        }

        /// <summary>End the stream. A waiting <c>NextAsync</c> ends with an OperationCanceledException.</summary>
        public void Dispose() {
            ending.Cancel();
            Close();
        }

        void Close() {
            reader?.Dispose();
            reader = null;
        }

        /// <summary>Return the next event once it arrives. Throws ApiException if the service rejects the
        /// stream.</summary>
        public async Task<StreamEvent> NextAsync() {
            for (int failed = 0; events.Count == 0; failed++) {
                try {
                    reader = reader ?? await OpenAsync().ConfigureAwait(false);
                    while (events.Count == 0) {
                        string letters = await ReadAsync().ConfigureAwait(false);
                        Json.Understand(() => AddEvents(rest + letters));
                        failed = 0;
                    }
                } catch (RankcurveException error) when (failed < AttemptsMax && MayPass(error)) {
                    Close();
                    TimeSpan pause = TimeSpan.FromMilliseconds(pauseMs) + transport.DrawPause(failed);
                    await Task.Delay(pause, ending.Token).ConfigureAwait(false);
                } catch {
                    Close();
                    ending.Token.ThrowIfCancellationRequested();
                    throw;
                }
            }
            return events.Dequeue();
        }

        static bool MayPass(RankcurveException error) =>
            error is UnreachableException || (error as ApiException)?.IsFinal == false;

        async Task<StreamReader> OpenAsync() {
            HttpResponseMessage answer = await transport
                .OpenAsync(HttpMethod.Get, path, null, "Last-Event-ID", lastId, endless: true).ConfigureAwait(false);
            if (!answer.IsSuccessStatusCode) {
                await Transport.ReadAsync(answer).ConfigureAwait(false); // throws
            }
            rest = "";
            return new StreamReader(await answer.Content.ReadAsStreamAsync().ConfigureAwait(false));
        }

        // Return some characters. Throws UnreachableException if no more arrive.
        async Task<string> ReadAsync() {
            var chunk = new char[ChunkChars];
            using (var limit = CancellationTokenSource.CreateLinkedTokenSource(ending.Token)) {
                Task<int> reading = reader.ReadAsync(chunk, 0, chunk.Length);
                await Task.WhenAny(reading, Task.Delay(SilenceMax, limit.Token)).ConfigureAwait(false);
                limit.Cancel();
                ending.Token.ThrowIfCancellationRequested();
                bool hasRead = reading.Status == TaskStatus.RanToCompletion && reading.Result > 0;
                return hasRead ? new string(chunk, 0, reading.Result)
                    : throw new UnreachableException("the stream has ended", reading.Exception);
            }
        }

        // Add the events that are complete, and return their number.
        int AddEvents(string letters) {
            string[] parts = letters.Split(new[] { "\n\n" }, StringSplitOptions.None);
            rest = parts.Last();
            if (rest.Length > EventCharsMax) {
                throw new UnexpectedAnswerException($"an event of the stream has more than {EventCharsMax} characters");
            }
            parts.Take(parts.Length - 1).ToList().ForEach(AddEvent);
            return events.Count;
        }

        void AddEvent(string lines) {
            var fields = lines.Split('\n').Select(line => line.Split(new[] { ':' }, 2))
                .ToLookup(parts => parts[0], parts => parts.Last().TrimStart());
            pauseMs = uint.TryParse(fields["retry"].LastOrDefault(), out uint ms) ? Math.Min(ms, PauseMsMax) : pauseMs;
            string id = fields["id"].LastOrDefault() ?? lastId;
            if (id.Any(letter => letter < ' ' || letter > '~')) {
                throw new UnexpectedAnswerException("an event has no valid id");
            }
            if (fields["data"].LastOrDefault() is string data) { // a heartbeat has none
                events.Enqueue(new StreamEvent(fields["event"].LastOrDefault(), id, Json.Parse(data)));
                lastId = id;
            }
        }
    }
}
