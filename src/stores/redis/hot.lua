-- The hot path: a trip with one `reserve` request, for one policy that is first in, first out, on an undisturbed state:
-- it was written under the numbers that this caller declares, the limiter is not paused, and the clock has neither
-- stepped back nor gone so far that the state needs a new base. frame.lua handles all other trips. It would give the
-- same answers and write the same bytes here (the twin tests compare both), and its steps `callers` and `grants` are
-- part of this path.
--
-- The hot path is placed before the rest of the script, which creates nothing if the hot path answers. It creates no
-- function and no table itself: scripts/embed-lua.ts inlines the twin's functions at their calls, and replaces the
-- fields of the policy (all of them: POLICY) and of the state (STATE) by variables.
--
-- reply    the request's part of the frame's reply: no tab

-- the decoded arguments; `times` is nil if they are not for this path
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
    -- a policy that bounds how many permits may wait needs further checks
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
  -- a caller without a name, or one for which the state has no room, is left to frame.lua
  if caller == "" or callers == MOST_CALLERS then undisturbed = false end
  if undisturbed and length == #declared and string.find(saved, declared, fields - length, true) == fields - length then
    local others = ""
--> callers
    local STATE = struct.unpack("<dd", saved, fields)
    -- not before base: frame.lua compares it with held, which is 0
    local from, answers, answer = math.max(now - late, 0), times > 1 and {} or nil, nil
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
