-- The hot path: a batch with one `reserve` request, for one policy that is first in, first out, on an undisturbed state:
-- it was written under the numbers that this caller declares, the limiter is not paused, and the clock has neither
-- stepped back nor gone so far that the state needs a new base. transition.lua handles all other batches. It would give the
-- same answers and write the same bytes here (the twin tests compare both), and its steps `callers` and `grants` are
-- part of this path.
--
-- The hot path is placed before the rest of the script, which creates nothing if the hot path answers. It creates no
-- function and no table itself: scripts/embed-lua.ts inlines the twin's functions at their calls, and replaces the
-- fields of the policy (all of them: POLICY) and of the state (STATE) by variables.
--
-- reply    the transition's reply without the numbers in force: no tab

local ARGV, call = ARGV, redis.call
-- the decoded arguments; `times` is nil if they are not for this path
local declared, clock, times, longest, late, permits, slack
local POLICY
local base, now, changed

--> arguments

declared, times, clock, slack = ARGV[first], nil, nil, SECOND_MS
if last == first then
  times, longest, late, permits = 1, INFINITE, 0, 1
elseif last == first + 1 then
  times, longest, late, permits = 1, INFINITE, 0, ARGV[last] + 0
elseif last == first + 6 and ARGV[first + 2] == "reserve" then
  times, longest, late = ARGV[first + 3] + 0, ARGV[first + 4] + 0, ARGV[first + 5] + 0
  permits = ARGV[last] + 0
  if ARGV[first + 1] ~= "" then clock, slack = ARGV[first + 1] + 0, HOUR_MS end
end
if times then
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
  if not clock then
    time = time or call("TIME")
    clock = time[1] * 1000000 + time[2]
  end
end

--> key

local saved = times and call("GET", key)
if saved and #saved >= #declared + HEAD_BYTES + 16 then
  local caller, batch_number, unpack = ARGV[batch_id_at], ARGV[batch_id_at + 1] + 0, struct.unpack
  local units, written, length, callers, last_caller, ran, from = unpack("<I4I4I2Bc8I4", saved)
  local fields = HEAD_BYTES + 1 + callers * CALLER_BYTES + length
  local text_at = fields - length
  base, changed = units * UNIT, false
  now = clock - base
  -- a caller without a name, or one for which the state has no room, is left to transition.lua
  local undisturbed = #saved == fields + 15 and now >= written and now < REBASE and length == #declared
    and caller ~= "" and callers < MOST_CALLERS and string.find(saved, declared, text_at, true) == text_at
  if undisturbed then
    local others = ""
--> callers
    local STATE = unpack("<dd", saved, fields)
    -- not before base: transition.lua compares it with paused_until, which is 0
    local from, answers, answer = now - late, times > 1 and {} or nil, nil
    if from < 0 then from = 0 end
--> grants
    if changed then
      local life = math.ceil(lifetime(policy, state, now) / 1000) + slack
      if life > LONGEST_MS then life = LONGEST_MS end
      local value
      if others == "" then
        value = struct.pack("<I4I4I2Bc0I4c0dd", units, now, length, 1, caller, batch_number, declared, STATE)
      else
        callers = #others / CALLER_BYTES + 1
        value = struct.pack("<I4I4I2Bc0c0I4c0dd", units, now, length, callers, others, caller, batch_number, declared, STATE)
      end
      call("SET", key, value, "PX", string.format("%d", life))
    end
    if answers then answer = table.concat(answers, " ") end
    do return answer end
  end
end
