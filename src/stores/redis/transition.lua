-- One batch: requests in order on the state of one limiter, read once and written once.
--
-- KEYS     the key of the state; then the keys in which operators keep limits
-- key      the state, a string: base (u32, units of 2^24 microseconds), last (u32, microseconds after base: when the state
--          was written), the length of the numbers (u16), the number of callers (u8);
--          each caller (8 characters) with the number of its last batch that changed something (u32), the latest batch last;
--          the numbers (text), the fields of each policy (f64), and, if it is in the future, the instant before which no
--          request is granted (f64). Instants are microseconds after base, so that they keep their fractions.
--          The numbers: those that were in force; then, each after a tab, "declared=in force" for those set at run time;
--          then, each after a vertical tab, those of other versions of the code, which declare other algorithms. The fields
--          of these versions follow those of the policies, for each after the instant at which the version ends.
-- first, last: this limiter's part of ARGV, which is
-- first    the numbers that this caller's code declares: a line for each policy, its algorithm's code and then numbers
-- second   now, epoch microseconds; empty: the server's clock. If there is no third, the only request is a reserve with count
--          1, any wait, and late 0, for one policy and by the server's clock; the second is then its permits, absent: 1
-- third …  the requests, each a verb and its arguments. "permits" is a number for each policy, 0 if it is not asked; "late"
--          is how late the caller's own timer was, microseconds.
--            reserve count longest late permits   count times: takes the permits if they are available within longest
--            decide late permits                  takes the permits if they are available now, and returns the quotas
--            peek late permits                    returns the same as decide, and takes nothing
--            back permits receipts promises       gives back what was granted; a receipt and a promised instant for each
--                                                 policy
--            refund permits                       gives back permits that any caller has taken
--            charge permits                       takes the permits in any state
--            settle permits                       charges permits that were used during an outage of the store
--            pause micros                         grants no request before then
--            deficit                              returns the missing permits of each policy; changes nothing
--            set numbers                          puts numbers in force for all callers that declare the same as this one
--            unset                                puts the declared numbers in force again
--            reset                                resets the state; numbers set at run time stay in force
-- batch_id_at
--          the index in ARGV of the caller, 8 characters (empty: the caller detects repeated batches itself); the number of
--          the batch follows, which is higher for each batch of a caller; 0 if there is no caller
-- reply    "repeated": the batch was run before (a client resends a request without a reply), and nothing was changed;
--          or one string: separated by tabs, the numbers in force (empty: the declared ones), followed by "?" and the
--          codes of the algorithms for each other version in the state, and a note for each policy with a limit in a key
--          that is 0 or not valid: "!", the policy, and if the value is not 0 "=" and the value; then for each request
--          numbers (%.17g, microseconds):
--            reserve        for each the wait, "no" (longer than longest) or "never" (more than the capacity);
--                           after the wait ":" and the receipts, if not all are 0; for a wait above 0 also the instants
--                           (epoch microseconds) up to which permits are then promised. Equal neighbours may be one,
--                           followed by "*" and their number
--            decide, peek   the wait ("inf": the permits may not wait), the policy that rejects them or else is slowest,
--                           and for each policy limit, remaining, reset, window, and 1 if it alone would grant them now,
--                           else 0; or "never"
--            set, unset     "=" if this caller's numbers were in force at the last write, else the numbers that were;
--                           empty: unknown
--            deficit        for each policy the permits that it lacks to be full, and how long no request is granted

-- The code before `--> load` runs once in a call. The rest, divided into steps by the marks, runs for each limiter of the
-- call; combined.lua runs the steps separately, for several limiters at once.
-- The code is written in a straight line, without a function for each step: a script is run anew for every call, and each
-- function and table that it creates costs as much as the maths. The rarer verbs are in verbs.lua, which is sent only with
-- batches that need it. The most common batch by far, one `reserve` request on an undisturbed state, is answered by hot.lua,
-- which is placed at `--> hot`: then the code below it does not run. hot.lua repeats the steps `callers` and `grants`
-- without changes (scripts/embed-lua.ts).

local UNIT = 16777216
local REBASE = 4294967296
local SECOND_MS = 1000
local HOUR_MS = 3600000
local LONGEST_MS = 1e15
local INFINITE = 1e999
local TINY = 5e-324
local HEAD_BYTES = 11
local CALLER_BYTES = 12
local MOST_CALLERS = 64
local LONGEST_NUMBERS = 65535
local FOREIGN = " holds a value that no limiter has written"

-- the limiter's key, its index in KEYS (the keys of its limits follow), its part of ARGV, and the index of the batch in ARGV
local key, key_at, first, last, batch_id_at
-- the reply of TIME, if the script has called it
local time

-- formats a number exactly; the format for whole numbers takes a third of the time of the other
local function text(number)
  if number == 1 then return "1" end
  if number < 1e14 and number > -1e14 and number % 1 == 0 then return string.format("%d", number) end
  return string.format("%.17g", number)
end

--> hot

-- the twins of the algorithms, by their codes
local algorithms = {}
--> twins
-- the index of the next argument to read
local position
-- times are microseconds after base; no request is granted before paused_until
local declared, base, now, paused_until, changed, in_force, settings
-- the caller and the number of the batch; the other callers in the state, with their numbers
local caller, batch_number, others
-- the policies with a limit of 0 now, if any; the notes about limits kept in keys; the numbers of the last write
local closed, notes, written_under
local count, algorithm, policy, state
-- the states of other versions of the code, nil if there are none; and "?" with the codes of the algorithms of each
local parked, elsewhere
local verbs

-- the policies by their numbers; they are immutable, so each is read once for all limiters of a call
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

-- Fills in limits that are kept in keys of their own: "$fallback@index". A 0 closes the policy for this call; its state
-- uses the fallback. A value that is not a limit adds a note, and the fallback applies.
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
    if not algorithm[i].shift then algorithm[i].more(algorithm[i]) end
  end
end

local function start(at)
  for i = 1, count do
    state[i] = algorithm[i].start(policy[i], at)
    if algorithm[i].align then algorithm[i].align(policy[i], state[i], base) end
  end
end

local function resize(before)
  for i = 1, count do
    algorithm[i].resize(policy[i], state[i], now, before[i])
    if algorithm[i].align then algorithm[i].align(policy[i], state[i], base) end
  end
end

-- returns the first closed policy that is asked for permits; nil if there is none
local function refuses(permits)
  for i = 1, count do
    if closed[i] and permits[i] > 0 then return i end
  end
end

-- returns the first instant on which all policies agree
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

-- returns the first policy that rejects the permits, which are not available now, instead of letting them wait; or nil
local function overflowing(permits)
  for i = 1, count do
    local bounded = policy[i].maxWaiting and permits[i] > 0
    if bounded and algorithm[i].overflows(policy[i], state[i], now, permits[i]) then return i end
  end
end

-- returns the instant up to which permits are promised: when the smallest next request could be granted
local function promised_until(i)
  return math.floor(algorithm[i].earliest(policy[i], state[i], now, TINY)) + base
end

-- charges versions what another one takes, as far as they have it: none is left with a debt that is not its own.
-- Policies correspond by their order; those that the other one has not get what its last one gets.
local function charge(versions, permits, at)
  for _, version in ipairs(versions) do
    for i = 1, version.count do
      local kind, policy, state = version.algorithm[i], version.policy[i], version.state[i]
      local _, remaining = kind.quota(policy, state, at)
      local taken = math.min(permits[i] or permits[#permits], remaining)
      if taken > 0 then kind.take(policy, state, at, taken) end
    end
  end
end

-- takes the permits; returns ":", the receipts and the promised instants, or an empty text if all are 0
local function take(at, permits)
  local receipts, promises, useful = "", "", false
  changed = true
  for i = 1, count do
    if permits[i] > 0 then
      local receipt = algorithm[i].take(policy[i], state[i], at, permits[i])
      if algorithm[i].receipt_is_time then receipt = receipt + base end
      receipts = receipts .. ":" .. text(receipt)
      local up_to = at > now and not algorithm[i].receipt_is_time and promised_until(i) or 0
      promises = promises .. ":" .. text(up_to)
      useful = useful or receipt ~= 0 or up_to ~= 0
    else
      receipts, promises = receipts .. ":0", promises .. ":0"
    end
  end
  if at > now and not (count == 1 and algorithm[1].receipt_is_time) then receipts = receipts .. promises end
  if parked then charge(parked, permits, now) end
  -- no later request overtakes one that was promised an instant
  if at > now and not (count == 1 and algorithm[1].in_order) and at > paused_until then paused_until = at end
  return useful and receipts or ""
end

--> verbs
--> load

declared, position, others = ARGV[first], first + 2, ""
caller, batch_number = ARGV[batch_id_at], ARGV[batch_id_at + 1] + 0
local clock, saved = last > first + 1 and tonumber(ARGV[first + 1]), redis.call("GET", key)
if not clock then
  time = time or redis.call("TIME")
  clock = time[1] * 1000000 + time[2]
end
base = math.floor(clock / UNIT) * UNIT
now, paused_until, changed = clock - base, 0, false
in_force, settings, state, written_under = resolve(declared), "", {}, ""
parked, elsewhere = nil, ""

if saved then
  if #saved < HEAD_BYTES + CALLER_BYTES then error("the key " .. key .. FOREIGN, 0) end
  -- no state is shorter than the head and one caller
  local units, written, length, callers, last_caller, ran, from = struct.unpack("<I4I4I2Bc8I4", saved)
--> callers
  if callers == 1 and last_caller == caller then
    if batch_number <= ran then return "repeated" end
  else
    from = HEAD_BYTES + 1
    local stop = from + callers * CALLER_BYTES
    local own = caller ~= "" and string.find(saved, caller, from, true)
    while own and (own - from) % CALLER_BYTES ~= 0 do own = string.find(saved, caller, own + 1, true) end
    if own and own < stop then
      if batch_number <= struct.unpack("<I4", saved, own + 8) then return "repeated" end
      others = string.sub(saved, from, own - 1) .. string.sub(saved, own + CALLER_BYTES, stop - 1)
    else
      others = string.sub(saved, from, stop - 1)
    end
    from = stop
  end
--> numbers
  local numbers = string.sub(saved, from, from + length - 1)
  from = from + length
  written_under = numbers
  local then_ = units * UNIT
  if numbers == in_force and clock >= then_ + written and clock - then_ < REBASE then
    parse(numbers)
    for i = 1, count do state[i], from = algorithm[i].load(saved, from) end
    if from <= #saved then paused_until = struct.unpack("<d", saved, from) end
    base, now = then_, clock - then_
  else
    -- the last writer's version; then others
    local versions, last_writer, own, kept = {}, nil, nil, {}
    for text in string.gmatch(numbers, "[^\v]+") do versions[#versions + 1] = text end
    numbers = versions[1] or ""
    local tab = string.find(numbers, "\t", 1, true)
    if tab then
      settings, numbers = string.sub(numbers, tab) .. "\t", string.sub(numbers, 1, tab - 1)
      local _, found = string.find(settings, "\t" .. declared .. "=", 1, true)
      if found then
        -- a number set at run time takes precedence over those in keys
        in_force, closed, notes = string.sub(settings, found + 1, string.find(settings, "\t", found, true) - 1), nil, ""
      end
    end
    written_under, versions[1] = numbers, numbers
    local shift = 0
    if clock < then_ + written then
      shift = now - written -- the clock stepped back: time goes on from where it was
    elseif clock - then_ >= REBASE then
      shift = then_ - base
    else
      base, now = then_, clock - then_
    end
    -- the first character of each line: numbers contain letters too (1e-7, Infinity)
    local letters = "(%a)[^\n]*"
    local codes = string.gsub(in_force, letters, "%1")
    for _, text in ipairs(versions) do
      local is_known = callers <= MOST_CALLERS and string.find(text, "^%l[%dI]")
      for code in string.gmatch(text, letters) do
        if not algorithms[code] then
--> others
        end
        is_known = is_known and algorithms[code]
      end
      if not is_known then error("the key " .. key .. FOREIGN, 0) end
      parse(text)
      more()
      local version = {
        numbers = text, codes = string.gsub(text, letters, "%1"), ends = 0,
        count = count, algorithm = algorithm, policy = policy, state = {},
      }
      if last_writer then version.ends, from = struct.unpack("<d", saved, from) end
      version.ends = version.ends + shift
      for i = 1, count do
        version.state[i], from = algorithm[i].load(saved, from)
        if shift ~= 0 then algorithm[i].shift(version.state[i], shift) end
      end
      if version.codes == codes then
        own = version
      elseif last_writer then
        kept[#kept + 1] = version
      end
      last_writer = last_writer or version
    end
    if from <= #saved then paused_until = struct.unpack("<d", saved, from) end
    paused_until = paused_until + shift
    if last_writer ~= own then
      -- when the state was written: a refusal is not, so a version that is new must not start at each of its calls
      local at = clock < then_ + written and now or then_ + written - base
      local life, lacking = 0, {}
      for i = 1, last_writer.count do
        local kind, policy, state = last_writer.algorithm[i], last_writer.policy[i], last_writer.state[i]
        life, lacking[i] = math.max(life, kind.lifetime(policy, state, now)), kind.deficit(policy, state, at)
      end
      -- what others take later does not keep a version: only what it has granted itself must be remembered
      last_writer.ends = now + life
      kept[#kept + 1] = last_writer
      if not own then
        parse(in_force)
        more()
        start(at)
        own = { numbers = in_force, count = count, algorithm = algorithm, policy = policy, state = state }
        charge({ own }, lacking, at)
      end
    end
    for _, version in ipairs(kept) do
      if version.ends > now then
        parked = parked or {}
        parked[#parked + 1], elsewhere = version, elsewhere .. "?" .. version.codes
      end
    end
    count, algorithm, policy, state = own.count, own.algorithm, own.policy, own.state
    if own.numbers ~= in_force then
      local before = policy
      parse(in_force)
      resize(before)
    end
  end
else
  parse(in_force)
  more()
  start(now)
end

if verbs then more() end

--> requests

local replies = {}
-- the permits of the only request, in the short form
local short = last < first + 2 and { first < last and ARGV[last] or "1" }
while short or position <= last do
  local verb = ARGV[position]
  if short or verb == "reserve" then
    local asked, times, longest, from = short or ARGV, 1, INFINITE, now
    if short then
      position = 1
    else
      times, longest = tonumber(ARGV[position + 1]), tonumber(ARGV[position + 2])
      from = now - ARGV[position + 3]
      position = position + 4
    end
    if paused_until > from then from = paused_until end
    local answers, answer = times > 1 and {} or nil, nil
    if count == 1 and algorithm[1].in_order and not policy[1].maxWaiting and not closed and not parked then
      local kind, policy, state, permits = algorithm[1], policy[1], state[1], tonumber(asked[position])
      local earliest, take, receipt_is_time = kind.earliest, kind.take, kind.receipt_is_time
      position = position + 1
--> grants
      -- how many answers in a row are equal to the last one
      local equal, last_wait, last_receipt, last_promised = 0, nil, nil, nil
      for i = 1, times do
        local at = earliest(policy, state, from, permits)
        local wait, receipt, up_to = 0, 0, 0
        if at > now then wait = math.ceil(at - now) end
        local refused = wait == INFINITE and "never" or wait > longest and "no"
        local open = wait > 0 and not receipt_is_time
        if not refused then
          changed = true
          receipt = take(policy, state, at, permits)
          if open then up_to = math.floor(earliest(policy, state, now, TINY)) + base end
        end
        if wait ~= last_wait or receipt ~= last_receipt or up_to ~= last_promised or refused then
          if answers and equal > 0 then answers[#answers + 1] = equal > 1 and answer .. "*" .. equal or answer end
          if refused then
            -- no later request is granted earlier
            answer, equal = refused, times - i + 1
            break
          end
          equal, last_wait, last_receipt, last_promised = 0, wait, receipt, up_to
          if receipt_is_time then receipt = receipt + base end
          if receipt == 1 and wait == 0 then
            answer = "0:1"
          else
            answer = wait == 0 and "0" or text(wait)
            if receipt ~= 0 or up_to ~= 0 then
              answer = answer .. ":" .. text(receipt)
              if open then answer = answer .. ":" .. text(up_to) end
            end
          end
        end
        equal = equal + 1
      end
      if answers then answers[#answers + 1] = equal > 1 and answer .. "*" .. equal or answer end
--> granted
    else
      local permits = {}
      for i = 1, count do permits[i] = tonumber(asked[position + i - 1]) end
      position = position + count
      for i = 1, times do
        local at = earliest(from > paused_until and from or paused_until, permits)
        local wait = at > now and math.ceil(at - now) or 0
        if at == math.huge then
          answer = "never"
        elseif wait > longest or wait > 0 and overflowing(permits) then
          answer = "no"
        else
          answer = text(wait) .. take(at, permits)
        end
        if answers then answers[i] = answer end
      end
    end
    replies[#replies + 1] = answers and table.concat(answers, " ") or answer
    if short then break end
  else
    position = position + 1
    replies[#replies + 1] = verbs[verb]()
  end
end

--> save

if changed then
  local numbers = settings == "" and in_force or in_force .. string.sub(settings, 1, -2)
  if parked then
    for _, version in ipairs(parked) do numbers = numbers .. "\v" .. version.numbers end
  end
  if #numbers > LONGEST_NUMBERS then
    local size = "the numbers of all policies, and of those set at run time, take " .. #numbers .. " bytes; "
    error(size .. "at most " .. LONGEST_NUMBERS .. " fit: use fewer policies", 0)
  end
  local value
  if others == "" and caller ~= "" then
    value = struct.pack("<I4I4I2Bc8I4", base / UNIT, now, #numbers, 1, caller, batch_number) .. numbers
  else
    if caller ~= "" then
      if #others == MOST_CALLERS * CALLER_BYTES then others = string.sub(others, CALLER_BYTES + 1) end
      others = others .. struct.pack("<c8I4", caller, batch_number)
    end
    value = struct.pack("<I4I4I2B", base / UNIT, now, #numbers, #others / CALLER_BYTES) .. others .. numbers
  end
  local life = paused_until - now
  for i = 1, count do
    value = value .. algorithm[i].dump(state[i])
    local worth = algorithm[i].lifetime(policy[i], state[i], now)
    if worth > life then life = worth end
  end
  if parked then
    for _, version in ipairs(parked) do
      value = value .. struct.pack("<d", version.ends)
      for i = 1, version.count do value = value .. version.algorithm[i].dump(version.state[i]) end
      if version.ends - now > life then life = version.ends - now end
    end
  end
  if paused_until > now then value = value .. struct.pack("<d", paused_until) end
  if settings == "" then
    -- with a clock of the caller it is unknown how real time relates to that clock
    local is_own_clock = last < first + 2 or ARGV[first + 1] == ""
    local ms = math.ceil(life / 1000) + (is_own_clock and SECOND_MS or HOUR_MS)
    redis.call("SET", key, value, "PX", string.format("%d", math.min(LONGEST_MS, ms)))
  else
    redis.call("SET", key, value) -- what was set at run time outlives idleness
  end
end

--> reply

return (in_force == declared and "" or in_force) .. elsewhere .. notes .. "\t" .. table.concat(replies, "\t")
