-- Sliding window counters. The essay is in sliding-window.ts; this file is its twin, function by
-- function.
--
-- numbers: limit, windowMs, buckets (10)
-- state:   start, counts (the newest first)

local FAR = 4503599627370496
local LARGEST = 1.7976931348623157e308

local function zeros(length)
  local list = {}
  for i = 1, length do list[i] = 0 end
  return list
end

local function passed(policy, state, at)
  return math.floor((at - state.start) / policy.width)
end

local function used(policy, state, at)
  local counted = math.max(0, policy.buckets - passed(policy, state, at))
  local sum = 0
  for i = 1, math.min(policy.buckets, counted) do sum = sum + state.counts[i] end
  return sum
end

local function advance(policy, state, at)
  if at < state.start + policy.width then return end
  local begun = passed(policy, state, at)
  local counts = zeros(policy.buckets)
  for i = 1, policy.buckets - begun do counts[begun + i] = state.counts[i] end
  state.start = state.start + begun * policy.width
  state.counts = counts
end

local function give_back_newest(state, permits)
  local left = permits
  for i, count in ipairs(state.counts) do
    local given = math.min(left, count)
    state.counts[i] = count - given
    left = left - given
  end
end

local function until_fresh(policy, state, now)
  local staying = 0
  for i, count in ipairs(state.counts) do
    if count > 0 then
      staying = policy.buckets + 1 - i
      break
    end
  end
  return math.max(0, state.start + staying * policy.width - now)
end

algorithms.w = {
  -- no request is granted before the newest bucket in which permits were promised
  in_order = true,
  receipt_is_time = true,

  policy = function(numbers)
    local buckets = numbers[3] or 10
    local width = math.max(1, math.floor(numbers[2] * 1000 / buckets + 0.5))
    return { limit = numbers[1], buckets = buckets, width = width, window = buckets * width }
  end,

  load = function(saved, from)
    local state, length = { counts = {} }, 0
    state.start, length, from = struct.unpack("<dd", saved, from)
    for i = 1, length do state.counts[i], from = struct.unpack("<d", saved, from) end
    return state, from
  end,

  dump = function(state)
    local fields = { struct.pack("<dd", state.start, #state.counts) }
    for i, count in ipairs(state.counts) do fields[i + 1] = struct.pack("<d", count) end
    return table.concat(fields)
  end,

  earliest = function(policy, state, from, permits)
    if permits > policy.limit then return math.huge end
    local at = from > state.start and from or state.start
    local fitting, sum = 0, 0
    local counts, limit = state.counts, policy.limit
    for i = 1, policy.buckets do
      sum = sum + counts[i]
      if permits > limit - sum then break end
      fitting = fitting + 1
    end
    if fitting >= policy.buckets - passed(policy, state, at) then return at end
    return state.start + (policy.buckets - fitting) * policy.width
  end,

  take = function(policy, state, at, permits)
    local counted = math.min(permits, policy.limit)
    local more = permits > policy.limit and math.ceil(permits / policy.limit) - 1 or 0
    local when = algorithms.w.earliest(policy, state, at, counted) + more * policy.window
    advance(policy, state, math.min(FAR, when))
    state.counts[1] = state.counts[1] + counted
    return state.start + policy.window
  end,

  lifetime = until_fresh,

  -- functions that are rarely needed: a script pays for each function that it creates
  more = function(algorithm)
    function algorithm.start(policy, now)
      return { start = now, counts = zeros(policy.buckets) }
    end

    function algorithm.align(policy, state, epoch)
      state.start = math.floor((epoch + state.start) / policy.width) * policy.width - epoch
    end

    function algorithm.shift(state, by)
      state.start = state.start + by
    end

    function algorithm.give_back(policy, state, _, permits, receipt)
      if not receipt then
        give_back_newest(state, permits)
        return
      end
      local index = (state.start + policy.window - receipt) / policy.width + 1
      local count = state.counts[index]
      if count then state.counts[index] = math.max(0, count - permits) end
    end

    function algorithm.quota(policy, state, now)
      local remaining = state.start > now and 0 or math.max(0, policy.limit - used(policy, state, now))
      return policy.limit, remaining, until_fresh(policy, state, now), policy.window
    end

    function algorithm.deficit(policy, state, now)
      local ahead = math.max(0, math.ceil((state.start - now) / policy.window))
      local counted = used(policy, state, math.max(now, state.start))
      return math.min(LARGEST, counted + ahead * policy.limit)
    end

    function algorithm.resize(policy, state, now, before)
      advance(before, state, now)
      local start, counts = state.start, state.counts
      local same = policy.width == before.width
      local ahead = start > now and math.min(FAR, start + policy.width - 1) or now
      local shorter = before.window - policy.window
      local later = same and math.max(0, shorter)
        or math.max(before.width - 1, shorter + policy.width - 1)
      state.start = same and start or ahead
      state.counts = zeros(policy.buckets)
      for i, count in ipairs(counts) do
        local made = math.min(state.start, start - (i - 1) * before.width + later)
        local index = math.floor((state.start - made) / policy.width) + 1
        state.counts[index] = state.counts[index] + count
      end
    end
  end,
}
