-- Sliding log. The essay is in sliding-log.ts; this file is its twin, function by function.
--
-- numbers: limit, windowMs
-- state:   times, totals: in the saved form, strings of packed doubles: a log is long and few entries are read;
--          time, total: the newest entry, unpacked while a script adds to it: each change of a string is a copy;
--          cleaned: the instant of the last `clean`, unless the strings have changed since

local FAR = 4503599627370496
local LARGEST = 1.7976931348623157e308

-- returns the double at an index, from 0
local function read(list, index)
  return (struct.unpack("<d", list, 8 * index + 1))
end

-- returns the list with `change` applied to each double from the index on
local function map(list, index, change)
  local fields = { string.sub(list, 1, 8 * index) }
  for i = index, #list / 8 - 1 do fields[#fields + 1] = struct.pack("<d", change(read(list, i))) end
  return table.concat(fields)
end

local function without(list, index)
  return string.sub(list, 1, 8 * index) .. string.sub(list, 8 * index + 9)
end

local function count_until(times, instant)
  local low, high = 0, #times / 8
  while low < high do
    local middle = math.floor((low + high) / 2)
    if read(times, middle) > instant then high = middle else low = middle + 1 end
  end
  return low
end

-- appends the newest entry to the packed strings
local function close(state)
  state.cleaned = nil
  if not state.time then return end
  state.times = state.times .. struct.pack("<d", state.time)
  state.totals = state.totals .. struct.pack("<d", state.total)
  state.time, state.total = nil, nil
end

-- takes the newest entry out of the packed strings
local function open(state)
  local count = #state.times / 8
  if state.time or count == 0 then return end
  state.time, state.total = read(state.times, count - 1), read(state.totals, count - 1)
  state.times = string.sub(state.times, 1, -9)
  state.totals = string.sub(state.totals, 1, -9)
end

local function size(state)
  return #state.times / 8 + (state.time and 1 or 0)
end

local function time_at(state, index)
  return 8 * index == #state.times and state.time or read(state.times, index)
end

local function total_of(state, count)
  if count == 0 then return 0 end
  return 8 * count > #state.totals and state.total or read(state.totals, count - 1)
end

local function fits(policy, state, total, permits, index)
  return permits <= policy.limit - (total - total_of(state, index + 1))
end

local function last_to_leave(policy, state, total, permits)
  local count = size(state)
  local share = (total - policy.limit + permits) / total
  local low = math.max(0, math.min(count - 1, math.ceil(count * share) - 1))
  local high, step = low, 1
  while not fits(policy, state, total, permits, high) do
    low, high, step = high + 1, math.min(count - 1, high + step), 2 * step
  end
  step = 1
  while low > 0 and fits(policy, state, total, permits, low - 1) do
    high = low - 1
    low, step = math.max(0, high - step), 2 * step
  end
  while low < high do
    local middle = math.floor((low + high) / 2)
    if fits(policy, state, total, permits, middle) then high = middle else low = middle + 1 end
  end
  return low
end

local function clean(state, until_)
  if state.cleaned == until_ then return end
  state.cleaned = until_
  local half = math.ceil(size(state) / 2)
  if half == 0 or time_at(state, half - 1) > until_ then return end
  close(state)
  local gone = count_until(state.times, until_)
  local before = total_of(state, gone)
  state.times = string.sub(state.times, 8 * gone + 1)
  state.totals = map(string.sub(state.totals, 8 * gone + 1), 0, function(total) return total - before end)
end

local function append(state, time, permits)
  local total = state.total
  if not total or state.time ~= time then
    local count = size(state)
    total = total_of(state, count)
    if count > 0 then
      local joins = time_at(state, count - 1) == time or total - total_of(state, count - 1) + permits <= 1
      if joins then open(state) else close(state) end
    end
  end
  total = total + permits
  if total > LARGEST then total = LARGEST end
  state.time, state.total = time, total
end

local function give_back_entry(state, now, index, permits)
  local before = total_of(state, index)
  local own = total_of(state, index + 1) - before
  local given = math.min(own, permits)
  state.totals = map(state.totals, index, function(total) return math.max(before, total - given) end)
  if permits < own or index == #state.times / 8 - 1 and read(state.times, index) > now then return end
  state.times = without(state.times, index)
  state.totals = without(state.totals, index)
end

local function give_back_newest(state, now, permits)
  local left, index = permits, #state.times / 8 - 1
  while index >= 0 and left > 0 do
    local own = total_of(state, index + 1) - total_of(state, index)
    give_back_entry(state, now, index, left)
    left = left - own
    index = index - 1
  end
end

local function earliest(policy, state, from, permits)
  local limit, last, total = policy.limit, state.time, state.total
  if permits > limit then return math.huge end
  if not last then
    local count = size(state)
    last, total = count == 0 and from or time_at(state, count - 1), total_of(state, count)
  end
  local at = from > last and from or last
  if permits <= limit - total then return at end
  local time = time_at(state, last_to_leave(policy, state, total, permits))
  return time <= at - policy.window and at or time + policy.window
end

algorithms.l = {
  -- no request is granted before the last entry
  in_order = true,
  receipt_is_time = true,

  policy = function(numbers)
    return { limit = numbers[1], window = math.max(1, math.floor(numbers[2] * 1000 + 0.5)) }
  end,

  load = function(saved, from)
    local length = 8 * struct.unpack("<d", saved, from)
    local times = string.sub(saved, from + 8, from + 7 + length)
    local totals = string.sub(saved, from + 16 + length, from + 15 + 2 * length)
    return { times = times, totals = totals }, from + 16 + 2 * length
  end,

  dump = function(state)
    local length, time, total = struct.pack("<d", size(state)), "", ""
    if state.time then time, total = struct.pack("<d", state.time), struct.pack("<d", state.total) end
    return length .. state.times .. time .. length .. state.totals .. total
  end,

  earliest = earliest,

  take = function(policy, state, at, permits)
    local limit, counted, more = policy.limit, permits, 0
    if permits > limit then counted, more = limit, math.ceil(permits / limit) - 1 end
    local time = earliest(policy, state, at, counted) + more * policy.window
    if time > FAR then time = FAR end
    if time % 1 ~= 0 then time = math.ceil(time) end
    clean(state, time - policy.window)
    append(state, time, counted)
    return time + policy.window
  end,

  lifetime = function(policy, state, now)
    local count = size(state)
    return count == 0 and 0 or math.max(0, time_at(state, count - 1) + policy.window - now)
  end,

  -- functions that are rarely needed: a script pays for each function that it creates
  more = function(algorithm)
    function algorithm.start()
      return { times = "", totals = "" }
    end

    function algorithm.shift(state, by)
      close(state)
      state.times = map(state.times, 0, function(time) return time + by end)
    end

    function algorithm.give_back(policy, state, now, permits, receipt)
      close(state)
      if not receipt then
        give_back_newest(state, now, permits)
        return
      end
      local index = count_until(state.times, receipt - policy.window) - 1
      if index >= 0 and read(state.times, index) == receipt - policy.window then
        give_back_entry(state, now, index, permits)
      end
    end

    function algorithm.quota(policy, state, now)
      close(state)
      local times = state.times
      local count = #times / 8
      local gone = count_until(times, now - policy.window)
      local sum = total_of(state, count) - total_of(state, gone)
      local ahead = count_until(times, now) < count
      local remaining = ahead and 0 or math.max(0, policy.limit - sum)
      return policy.limit, remaining, algorithm.lifetime(policy, state, now), policy.window
    end

    function algorithm.deficit(policy, state, now)
      close(state)
      local times = state.times
      local count = #times / 8
      local last = count == 0 and now or math.max(now, read(times, count - 1))
      local gone = count_until(times, last - policy.window)
      local sum = total_of(state, count) - total_of(state, gone)
      return math.min(LARGEST, sum + math.ceil((last - now) / policy.window) * policy.limit)
    end

    function algorithm.resize() end
  end,
}
