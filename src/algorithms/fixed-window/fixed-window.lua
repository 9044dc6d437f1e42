-- Fixed window. The essay is in fixed-window.ts; this file is its twin, function by function.
--
-- numbers: limit, windowMs, 1 if a window opens with the first request
-- state:   start, used

local LARGEST = 1.7976931348623157e308
local FAR = 4503599627370496

local function room(policy, state, windows)
  return policy.limit - math.max(0, state.used - windows * policy.limit)
end

local function windows_until(policy, state, permits)
  local windows = math.ceil((state.used - (policy.limit - permits)) / policy.limit)
  if permits > room(policy, state, windows) then return windows + 1 end
  return permits <= room(policy, state, windows - 1) and windows - 1 or windows
end

local function advance(policy, state, at)
  if at <= state.start then return end
  local passed = math.floor((at - state.start) / policy.window)
  state.used = math.max(0, state.used - passed * policy.limit)
  state.start = policy.first and state.used == 0 and math.ceil(at) or state.start + passed * policy.window
end

local function until_fresh(policy, state, now)
  local quotient = math.ceil(state.used / policy.limit)
  local windows = state.used > quotient * policy.limit and quotient + 1 or quotient
  return math.max(0, math.min(FAR, state.start + windows * policy.window) - now)
end

local receipt_is_time = true

local function read(numbers)
  return {
    limit = numbers[1],
    window = math.max(1, math.floor(numbers[2] * 1000 + 0.5)),
    first = numbers[3] == 1,
  }
end

local function earliest(policy, state, from, permits)
  if permits > policy.limit then return math.huge end
  local at = from > state.start and from or state.start
  local passed = math.floor((at - state.start) / policy.window)
  if permits <= room(policy, state, passed) then return at end
  local windows = windows_until(policy, state, permits)
  local opens = math.min(FAR, state.start + windows * policy.window)
  return opens > at and opens or at
end

local function take(policy, state, at, permits)
  advance(policy, state, math.min(FAR, at))
  state.used = math.min(LARGEST, state.used + permits)
  return state.start + policy.window
end

local lifetime = until_fresh

-- The hot path (hot.lua) inlines the functions above. The mark below lists the fields of the state.
--> hot start used

algorithms.f = {
  -- no request is granted before the latest window in which permits were promised
  in_order = true,
  receipt_is_time = receipt_is_time,
  policy = read,
  earliest = earliest,
  take = take,
  lifetime = lifetime,

  load = function(saved, from)
    local state = {}
    state.start, state.used, from = struct.unpack("<dd", saved, from)
    return state, from
  end,

  dump = function(state)
    return struct.pack("<dd", state.start, state.used)
  end,

  -- functions that are rarely needed: a script pays for each function that it creates
  more = function(algorithm)
    function algorithm.start(_, now)
      return { start = now, used = 0 }
    end

    function algorithm.align(policy, state, epoch)
      if policy.first then return end
      state.start = math.floor((epoch + state.start) / policy.window) * policy.window - epoch
    end

    function algorithm.shift(state, by)
      state.start = state.start + by
    end

    function algorithm.give_back(policy, state, _, permits, receipt)
      if receipt and receipt ~= state.start + policy.window then return end
      state.used = math.max(0, state.used - permits)
    end

    function algorithm.quota(policy, state, now)
      local passed = math.floor((now - state.start) / policy.window)
      local remaining = state.start > now and 0 or math.max(0, room(policy, state, passed))
      return policy.limit, remaining, until_fresh(policy, state, now), policy.window
    end

    function algorithm.deficit(policy, state, now)
      local passed = math.floor((now - state.start) / policy.window)
      return math.min(LARGEST, math.max(0, state.used - passed * policy.limit))
    end

    function algorithm.resize(policy, state, now, before)
      advance(before, state, now)
      local start = state.start
      if policy.first then
        local longest = now + policy.window
        local last = before.first and math.min(start + before.window, longest) or longest
        state.start = math.max(start, last - policy.window)
      else
        state.start = start > now and math.min(FAR, start + policy.window - 1) or now
      end
    end
  end,
}
