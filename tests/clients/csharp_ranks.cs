// Rank offline: mono csharp_ranks.exe FILE. Each line of FILE has the document of a curve and questions; prints their ranks.
using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Linq;
using Newtonsoft.Json;
using Newtonsoft.Json.Linq;
using Rankcurve;

static class Ranks {
    static void Main(string[] arguments) {
        foreach (string line in File.ReadLines(arguments[0])) {
            var reader = new JsonTextReader(new StringReader(line)) {
                DateParseHandling = DateParseHandling.None, FloatParseHandling = FloatParseHandling.Decimal,
            };
            JToken json = JToken.ReadFrom(reader);
            OfflineCurve curve = OfflineCurve.Parse((string)json["document"]);
            var ranks = json["questions"].Select(question => {
                var ties = ((JObject)question[2]).Properties().ToDictionary(tie => tie.Name, tie => (decimal)tie.Value);
                Bracket found = curve.Rank((decimal)question[0], TimeOf((string)question[1]), ties);
                return new JArray(found.Rank, found.Low, found.High);
            });
            Console.WriteLine(new JArray(ranks).ToString(Formatting.None));
        }
    }

    static DateTimeOffset? TimeOf(string text) =>
        text == null ? (DateTimeOffset?)null : DateTimeOffset.Parse(text, CultureInfo.InvariantCulture);
}
