-- Smooth bursty and smooth warming up. The essay is in smooth.ts; this file is its twin, function by
-- function.
--
-- numbers: permitsPerSecond, warmupMs (0: bursty), burstSeconds (1) or coldFactor (3), prefilled (0)
-- state:   nextFree, stored

local LARGEST = 1.7976931348623157e308
local HOUR = 3600000000

local function stored_at(policy, state, now)
  if now <= state.nextFree then return state.stored end
  return math.min(policy.max, state.stored + (now - state.nextFree) / policy.coolDown)
end

local function resync(policy, state, now)
  if now > state.nextFree then
    state.stored = stored_at(policy, state, now)
    state.nextFree = now
  end
end

local function until_full(policy, state, now)
  local debt = math.max(0, state.nextFree - now)
  return debt + (policy.max - stored_at(policy, state, now)) * policy.coolDown
end

local function price(policy, stored, permits)
  if not policy.warmingUp or permits == 0 then return 0 end
  local stable, cold = policy.stable, stored - policy.threshold
  if cold <= 0 then return permits * stable end
  local above = permits < cold and permits or cold
  local mean = stable + policy.slope * (above / 2 + (cold - above))
  return above * mean + (permits - above) * stable
end

local receipt_is_time = false

local function read(numbers)
  local permitsPerSecond, warmupMs = numbers[1], numbers[2] or 0
  local factor = numbers[3] or (warmupMs == 0 and 1 or 3)
  local stable = math.min(LARGEST, 1000000 / permitsPerSecond)
  local limited = stable > 0
  if warmupMs == 0 then
    local max = limited and math.min(LARGEST, permitsPerSecond * factor) or 0
    return {
      warmingUp = false, prefilled = numbers[4] == 1, stable = stable, coolDown = stable,
      max = max, threshold = max, slope = 0,
    }
  end
  local warmup = warmupMs * 1000
  local cold = math.min(LARGEST, stable * factor)
  local threshold = limited and warmup / stable / 2 or 0
  local max = limited and math.min(LARGEST, threshold + (2 * warmup) / (stable + cold)) or 0
  return {
    warmingUp = true, prefilled = true, stable = stable,
    coolDown = limited and math.min(LARGEST, warmup / max) or 0,
    max = max, threshold = threshold,
    slope = max > threshold and math.min(LARGEST, (cold - stable) / (max - threshold)) or 0,
  }
end

local function earliest(_, state, from)
  local nextFree = state.nextFree
  return from > nextFree and from or nextFree
end

local function take(policy, state, at, permits)
  if at > state.nextFree then resync(policy, state, at) end
  local stored = state.stored
  local from_store = permits < stored and permits or stored
  local cost = (permits - from_store) * policy.stable
  if policy.warmingUp then cost = price(policy, stored, from_store) + cost end
  local nextFree = state.nextFree + cost
  state.nextFree = nextFree < LARGEST and nextFree or LARGEST
  state.stored = stored - from_store
  return from_store
end

local function lifetime(policy, state, now)
  return until_full(policy, state, now) + (policy.prefilled and 0 or HOUR)
end

-- The hot path (hot.lua) inlines the functions above. The mark below lists the fields of the state.
--> hot nextFree stored

algorithms.s = {
  -- nextFree applies to requests of any size, so a later request never gets an earlier instant
  in_order = true,
  receipt_is_time = receipt_is_time,
  policy = read,
  earliest = earliest,
  take = take,
  lifetime = lifetime,

  load = function(saved, from)
    local state = {}
    state.nextFree, state.stored, from = struct.unpack("<dd", saved, from)
    return state, from
  end,

  dump = function(state)
    return struct.pack("<dd", state.nextFree, state.stored)
  end,

  -- functions that are rarely needed: a script pays for each function that it creates
  more = function(algorithm)
    function algorithm.start(policy, now)
      return { nextFree = now, stored = policy.prefilled and policy.max or 0 }
    end

    function algorithm.shift(state, by)
      state.nextFree = state.nextFree + by
    end

    function algorithm.give_back(policy, state, _, permits, receipt)
      local from_store = math.min(permits, receipt)
      state.stored = math.min(policy.max, state.stored + from_store)
      local fresh = (permits - from_store) * policy.stable
      state.nextFree = state.nextFree - (price(policy, state.stored, from_store) + fresh)
    end

    function algorithm.keep(policy, state, permits)
      if not policy.warmingUp then state.stored = math.min(policy.max, state.stored + permits) end
    end

    function algorithm.settle(policy, state, now, permits)
      resync(policy, state, now)
      local from_store = math.min(permits, state.stored)
      local cost = (permits - from_store) * policy.stable
      state.nextFree = math.min(LARGEST, state.nextFree + cost)
      state.stored = state.stored - from_store
    end

    function algorithm.quota(policy, state, now)
      local reset = until_full(policy, state, now)
      local free = state.nextFree <= now
      if policy.stable == 0 then return math.huge, free and math.huge or 0, reset, 0 end
      local limit = policy.warmingUp and 1 or math.floor(policy.max) + 1
      local ready = policy.warmingUp and 1 or math.floor(stored_at(policy, state, now)) + 1
      return limit, free and ready or 0, reset, limit * policy.stable
    end

    function algorithm.deficit(policy, state, now)
      if policy.stable == 0 then return 0 end
      local lacking = policy.max - stored_at(policy, state, now)
      local debt = math.max(0, state.nextFree - now)
      local more = math.max(0, debt - price(policy, policy.max, lacking)) / policy.stable
      return math.min(LARGEST, lacking + more)
    end

    function algorithm.resize(policy, state, now, before)
      resync(before, state, now)
      if before.stable == 0 then
        state.stored = policy.warmingUp and 0 or policy.max
      elseif before.max > 0 then
        state.stored = policy.max * (state.stored / before.max)
      end
    end
  end,
}
