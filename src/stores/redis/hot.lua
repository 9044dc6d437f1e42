-- The hot path: a trip of one request to reserve, of one policy that is first in, first out, on a state that nothing has
-- disturbed: it was written under the numbers that this caller declares, nothing is paused, and the clock has neither
-- stepped back nor gone so far that the state needs a new base. All else is left to frame.lua, whose steps `callers` and
-- `grants` this shares: it would give the same answers and write the same bytes (the twin tests compare both).
--
-- It stands before the rest of the script, so that nothing of that is made where it answers, and makes no function and no
-- table itself: scripts/embed-lua.ts puts what the twin's functions do where they are called here, and a variable for each
-- field of the policy (all of them: POLICY) and of the state (STATE).
--
-- reply    the request's part of the frame's reply: no tab

-- what the arguments say; no times: they are not for this path
local declared, clock, times, longest, late, permits
local POLICY
local base, now, changed

--> arguments

declared, times = ARGV[first], nil
if last == first + 3 and ARGV[first + 2] == "acquire" then
  times, longest, late = 1, math.huge, 0
elseif last == first + 6 and ARGV[first + 2] == "reserve" then
  times, longest, late = tonumber(ARGV[first + 3]), tonumber(ARGV[first + 4]), ARGV[first + 5]
end
if times then
  permits = ARGV[last] + 0
  local number_1, number_2, number_3, number_4, number_5 = tonumber(string.sub(declared, 2))
  if not number_1 then
    -- all the numbers of one policy, none of them kept in a key
    local numbers = "^%l([^%s$]+) ([^%s$]+) ?([^%s$]*) ?([^%s$]*) ?([^%s$]*)$"
    local a, b, c, d, e = string.match(declared, numbers)
    if a then
      number_1, number_2, number_3 = tonumber(a), tonumber(b), tonumber(c)
      number_4, number_5 = tonumber(d), tonumber(e)
    end
  end
  if number_1 then
    read(numbers)
    -- one that bounds how many may wait is asked more
    if policy.maxWaiting then times = nil end
  else
    times = nil
  end
  if ARGV[first + 1] == "" then
    time = time or redis.call("TIME")
    clock = time[1] * 1000000 + time[2]
  else
    clock = ARGV[first + 1] + 0
  end
end

--> key

local saved = times and redis.call("GET", key)
if saved and #saved >= #declared + HEAD_BYTES + 16 then
  local caller, trip = ARGV[trip_at], ARGV[trip_at + 1] + 0
  local units, written, length, callers, last_caller, ran, from = struct.unpack("<I4I4I2Bc8I4", saved)
  local fields = HEAD_BYTES + 1 + callers * CALLER_BYTES + length
  base, changed = units * UNIT, false
  now = clock - base
  local undisturbed = #saved == fields + 15 and clock >= base + written and now < REBASE
  -- to be remembered, of a caller that has a name, and beside others only where there is room
  if caller == "" or callers == MOST_CALLERS then undisturbed = false end
  if undisturbed and length == #declared and string.find(saved, declared, fields - length, true) == fields - length then
    local others = ""
--> callers
    local STATE = struct.unpack("<dd", saved, fields)
    local from, answers, answer = now - late, times > 1 and {} or nil, nil
--> grants
    if changed then
      local life = math.ceil(lifetime(policy, state, now) / 1000) + (ARGV[first + 1] == "" and SECOND_MS or HOUR_MS)
      callers = #others / CALLER_BYTES + 1
      local value = struct.pack(
        "<I4I4I2Bc0c0I4c0dd", units, now, length, callers, others, caller, trip, declared, STATE
      )
      redis.call("SET", key, value, "PX", string.format("%d", math.min(LONGEST_MS, life)))
    end
    do return answers and table.concat(answers, " ") or answer end
  end
end
