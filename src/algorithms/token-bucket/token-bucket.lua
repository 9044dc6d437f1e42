-- The token bucket that refills in steps. The essay is in token-bucket.ts; this file is its twin,
-- function by function.
--
-- numbers: capacity, refill, everyMs
-- state:   since, tokens

local LARGEST = 1.7976931348623157e308
local LONGEST_STEP = 4503599627370496
local MOST_STEPS = 4503599627370496
local DEEP = -1048576

local function steps_at(policy, state, at)
  return math.floor((at - state.since) / policy.every)
end

local function sum_after(policy, state, steps)
  return state.tokens + steps * policy.refill
end

local function sum_at(policy, state, at)
  return sum_after(policy, state, steps_at(policy, state, at))
end

local function tokens_at(policy, state, at)
  return math.min(policy.capacity, sum_at(policy, state, at))
end

local function searched_step(policy, state, from, wanted)
  local early, step = steps_at(policy, state, from), 1
  local late = early + 1
  while sum_after(policy, state, late) < wanted do
    early, late, step = late, late + step, step * 2
  end
  while true do
    local middle = math.floor((early + late) / 2)
    if middle <= early or middle >= late then return late end
    if sum_after(policy, state, middle) < wanted then early = middle else late = middle end
  end
end

local function first_step(policy, state, from, wanted)
  local near = math.ceil((wanted - state.tokens) / policy.refill)
  local hit = sum_after(policy, state, near) >= wanted and sum_after(policy, state, near - 1) < wanted
  if hit or near >= MOST_STEPS then return near end
  return searched_step(policy, state, from, wanted)
end

local function anchor(policy, state, at)
  local steps = steps_at(policy, state, at)
  state.tokens = math.max(-LARGEST, tokens_at(policy, state, at))
  state.since = math.max(-LARGEST, math.min(LARGEST, state.since + steps * policy.every))
end

local function earliest(policy, state, from, permits)
  if permits > policy.capacity then return math.huge end
  if permits <= tokens_at(policy, state, from) then return from end
  local steps = first_step(policy, state, from, permits)
  return math.max(from, math.min(LARGEST, state.since + steps * policy.every))
end

local function until_full(policy, state, now)
  return earliest(policy, state, now, policy.capacity) - now
end

local receipt_is_time = false

local function read(numbers)
  local every = math.max(1, math.min(LONGEST_STEP, math.floor(numbers[3] * 1000 + 0.5)))
  return { capacity = numbers[1], refill = numbers[2], every = every }
end

local function take(policy, state, at, permits)
  local full = sum_at(policy, state, at) >= policy.capacity
  if full or state.tokens < DEEP then anchor(policy, state, at) end
  state.tokens = math.max(-LARGEST, state.tokens - permits)
  return 0
end

local lifetime = until_full

-- The hot path (hot.lua) inlines the functions above. The mark below lists the fields of the state.
--> hot since tokens

algorithms.t = {
  -- tokens that are promised for a step are missing at all earlier instants too
  in_order = true,
  receipt_is_time = receipt_is_time,
  policy = read,
  earliest = earliest,
  take = take,
  lifetime = lifetime,

  load = function(saved, from)
    local state = {}
    state.since, state.tokens, from = struct.unpack("<dd", saved, from)
    return state, from
  end,

  dump = function(state)
    return struct.pack("<dd", state.since, state.tokens)
  end,

  -- functions that are rarely needed: a script pays for each function that it creates
  more = function(algorithm)
    function algorithm.start(policy, now)
      return { since = now, tokens = policy.capacity }
    end

    function algorithm.shift(state, by)
      state.since = state.since + by
    end

    function algorithm.give_back(policy, state, now, permits)
      state.tokens = math.min(LARGEST, state.tokens + permits)
      if sum_at(policy, state, now) > policy.capacity then anchor(policy, state, now) end
    end

    function algorithm.quota(policy, state, now)
      local capacity = policy.capacity
      local window = math.min(LARGEST, capacity / math.min(policy.refill, capacity) * policy.every)
      local reset = until_full(policy, state, now)
      return capacity, math.max(0, tokens_at(policy, state, now)), reset, window
    end

    function algorithm.deficit(policy, state, now)
      return math.min(LARGEST, policy.capacity - tokens_at(policy, state, now))
    end

    function algorithm.resize(policy, state, now, before)
      local capacity, refill, every = policy.capacity, policy.refill, policy.every
      local same_capacity = capacity == before.capacity
      if same_capacity and refill == before.refill and every == before.every then return end
      anchor(before, state, now)
      if state.tokens > 0 and not same_capacity then
        state.tokens = math.min(capacity, state.tokens / before.capacity * capacity)
      end
      if every ~= before.every then
        local share = math.max(0, math.min(1, (now - state.since) / before.every))
        state.since = now - math.min(every - 1, math.floor(share * every))
      end
    end
  end,
}
