using System;
using System.Collections.Generic;
using System.Linq;
using Newtonsoft.Json.Linq;

namespace Rankcurve {
    /// <summary>The request failed. Every error of the client is one of these.</summary>
    public class RankcurveException : Exception {
        internal RankcurveException(string message, Exception cause = null) : base(message, cause) { }
    }

    /// <summary>No answer came, so a post may or may not have been applied. Send the same <c>Post</c> again.</summary>
    public sealed class UnreachableException : RankcurveException {
        internal UnreachableException(string message, Exception cause = null) : base(message, cause) { }
    }

    /// <summary>The answer does not come from the service, or belongs to another request.</summary>
    public sealed class UnexpectedAnswerException : RankcurveException {
        internal UnexpectedAnswerException(string message, Exception cause = null) : base(message, cause) { }
    }

    /// <summary>The service, or a proxy in front of it, rejected the request.</summary>
    public sealed class ApiException : RankcurveException {
        const string ProblemTypes = "urn:rankcurve:problem:"; // every problem of the service has a type of this kind

        public int Status { get; }
        /// <summary>The document in which the service says why, without members if it did not.</summary>
        public JToken Problem { get; }
        /// <summary>A stable code, such as <c>unknown_board</c>, or null if the service did not say.</summary>
        public string Code => Problem.Text("code");
        /// <summary>True if the service itself rejected the request and would do so again. Other errors may
        /// pass.</summary>
        public bool IsFinal => Problem.Text("type")?.StartsWith(ProblemTypes, StringComparison.Ordinal) == true
            && Status < 500 && Status != 408 && Status != 429;
        internal double RetryAfterS { get; }

        internal ApiException(int status, JToken problem, string retryAfter)
            : base($"{problem.Text("title") ?? "refused"} ({status}): {problem.Text("detail")}") {
            Status = status;
            Problem = problem;
            RetryAfterS = uint.TryParse(retryAfter, out uint seconds) ? seconds : 0;
        }
    }

    /// <summary>The service rejected some posts, and stored the others.</summary>
    public sealed class PostsRejectedException : RankcurveException {
        /// <summary>The results of all posts in the call, in order.</summary>
        public IReadOnlyList<PostResult> Results { get; }

        internal PostsRejectedException(IReadOnlyList<PostResult> results)
            : base($"posts were rejected; the first: {results.First(result => result.Status == "rejected").Json}") {
            Results = results;
        }
    }
}
