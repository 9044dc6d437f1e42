-- GCRA and the leaky bucket. The essay is in gcra.ts; this file is its twin, function by function.
--
-- numbers: capacity, permits, perMs; for a leaky bucket also waiting, slack
-- state:   since, level

local LARGEST = 1.7976931348623157e308
local EPSILON = 2.220446049250313e-16
local HOUR = 3600000000
local FAR = 4503599627370496
local DEEP = -1048576

local function scale(value, by, over)
  local product = value * by
  if product < math.huge and product > -math.huge then return product / over end
  return value / over * by
end

local function line_at(policy, state, at)
  return state.level + scale(at - state.since, policy.permits, policy.per)
end

local function level_at(policy, state, at)
  return math.min(policy.capacity, line_at(policy, state, at))
end

local function anchor(policy, state, at, line)
  state.since = at
  state.level = math.max(-LARGEST, math.min(policy.capacity, line))
end

local function first_whole(policy, state, from, wanted)
  local early, late, step = from, math.floor(from) + 1, 1
  while level_at(policy, state, late) < wanted do
    early, late, step = late, late + step, step * 2
  end
  while true do
    local middle = math.floor((early + late) / 2)
    if middle <= early or middle >= late then return late end
    if level_at(policy, state, middle) < wanted then early = middle else late = middle end
  end
end

local function next_double(policy, state, at, whole, wanted)
  local near, step = at, math.max(1, math.abs(at)) * EPSILON
  while near < whole and level_at(policy, state, near) < wanted do
    near, step = near + step, step * 2
  end
  return math.min(near, whole)
end

local function settled(policy, state, from, wanted, at)
  local whole = math.ceil(at)
  local early = level_at(policy, state, whole - 1) >= wanted
  if not early and level_at(policy, state, at) >= wanted then return at end
  if early or level_at(policy, state, whole) < wanted then
    return first_whole(policy, state, from, wanted)
  end
  return next_double(policy, state, at, whole, wanted)
end

local function earliest(policy, state, from, permits)
  if permits > policy.largest then return math.huge end
  local wanted = math.min(permits, policy.capacity)
  if wanted <= level_at(policy, state, from) then return from end
  local wait = scale(wanted - state.level, policy.per, policy.permits)
  local at = math.min(LARGEST, state.since + wait)
  if math.abs(at) < FAR then return settled(policy, state, from, wanted, at) end
  return math.max(from, at)
end

local function until_full(policy, state, now)
  return earliest(policy, state, now, policy.capacity) - now
end

local receipt_is_time = false

local function read(numbers)
  local capacity = math.min(LARGEST, numbers[1])
  return {
    capacity = capacity, permits = numbers[2], per = math.min(LARGEST, numbers[3] * 1000),
    largest = capacity + (numbers[4] or 0), slack = numbers[5] or 0, maxWaiting = numbers[4],
  }
end

local function take(policy, state, at, permits)
  local line = line_at(policy, state, at)
  if line > policy.capacity or state.level < DEEP then anchor(policy, state, at, line) end
  state.level = math.max(-LARGEST, state.level - permits)
  return 0
end

local function lifetime(policy, state, now)
  return until_full(policy, state, now) + (policy.slack > 0 and HOUR or 0)
end

-- The hot path (hot.lua) inlines the functions above. The mark below lists the fields of the state.
--> hot since level

algorithms.g = {
  -- permits that are promised for an instant are missing at all earlier instants too
  in_order = true,
  receipt_is_time = receipt_is_time,
  policy = read,
  earliest = earliest,
  take = take,
  lifetime = lifetime,

  load = function(saved, from)
    local state = {}
    state.since, state.level, from = struct.unpack("<dd", saved, from)
    return state, from
  end,

  dump = function(state)
    return struct.pack("<dd", state.since, state.level)
  end,

  overflows = function(policy, state, now, permits)
    return level_at(policy, state, now) - permits < -policy.maxWaiting
  end,

  -- functions that are rarely needed: a script pays for each function that it creates
  more = function(algorithm)
    function algorithm.start(policy, now)
      return { since = now, level = policy.capacity - policy.slack }
    end

    function algorithm.shift(state, by)
      state.since = state.since + by
    end

    function algorithm.give_back(policy, state, now, permits)
      state.level = math.min(LARGEST, state.level + permits)
      local line = line_at(policy, state, now)
      if line > policy.capacity then anchor(policy, state, now, line) end
    end

    function algorithm.quota(policy, state, now)
      local capacity = policy.capacity
      local window = math.min(LARGEST, scale(capacity, policy.per, policy.permits))
      local reset = until_full(policy, state, now)
      return capacity, math.max(0, level_at(policy, state, now)), reset, window
    end

    function algorithm.deficit(policy, state, now)
      return math.min(LARGEST, policy.capacity - level_at(policy, state, now))
    end

    function algorithm.resize(policy, state, now, before)
      local capacity, per, permits = policy.capacity, policy.per, policy.permits
      local same_capacity = capacity == before.capacity
      local same_pace = per == before.per and permits == before.permits
      if same_capacity and same_pace then return end
      anchor(before, state, now, line_at(before, state, now))
      if state.level >= 0 then
        if same_capacity then return end
        state.level = math.min(capacity, scale(state.level, capacity, before.capacity))
      elseif not same_pace then
        local deficit = math.max(-LARGEST, scale(state.level, before.per, before.permits))
        state.level = math.max(-LARGEST, scale(deficit, permits, per))
      end
    end
  end,
}
