-- Requests for wrk: a path with a random owner in it, or one post for a random owner; figures as one line of JSON.
-- Arguments: "get" PATH_BEFORE PATH_AFTER | "post" PATH BODY, then ROWS SEED PAUSE_MS [OWNERS [THEN_BEFORE THEN_AFTER]];
-- or "fixed". BODY is a format for an amount, an owner and, if it has a third directive, the number of the owner's post
-- from 0 on. OWNERS is a file of lines OWNER or OWNER TOKEN; without it, or if it is "", owners are as in boards.py. With
-- THEN_BEFORE, every second request gets THEN_BEFORE, the owner of the post before it, and THEN_AFTER.
-- Each connection pauses at random before a request, for PAUSE_MS on average.
local threads = 0
local owners, tokens = nil, {}

function setup(thread)
  threads = threads + 1
  thread:set("number", threads)
end

local function read_owners(path)
  owners = {}
  for line in io.lines(path) do
    local name, token = line:match("^(%S+) ?(%S*)$")
    owners[#owners + 1] = name
    if token ~= "" then tokens[name] = "Bearer " .. token end
  end
end

local function owner(rows)
  local index = math.random(0, rows - 1)
  return owners and owners[index + 1] or string.format("10703857%011d", index)
end

function init(args)
  if args[1] == "fixed" then return end
  local rows = tonumber(args[4])
  local pause_ms = tonumber(args[6])
  math.randomseed(tonumber(args[5]) * 1000 + number)
  if args[7] and args[7] ~= "" then read_owners(args[7]) end
  if pause_ms > 0 then
    delay = function() return math.floor(0.5 - pause_ms * math.log(1 - math.random())) end
  end
  if args[1] == "get" then
    local before, after = args[2], args[3]
    request = function() return wrk.format("GET", before .. owner(rows) .. after) end
  else
    local path, body, key = args[2], args[3], wrk.headers["Authorization"]
    wrk.headers["Content-Type"] = "application/json"
    local before, after, posted = args[8], args[9], nil
    local numbers = body:find("%%d.*%%s.*%%d") and {}
    request = function()
      if posted then
        local path = before .. posted .. after
        posted = nil
        return wrk.format("GET", path)
      end
      local name = owner(rows)
      if before then posted = name end
      wrk.headers["Authorization"] = tokens[name] or key
      if numbers then numbers[name] = (numbers[name] or -1) + 1 end
      return wrk.format("POST", path, nil, string.format(body, math.random(1, 1000), name, numbers and numbers[name]))
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
