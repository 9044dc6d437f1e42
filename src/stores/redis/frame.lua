-- One trip: requests in order on the state of one limiter, read once and written once.
--
-- KEYS     the key of the state; then those in which operators keep limits
-- key      the state, a string: base (u32, units of 2^24 microseconds), last (u32, microseconds
-- after base: when it was written), the length of the numbers (u16), how many callers follow (u8);
--          each caller (8 characters) with the number of its last trip that changed something (u32), the latest trip last;
--          the numbers (text), the fields of each policy (f64), and, where it is still to come, the instant
--          before which nobody goes (f64). Instants are microseconds after base, so that they keep their fractions.
--          The numbers: those that were in force; then, each after a tab, "declared=in force" for those set at run time.
-- first, last: this limiter's part of ARGV, which is
-- first    the numbers that this caller's code declares: a line for each policy, its algorithm's
-- letter and then numbers
-- second   now, epoch microseconds; empty: the server's clock
-- third    the caller, 8 characters; empty: it remembers by itself what it has sent
-- fourth   the number of the trip, which each trip of a caller raises; 0 where there is no caller
-- fifth …  the requests, each a verb and its arguments. "permits" is a number for each policy, 0 if
-- it is not asked; "late" says
--          how late the caller's own timer was, microseconds.
--            reserve count longest late permits   count times: take what can be used within longest
--            decide late permits                  take what can be used now, and tell how things stand
--            peek late permits                    tell; nothing is taken
--            back permits receipts tails          what was granted was not used; a receipt and a tail for each policy
--            refund permits                       what was taken was not used, whoever had it
--            charge permits                       taken whatever the state
--            settle permits                       used elsewhere, while this was away
--            pause micros                         nobody goes before then
--            owed                                 tell what lacks and is owed; nothing changes
--            set numbers                          in force from now on for all who declare what this caller declares
--            unset                                the declared numbers are in force again
--            reset                                the state is as if new; what was set stays in force
-- reply    "repeated": the trip was run before (a client sends again what was not answered), and nothing was changed;
--          or one string, tabs between: the numbers in force, after them for each policy with a limit in a key that holds
--          no limit "!", which policy, and if the value is not 0 "=" and the value; then for each request numbers (%.17g,
--          microseconds):
--            reserve        for each the wait, "no" (longer than longest) or "never" (more than the capacity);
--                           after the wait ":" and the receipts, if not all are 0; if it has to wait, also the tails:
--                           up to which instant (epoch microseconds) permits are promised then
--            decide, peek   the wait ("inf": the permits may not wait), which policy refuses them or else is slowest,
--                           and of each policy limit, remaining, reset, window, and 1 where it alone would let them go
--                           now, else 0; or "never"
--            set, unset     "=" where this caller's numbers were in force at the last write, else those that were;
--                           empty: that is not known
--            owed           of each policy the permits that lack to its being full, and for how long nobody goes

-- What stands before `--> load` is made once in a call. The rest, in the steps that the marks name, is run for each limiter
-- of it; combined.lua runs the steps apart, for several limiters at once.
-- Written in a straight line, without a function for each step: a script is run anew for every
-- call, and each function and table that it makes costs as much as the maths. The rarer verbs are
-- in verbs.lua, which is sent only with trips that need it.

local UNIT, REBASE = 16777216, 4294967296
local SECOND_MS, HOUR_MS, LONGEST_MS = 1000, 3600000, 1e15
local TINY = 5e-324
local HEAD_BYTES, CALLER_BYTES, MOST_CALLERS = 11, 12, 64
local FOREIGN = " holds a value that no limiter has written"

-- the limiter's key, where that stands in KEYS (its limits' keys follow), its part of ARGV, and how far that has been read
local key, key_at, first, last, position
-- times are microseconds after base; nobody goes before held
local declared, base, now, held, changed, in_force, settings
-- who sends the trip, and its number; the other callers that the state remembers, with their numbers
local caller, trip, others
-- the policies whose limit is 0 now, if any; what to tell of limits kept in keys; the numbers of the last write
local closed, notes, written_under
local count, algorithm, policy, state
local time, verbs

-- the policies of these numbers, which nothing changes: read once for all limiters of a call
local read = {}

local function parse(numbers)
  local known, alone = read[numbers], tonumber(string.sub(numbers, 2))
  if alone and not known then
    local kind = algorithms[string.sub(numbers, 1, 1)]
    known = { count = 1, algorithm = { kind }, policy = { kind.policy({ alone }) } }
    read[numbers] = known
  elseif not known then
    known = { count = 0, algorithm = {}, policy = {} }
    for line in string.gmatch(numbers, "[^\n]+") do
      local values = {}
      for value in string.gmatch(string.sub(line, 2), "%S+") do values[#values + 1] = tonumber(value) end
      known.count = known.count + 1
      known.algorithm[known.count] = algorithms[string.sub(line, 1, 1)]
      known.policy[known.count] = known.algorithm[known.count].policy(values)
    end
    read[numbers] = known
  end
  count, algorithm, policy = known.count, known.algorithm, known.policy
end

-- Limits that are kept in keys of their own: "$fallback@which". A 0 closes the policy for this call; its state is kept
-- by the fallback. What is no limit is noted, and the fallback holds.
local function resolve(numbers)
  closed, notes = nil, ""
  if not string.find(numbers, "$", 1, true) then return numbers end
  local line = 0
  return (string.gsub(numbers, "[^\n]+", function(own)
    line = line + 1
    local noted
    return (string.gsub(own, "%$(%S-)@(%d+)", function(fallback, which)
      local kept = redis.call("GET", KEYS[key_at + which])
      local limit = tonumber(kept or nil)
      if limit and limit > 0 and limit < math.huge then return string.format("%.17g", limit) end
      if kept and not noted then
        noted = true
        if limit == 0 then
          closed = closed or {}
          closed[line] = true
          notes = notes .. "!" .. line
        else
          notes = notes .. "!" .. line .. "=" .. string.gsub(string.sub(kept, 1, 40), "[%c!]", " ")
        end
      end
      return fallback
    end))
  end))
end

local function more()
  for i = 1, count do
    if not algorithm[i].start then algorithm[i].more(algorithm[i]) end
  end
end

local function start()
  for i = 1, count do
    state[i] = algorithm[i].start(policy[i], now)
    if algorithm[i].align then algorithm[i].align(policy[i], state[i], base) end
  end
end

local function resize(before)
  for i = 1, count do
    algorithm[i].resize(policy[i], state[i], now, before[i])
    if algorithm[i].align then algorithm[i].align(policy[i], state[i], base) end
  end
end

-- exact; "%.14g", which is what a number becomes without a format, is enough for whole ones below 1e14
local function text(number)
  if number < 1e14 and number > -1e14 and number % 1 == 0 then return number .. "" end
  return string.format("%.17g", number)
end

-- of the closed policies, the first that is asked; nil if none
local function refuses(permits)
  for i = 1, count do
    if closed[i] and permits[i] > 0 then return i end
  end
end

-- the first instant on which all agree
local function earliest(from, permits)
  if closed and refuses(permits) then return math.huge end
  if count == 1 then return algorithm[1].earliest(policy[1], state[1], from, permits[1]) end
  local at = from
  while true do
    local agreed = at
    for i = 1, count do
      if permits[i] > 0 then agreed = algorithm[i].earliest(policy[i], state[i], agreed, permits[i]) end
    end
    if not (agreed > at) then return at end
    at = agreed
  end
end

-- the first policy that does not let the permits, which cannot be used now, wait; nil if none
local function overflowing(permits)
  for i = 1, count do
    local bounded = policy[i].maxWaiting and permits[i] > 0
    if bounded and algorithm[i].overflows(policy[i], state[i], now, permits[i]) then return i end
  end
end

-- up to which instant permits are promised: when the next, however few, could be used
local function tail(i)
  return math.floor(algorithm[i].earliest(policy[i], state[i], now, TINY)) + base
end

-- takes them; returns ":", the receipts and the tails, if they say anything
local function take(at, permits)
  local receipts, tails, useful = "", "", false
  changed = true
  for i = 1, count do
    if permits[i] > 0 then
      local receipt = algorithm[i].take(policy[i], state[i], at, permits[i])
      if algorithm[i].dated then receipt = receipt + base end
      receipts = receipts .. ":" .. text(receipt)
      local up_to = at > now and not algorithm[i].dated and tail(i) or 0
      tails = tails .. ":" .. text(up_to)
      useful = useful or receipt ~= 0 or up_to ~= 0
    else
      receipts, tails = receipts .. ":0", tails .. ":0"
    end
  end
  if at > now and not (count == 1 and algorithm[1].dated) then receipts = receipts .. tails end
  -- nobody overtakes who has been promised an instant
  if at > now and not (count == 1 and algorithm[1].in_order) and at > held then held = at end
  return useful and receipts or ""
end

--> verbs
--> load

declared, caller, trip, position, others = ARGV[first], ARGV[first + 2], ARGV[first + 3] + 0, first + 4, ""
local clock, saved = tonumber(ARGV[first + 1]), redis.call("GET", key)
if not clock then
  time = time or redis.call("TIME")
  clock = time[1] * 1000000 + time[2]
end
base = math.floor(clock / UNIT) * UNIT
now, held, changed = clock - base, 0, false
in_force, settings, state, written_under = resolve(declared), "", {}, ""

if saved then
  if #saved < HEAD_BYTES + CALLER_BYTES then error("the key " .. key .. FOREIGN, 0) end
  -- no state is shorter than the head and one caller
  local units, written, length, callers, last_caller, ran, from = struct.unpack("<I4I4I2Bc8I4", saved)
  if callers == 1 and last_caller == caller then
    if trip <= ran then return "repeated" end
  else
    from = HEAD_BYTES + 1
    local stop = from + callers * CALLER_BYTES
    local own = caller ~= "" and string.find(saved, caller, from, true)
    while own and (own - from) % CALLER_BYTES ~= 0 do own = string.find(saved, caller, own + 1, true) end
    if own and own < stop then
      if trip <= struct.unpack("<I4", saved, own + 8) then return "repeated" end
      others = string.sub(saved, from, own - 1) .. string.sub(saved, own + CALLER_BYTES, stop - 1)
    else
      others = string.sub(saved, from, stop - 1)
    end
    from = stop
  end
  local numbers = string.sub(saved, from, from + length - 1)
  from = from + length
  written_under = numbers
  local then_ = units * UNIT
  if numbers == in_force and clock >= then_ + written and clock - then_ < REBASE then
    parse(numbers)
    for i = 1, count do state[i], from = algorithm[i].load(saved, from) end
    if from <= #saved then held = struct.unpack("<d", saved, from) end
    base, now = then_, clock - then_
  else
    if callers > MOST_CALLERS or not string.find(numbers, "^%l[%dI]") then error("the key " .. key .. FOREIGN, 0) end
    local tab = string.find(numbers, "\t", 1, true)
    if tab then
      settings, numbers = string.sub(numbers, tab) .. "\t", string.sub(numbers, 1, tab - 1)
      written_under = numbers
      local _, found = string.find(settings, "\t" .. declared .. "=", 1, true)
      if found then
        -- a number set at run time goes before those in keys
        in_force, closed, notes = string.sub(settings, found + 1, string.find(settings, "\t", found, true) - 1), nil, ""
      end
    end
    -- the first letter of each line: letters stand in numbers too (1e-7, Infinity)
    local letters = "(%a)[^\n]*"
    if numbers ~= in_force and string.gsub(numbers, letters, "%1") ~= string.gsub(in_force, letters, "%1") then
      -- the name was given to other algorithms: they begin anew
      parse(in_force)
      more()
      start()
    else
      parse(numbers)
      more()
      for i = 1, count do state[i], from = algorithm[i].load(saved, from) end
      if from <= #saved then held = struct.unpack("<d", saved, from) end
      local shift = 0
      if clock < then_ + written then
        shift = now - written -- the clock stepped back: time goes on from where it was
      elseif clock - then_ >= REBASE then
        shift = then_ - base
      else
        base, now = then_, clock - then_
      end
      if shift ~= 0 then
        for i = 1, count do algorithm[i].shift(state[i], shift) end
        held = held + shift
      end
      if numbers ~= in_force then
        local before = policy
        parse(in_force)
        resize(before)
      end
    end
  end
else
  parse(in_force)
  more()
  start()
end

if verbs then more() end

--> requests

local replies = {}
while position <= last do
  local verb = ARGV[position]
  if verb == "reserve" then
    local times, longest = tonumber(ARGV[position + 1]), tonumber(ARGV[position + 2])
    local from = now - ARGV[position + 3]
    position = position + 4
    if held > from then from = held end
    local answers = {}
    if count == 1 and algorithm[1].in_order and not policy[1].maxWaiting and not closed then
      local kind, numbers, own, permits = algorithm[1], policy[1], state[1], tonumber(ARGV[position])
      local earliest_of, use = kind.earliest, kind.take
      local last_wait, last_receipt, last_tail, last_text
      position = position + 1
      for i = 1, times do
        local at = earliest_of(numbers, own, from, permits)
        local wait = at > now and math.ceil(at - now) or 0
        if wait == math.huge then
          for j = i, times do answers[j] = "never" end
          break
        elseif wait > longest then
          -- nobody after it gets in earlier
          for j = i, times do answers[j] = "no" end
          break
        end
        local receipt = use(numbers, own, at, permits)
        local open = wait > 0 and not kind.dated
        local up_to = open and tail(1) or 0
        changed = true
        if wait ~= last_wait or receipt ~= last_receipt or up_to ~= last_tail then
          last_wait, last_receipt, last_tail, last_text = wait, receipt, up_to, text(wait)
          if kind.dated then receipt = receipt + base end
          if receipt ~= 0 or up_to ~= 0 then
            last_text = last_text .. ":" .. text(receipt)
            if open then last_text = last_text .. ":" .. text(up_to) end
          end
        end
        answers[i] = last_text
      end
    else
      local permits = {}
      for i = 1, count do permits[i] = tonumber(ARGV[position + i - 1]) end
      position = position + count
      for i = 1, times do
        local at = earliest(from > held and from or held, permits)
        local wait = at > now and math.ceil(at - now) or 0
        if at == math.huge then
          answers[i] = "never"
        elseif wait > longest or wait > 0 and overflowing(permits) then
          answers[i] = "no"
        else
          answers[i] = text(wait) .. take(at, permits)
        end
      end
    end
    replies[#replies + 1] = times == 1 and answers[1] or table.concat(answers, " ")
  else
    position = position + 1
    replies[#replies + 1] = verbs[verb]()
  end
end

--> save

if changed then
  local numbers = settings == "" and in_force or in_force .. string.sub(settings, 1, -2)
  local value
  if others == "" and caller ~= "" then
    value = struct.pack("<I4I4I2Bc8I4", base / UNIT, now, #numbers, 1, caller, trip) .. numbers
  else
    if caller ~= "" then
      if #others == MOST_CALLERS * CALLER_BYTES then others = string.sub(others, CALLER_BYTES + 1) end
      others = others .. struct.pack("<c8I4", caller, trip)
    end
    value = struct.pack("<I4I4I2B", base / UNIT, now, #numbers, #others / CALLER_BYTES) .. others .. numbers
  end
  local life = held - now
  for i = 1, count do
    value = value .. algorithm[i].dump(state[i])
    local worth = algorithm[i].lifetime(policy[i], state[i], now)
    if worth > life then life = worth end
  end
  if held > now then value = value .. struct.pack("<d", held) end
  if settings == "" then
    -- under a clock of the caller's own nobody knows how real time runs beside it
    local ms = math.ceil(life / 1000) + (ARGV[first + 1] == "" and SECOND_MS or HOUR_MS)
    redis.call("SET", key, value, "PX", math.min(LONGEST_MS, ms))
  else
    redis.call("SET", key, value) -- what was set at run time outlives idleness
  end
end

--> reply

return in_force .. notes .. "\t" .. table.concat(replies, "\t")
