-- Requests for wrk: a path with a random owner in it, or one post for a random owner; figures as one line of JSON.
-- Arguments: "get" PATH_BEFORE PATH_AFTER | "post" PATH COLUMN, then ROWS SEED PAUSE_MS; or "fixed". Owners as in boards.py.
-- Each connection pauses at random before a request, for PAUSE_MS on average.
local threads = 0

function setup(thread)
  threads = threads + 1
  thread:set("number", threads)
end

local function owner(rows)
  return string.format("10703857%011d", math.random(0, rows - 1))
end

function init(args)
  if args[1] == "fixed" then return end
  local rows = tonumber(args[4])
  local pause_ms = tonumber(args[6])
  math.randomseed(tonumber(args[5]) * 1000 + number)
  if pause_ms > 0 then
    delay = function() return math.floor(0.5 - pause_ms * math.log(1 - math.random())) end
  end
  if args[1] == "get" then
    local before, after = args[2], args[3]
    request = function() return wrk.format("GET", before .. owner(rows) .. after) end
  else
    local path, column = args[2], args[3]
    local headers = {["Content-Type"] = "application/json"}
    request = function()
      local body = string.format('{"owner":"%s","stats":{"%s":%d}}', owner(rows), column, math.random(1, 1000))
      return wrk.format("POST", path, headers, body)
    end
  end
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '\n{"requests":%d,"duration_us":%d,"p50_us":%d,"p99_us":%d,"refused":%d,"socket_errors":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    e.status, e.connect + e.read + e.write + e.timeout))
end
