using System;
using System.Collections.Generic;
using System.Globalization;
using System.Linq;
using System.Net;
using System.Net.Http;
using System.Net.Http.Headers;
using System.Text;
using System.Threading;
using System.Threading.Tasks;
using Newtonsoft.Json;
using Newtonsoft.Json.Linq;

namespace Rankcurve {
    // Sends a request until it succeeds or is finally rejected, at most attemptsMax times, if a retry does no harm.
    sealed class Transport : IDisposable {
        const double PauseS = 0.2; // the least before the second attempt; it doubles with each further one
        const double PauseMaxS = 30;
        const int ConnectionsMax = 16; // .NET's own limit may be two for each service, and a stream keeps one

        readonly string url;
        readonly Func<Task<string>> askKey;
        readonly TimeSpan timeout;
        readonly int attemptsMax;
        readonly HttpClient http;
        readonly object guard = new object();
        Task<string> key; // what askKey returned last; null at first

        public Transport(string url, Func<Task<string>> askKey, double timeoutS, int attemptsMax,
            HttpMessageHandler handler) {
            bool isAddress = Uri.TryCreate(url, UriKind.Absolute, out Uri uri) && uri.Scheme.StartsWith("http");
            if (!isAddress || uri.UserInfo + uri.Query + uri.Fragment != "") {
                throw new ArgumentException("the address is not http:// or https:// with a host, a port and a path");
            }
            this.url = url.TrimEnd('/');
            this.askKey = askKey;
            this.attemptsMax = attemptsMax;
            timeout = TimeSpan.FromSeconds(timeoutS);
            http = new HttpClient(handler ?? MakeHandler()) { Timeout = Timeout.InfiniteTimeSpan };
        }

        // Return a key, which may be null. If it can't be sent, throw an ArgumentException that does not show the key.
        public static string CheckKey(string key) => key?.All(letter => letter > ' ' && letter <= '~') != false ? key
            : throw new ArgumentException("the API key has a line end, a space, or a character that no key has");

        static HttpMessageHandler MakeHandler() => new HttpClientHandler {
            AllowAutoRedirect = false, // a redirect by a proxy would make a GET of a POST
            AutomaticDecompression = DecompressionMethods.GZip,
            MaxConnectionsPerServer = ConnectionsMax,
            UseCookies = false,
        };

        // It is cancelled when the client is disposed.
        public CancellationTokenSource Ending { get; } = new CancellationTokenSource();

        public void Dispose() {
            Ending.Cancel();
            http.Dispose();
        }

        // Return the path of these names. Uri takes . and .. for folders, so they get an ending that the service drops.
        public static string PathOf(params string[] names) => "/v1/" + string.Join("/", names.Select(name =>
            Uri.EscapeDataString(name) + (name == "." || name == ".." ? "%25%7F" : "")));

        // Return a path with a query. Members that are null or false are left out; lists are joined by commas.
        public static string WithQuery(string path, params (string Name, object Value)[] members) {
            string[] query = members.Where(member => member.Value != null && !false.Equals(member.Value))
                .Select(member => member.Name + "=" + Uri.EscapeDataString(TextOf(member.Value))).ToArray();
            return query.Length == 0 ? path : path + "?" + string.Join("&", query);
        }

        static string TextOf(object value) =>
            value is Array many ? string.Join(",", many.Cast<object>().Select(TextOf))
            : value is bool ? "true" : Convert.ToString(value, CultureInfo.InvariantCulture);

        // Send a request until it is answered. Return the result of read, which gets the JSON (null if there is none)
        // and the ETag. A request that is not repeatable is sent again only after a 429, because the service rejected
        // it unread. Numbered posts belong to a token, so those that may have been applied are not sent with another
        // one.
        public async Task<T> SendAsync<T>(HttpMethod method, string path, JToken body, Func<JToken, string, T> read,
            bool repeatable = true, string tag = null, bool numbered = false) {
            for (int attempt = 1; ; attempt++) {
                double askedS;
                try {
                    bool mayRenew = attempt == 1 || !numbered;
                    var opening = OpenAsync(method, path, body, "If-None-Match", tag, mayRenew: mayRenew);
                    using (HttpResponseMessage answer = await opening.ConfigureAwait(false)) {
                        JToken json = await ReadAsync(answer).ConfigureAwait(false);
                        return Json.Understand(() => read(json, HeaderOf(answer, "ETag")));
                    }
                } catch (RankcurveException error) when (attempt < attemptsMax && MayPass(error, repeatable)) {
                    askedS = (error as ApiException)?.RetryAfterS ?? 0;
                }
                await Task.Delay(DrawPause(attempt, askedS), Ending.Token).ConfigureAwait(false);
            }
        }

        static bool MayPass(RankcurveException error, bool repeatable) =>
            (error as ApiException)?.Status == 429 || (repeatable && (error as ApiException)?.IsFinal != true);

        // Return a random pause, so that clients that failed together do not all come back together.
        public TimeSpan DrawPause(int attempt, double askedS = 0) {
            double part = new Random(Guid.NewGuid().GetHashCode()).NextDouble();
            double leastS = Math.Min(PauseMaxS, PauseS * Math.Pow(2, attempt)) * (1 + part) / 2;
            return TimeSpan.FromSeconds(Math.Min(PauseMaxS, Math.Max(leastS, askedS * (1 + part / 2))));
        }

        // Send a request once, with one more header if that has a value. If its token has expired or was voided, send
        // the request once more with a new token. Return the answer; an endless one is returned once it begins.
        public async Task<HttpResponseMessage> OpenAsync(HttpMethod method, string path, JToken body, string header,
            string value, bool endless = false, bool mayRenew = true) {
            Task<string> sent = GiveKey(null);
            while (true) {
                string bearer = await sent.ConfigureAwait(false);
                var sending = SendOnceAsync(method, path, body, header, value, endless, bearer);
                HttpResponseMessage answer = await sending.ConfigureAwait(false);
                if (answer.StatusCode != HttpStatusCode.Unauthorized || !mayRenew) {
                    return answer;
                }
                using (answer) {
                    try {
                        await ReadAsync(answer).ConfigureAwait(false); // throws
                    } catch (ApiException error) when (error.Code == "token_expired" || error.Code == "token_voided") {
                        sent = GiveKey(sent);
                        mayRenew = false;
                    }
                }
            }
        }

        // Return the current key, or a new one in place of the key that was rejected.
        Task<string> GiveKey(Task<string> refused) {
            lock (guard) {
                bool isGood = key != null && key != refused && !key.IsFaulted && !key.IsCanceled;
                return key = isGood ? key : AskKeyAsync();
            }
        }

        async Task<string> AskKeyAsync() => CheckKey(await askKey().ConfigureAwait(false));

        async Task<HttpResponseMessage> SendOnceAsync(HttpMethod method, string path, JToken body, string header,
            string value, bool endless, string bearer) {
            var request = new HttpRequestMessage(method, url + path);
            request.Headers.Authorization = bearer == null ? null : new AuthenticationHeaderValue("Bearer", bearer);
            request.Headers.ExpectContinue = false;
            if (!string.IsNullOrEmpty(value)) {
                request.Headers.TryAddWithoutValidation(header, value);
            }
            if (body != null) {
                request.Content = new StringContent(body.ToString(Formatting.None), Encoding.UTF8, "application/json");
            }
            var until = endless ? HttpCompletionOption.ResponseHeadersRead : HttpCompletionOption.ResponseContentRead;
            using (var limit = CancellationTokenSource.CreateLinkedTokenSource(Ending.Token)) {
                limit.CancelAfter(timeout);
                try {
                    var answer = await http.SendAsync(request, until, limit.Token).ConfigureAwait(false);
                    if (!answer.IsSuccessStatusCode) {
                        await answer.Content.LoadIntoBufferAsync().ConfigureAwait(false);
                    }
                    return answer;
                } catch (Exception cause) {
                    Ending.Token.ThrowIfCancellationRequested();
                    string why = (cause.InnerException ?? cause).Message;
                    throw new UnreachableException($"no answer from {url}: {why}", cause);
                }
            }
        }

        // Return the JSON of an answer, or null if it has none. Throws ApiException unless it is a success, or 304.
        public static async Task<JToken> ReadAsync(HttpResponseMessage answer) {
            string text = Encoding.UTF8.GetString(await answer.Content.ReadAsByteArrayAsync().ConfigureAwait(false));
            if (answer.IsSuccessStatusCode || answer.StatusCode == HttpStatusCode.NotModified) {
                return text == "" ? null : Json.Understand(() => Json.Parse(text));
            }
            bool isProblem = answer.Content.Headers.ContentType?.MediaType == "application/problem+json";
            JToken problem = isProblem ? Json.Understand(() => Json.Parse(text)) : new JObject();
            throw new ApiException((int)answer.StatusCode, problem, HeaderOf(answer, "Retry-After"));
        }

        static string HeaderOf(HttpResponseMessage answer, string name) =>
            answer.Headers.TryGetValues(name, out IEnumerable<string> values) ? values.First() : null;
    }
}
