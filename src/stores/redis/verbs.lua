-- The verbs of transition.lua that are not on the hot path.

verbs = {}

local function number()
  position = position + 1
  return tonumber(ARGV[position - 1])
end

local function amounts()
  local permits = {}
  for i = 1, count do permits[i] = number() end
  return permits
end

-- returns the policy that alone would grant the permits last, and for each policy whether it alone would grant them now
local function alone(from, permits)
  local slowest, latest, open = 0, -math.huge, {}
  for i = 1, count do
    local at = permits[i] > 0 and algorithm[i].earliest(policy[i], state[i], from, permits[i]) or -math.huge
    if at > latest then slowest, latest = i - 1, at end
    -- a policy with a limit of 0 grants nothing
    local shut = closed and closed[i] and permits[i] > 0
    open[i] = at <= now and not shut and "1" or "0"
  end
  return slowest, open
end

-- encodes the slowest policy, and for each policy its quota and whether it is open
local function standing(slowest, open)
  local values = { text(slowest) }
  for i = 1, count do
    local limit, remaining, reset, window = algorithm[i].quota(policy[i], state[i], now)
    if paused_until > now then remaining, reset = 0, math.max(reset, paused_until - now) end
    if closed and closed[i] then limit, remaining = 0, 0 end
    for _, value in ipairs({ limit, remaining, reset, window }) do values[#values + 1] = text(value) end
    values[#values + 1] = open[i]
  end
  return table.concat(values, " ")
end

-- finds when the part can be granted; its fate is "1" within longest, "0" later, "2" it may not wait either, "3" never.
-- Returns whether a combination can be granted with it.
local function ask(part)
  local from = math.max(now - part.late, paused_until)
  part.at = earliest(from, part.permits)
  part.wait = part.at > now and math.ceil(part.at - now) or 0
  part.slowest, part.open = alone(from, part.permits)
  local shut = closed and refuses(part.permits)
  local full = shut or part.wait > 0 and part.at < math.huge and overflowing(part.permits)
  part.fate = full and "2" or part.at == math.huge and "3" or part.wait <= part.longest and "1" or "0"
  if full then part.wait, part.slowest = math.huge, full - 1 end
  part.passes = part.fate == "1"
  return part.passes or part.optional
end

local function tell(taking)
  local part = { longest = 0, late = number() }
  part.permits = amounts()
  ask(part)
  if part.fate == "3" then return "never" end
  if taking and part.passes then take(part.at, part.permits) end
  return text(part.wait) .. " " .. standing(part.slowest, part.open)
end

local MOST_SETTINGS = 32

local function set(numbers)
  -- plain finds: the numbers of other callers may look like a pattern
  local first, last = string.find(settings, "\t" .. declared .. "=", 1, true)
  if first then
    settings = string.sub(settings, 1, first) .. string.sub(settings, string.find(settings, "\t", last, true) + 1)
  end
  if numbers ~= declared then
    settings = (settings == "" and "\t" or settings) .. declared .. "=" .. numbers .. "\t"
  end
  -- numbers that no code declares any more must not pile up: the latest are kept
  while select(2, string.gsub(settings, "\t", "")) > MOST_SETTINGS + 1 do
    settings = string.sub(settings, string.find(settings, "\t", 2, true), -1)
  end
  if settings == "\t" then settings = "" end
  local before, own = policy, written_under == in_force
  local reached = own and "=" or not string.find(declared, "$", 1, true) and written_under or ""
  in_force = resolve(numbers)
  if own then written_under = in_force end
  parse(in_force)
  resize(before)
  changed = true
  return reached
end

function verbs.decide()
  return tell(true)
end

function verbs.peek()
  return tell(false)
end

-- An amount of stored permits, as a receipt, fits only the whole grant, and only if it was the last.
local function refund(i, permits, receipt)
  local kind = algorithm[i]
  local at = 0
  if kind.receipt_is_time then at = receipt ~= 0 and receipt - base or nil end
  kind.give_back(policy[i], state[i], now, permits, at)
end

-- Later promises stay valid, so no other request may be granted the same permits: unless the grant was the
-- last one, only as many permits come back as the algorithm can keep. (The receipts of algorithms with receipt_is_time
-- contain the instant of the grant.)
function verbs.back()
  local permits, receipts, promises = amounts(), amounts(), amounts()
  for i = 1, count do
    local kind, receipt = algorithm[i], receipts[i]
    if permits[i] > 0 and kind.receipt_is_time then
      refund(i, permits[i], receipt)
    elseif permits[i] > 0 then
      local up_to = promised_until(i)
      if up_to <= now + base or up_to == promises[i] then
        kind.give_back(policy[i], state[i], now, permits[i], receipt)
      elseif kind.keep then
        kind.keep(policy[i], state[i], permits[i])
      end
    end
  end
  changed = true
  return ""
end

function verbs.refund()
  local permits, receipts = amounts(), amounts()
  for i = 1, count do
    if permits[i] > 0 then refund(i, permits[i], receipts[i]) end
  end
  changed = true
  return ""
end

function verbs.charge()
  take(now, amounts())
  return ""
end

function verbs.settle()
  local permits = amounts()
  for i = 1, count do
    local use = algorithm[i].settle or algorithm[i].take
    if permits[i] > 0 then use(policy[i], state[i], now, permits[i]) end
  end
  if parked then charge(parked, permits, now) end
  changed = true
  return ""
end

function verbs.pause()
  paused_until, changed = math.max(paused_until, now + number()), true
  return ""
end

function verbs.deficit()
  local values = {}
  for i = 1, count do values[i] = text(algorithm[i].deficit(policy[i], state[i], now)) end
  values[count + 1] = text(math.max(0, math.ceil(paused_until - now)))
  return table.concat(values, " ")
end

function verbs.set()
  position = position + 1
  return set(ARGV[position - 1])
end

function verbs.unset()
  return set(declared)
end

function verbs.reset()
  start(now)
  paused_until, changed, parked, elsewhere = 0, true, nil, ""
  return ""
end
