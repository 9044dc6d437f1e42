-- The hot path: a trip of one request to reserve, of one policy that is first in, first out, on a state that nothing has
-- disturbed: it was written under the numbers that this caller declares, nothing is paused, and the clock has neither
-- stepped back nor gone so far that the state needs a new base. All else is left to frame.lua, whose step `grants` this
-- shares: it would give the same answers and write the same bytes (the twin tests compare both).
--
-- It is cheap for what it does not make: of the algorithm's twin it needs what stands before the mark there, of the frame
-- next to nothing. FIRST and SECOND stand for the names of the state's fields.
--
-- reply    the request's part of the frame's reply: no tab

-- what the arguments say; no policy: they are not for this path
local policy, declared, clock, times, longest, late, permits
local state = { FIRST = 0, SECOND = 0 }
local base, now, changed

--> arguments

policy, declared, times = nil, ARGV[first], nil
if last == first + 3 and ARGV[last - 1] == "acquire" then
  times, longest, late = 1, math.huge, 0
elseif last == first + 6 and ARGV[first + 2] == "reserve" then
  times, longest, late = tonumber(ARGV[first + 3]), tonumber(ARGV[first + 4]), ARGV[first + 5]
end
if times then
  permits = tonumber(ARGV[last])
  local alone = tonumber(string.sub(declared, 2))
  if alone then
    policy = read({ alone })
  else
    -- all the numbers of one policy, none of them kept in a key
    local a, b, c, d, e = string.match(declared, "^%l([^%s$]+) ([^%s$]+) ?([^%s$]*) ?([^%s$]*) ?([^%s$]*)$")
    if a then policy = read({ tonumber(a), tonumber(b), tonumber(c), tonumber(d), tonumber(e) }) end
  end
  -- one that bounds how many may wait is asked more
  if policy and policy.maxWaiting then policy = nil end
  clock = tonumber(ARGV[first + 1])
  if not clock then
    time = time or redis.call("TIME")
    clock = time[1] * 1000000 + time[2]
  end
end

--> key

local saved = policy and redis.call("GET", key)
if saved and #saved == #declared + 26 then
  local units, written, length = struct.unpack("<I4I4I2", saved)
  base, changed = units * UNIT, false
  now = clock - base
  local undisturbed = length == #declared and clock >= base + written and now < REBASE
  if undisturbed and string.sub(saved, 11, -17) == declared then
    state.FIRST, state.SECOND = struct.unpack("<dd", saved, length + 11)
    local from, answers = now - late, {}
--> grants
    if changed then
      local life = math.ceil(lifetime(policy, state, now) / 1000) + (ARGV[first + 1] == "" and SECOND_MS or HOUR_MS)
      local value = struct.pack("<I4I4I2c0dd", units, now, length, declared, state.FIRST, state.SECOND)
      redis.call("SET", key, value, "PX", string.format("%d", math.min(LONGEST_MS, life)))
    end
    do return times == 1 and answers[1] or table.concat(answers, " ") end
  end
end
