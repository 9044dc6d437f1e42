-- One batch: requests in order on the leases and tickets of one limiter.
--
-- A lease belongs to a caller that runs, a ticket to a caller that waits for a lease. Both lapse unless
-- they are kept. A ticket that becomes a lease keeps its time of lapse. So all leases and tickets of a
-- dead process lapse at one instant: its lease time after its last request.
--
-- KEYS[1]  a sorted set. By score:
--            below 0          "q" id: a ticket, in the order of the queue
--            0 to LAPSE       "l" id: a lease; the score is when it lapses (epoch ms)
--                             "m" id ":" i: with the same score, for each slot of the lease from the second on
--            LAPSE            "e" id: a ticket; the score is LAPSE + when it lapses
--            from SETTING on  "s" declared "=" limit: a limit set at run time; the score is SETTING + when
--          An id is lease time (ms) ":" declared limit ":" process ":" number, and ":" slots if they are several.
-- ARGV[1]  the limit that this caller's code declares
-- ARGV[2]  the prefix of the channels' names
-- ARGV[3+] the requests, each a letter and an argument
--            a id     takes a lease, or else a ticket; keeps either if the id has it already
--            t id     takes a lease if one is free
--            k id     keeps the lease or the ticket
--            r id     gives the lease or the ticket back
--            l limit  sets the limit for all callers that declare the same limit as this caller
--            o        changes nothing, for a caller that needs only the reply
--            h id     takes a lease regardless of the limit; such requests run first
--            p        in a batch of its own: writes, undoes the write, and grants no lease
-- reply    an error if memory is short and a request needs some; the other requests have been run then. Else
--          one string: the limit in force, the number of slots held, the number of tickets, in how many ms the
--          first lease lapses (-1: no ticket waits), a tab, and for each request a digit: 1 a lease, 2 a
--          ticket, 0 neither
-- message  to the channel ARGV[2] ":" process, when tickets of that process become leases: their
--          ids, separated by spaces

local LAPSE, SETTING, MOST_SETTINGS = 1e15, 4e15, 32
local FOREIGN = " holds a value that no limiter has written"
local FIRST_TICKET = -9e15

local key, declared = KEYS[1], ARGV[1]
local time = redis.call("TIME")
local now = time[1] * 1000 + time[2] / 1000

-- formats a whole number with all digits; Lua's own conversion keeps 14
local function text(number)
  return string.format("%.0f", number)
end

-- returns the first or last member between two scores, and its score
local function edge(verb, from, to)
  local found = redis.call(verb, key, from, to, "WITHSCORES", "LIMIT", 0, 1)
  return found[1], tonumber(found[2])
end

-- If memory is short, Redis fails the first command of a script that needs some, unless the script has
-- written before. So this is tested before everything else: requests that take a lease or a ticket are then
-- rejected, and requests that give one back still run.
local out_of_memory, refused
for i = 3, #ARGV do
  if string.find(ARGV[i], "^[athlp]") then
    local reply = redis.pcall("ZADD", key, "XX", 0, "")
    if type(reply) == "table" and reply.err then
      if not string.find(reply.err, "OOM") then return reply end
      out_of_memory = reply
    end
    break
  end
end

-- Other code's sorted set under this key must not lose members. The first member tells it apart, because this script
-- writes only to a set that it has begun.
local first_member = edge("ZRANGEBYSCORE", "-inf", "+inf")
if first_member and not string.find(first_member, "^[qlme][%d.]+:[^:]+:[^:]+:.") and not string.find(first_member, "^s.+=.") then
  error("the key " .. key .. FOREIGN, 0)
end

-- removes leases and tickets that have lapsed
redis.call("ZREMRANGEBYSCORE", key, 0, text(math.floor(now)))
local lapsed = redis.call("ZRANGEBYSCORE", key, text(LAPSE), text(LAPSE + math.floor(now)))
for _, member in ipairs(lapsed) do
  redis.call("ZREM", key, member, "q" .. string.sub(member, 2))
end

local active = redis.call("ZCOUNT", key, 0, "(" .. text(LAPSE))
local waiting = redis.call("ZCOUNT", key, "-inf", "(0")

local set_limits = {}
for _, member in ipairs(redis.call("ZRANGEBYSCORE", key, text(SETTING), "+inf")) do
  local replaced, limit = string.match(member, "^s(.*)=(.*)$")
  set_limits[replaced] = limit
end

local function limit_of(numbers)
  return tonumber(set_limits[numbers] or numbers)
end

-- returns when the lease or ticket lapses if it is kept now; rounded up: never before its owner expects
local function lapse_of(id)
  return math.ceil(now + tonumber(string.match(id, "^[^:]*")))
end

-- returns how many slots a lease holds
local function slots_of(id)
  return tonumber(string.match(id, "^[^:]*:[^:]*:[^:]*:[^:]*:(%d+)$") or 1)
end

local function has_lease(id)
  return redis.call("ZSCORE", key, "l" .. id)
end

-- writes a lease, a member for each slot
local function put_lease(id, lapse)
  redis.call("ZADD", key, text(lapse), "l" .. id)
  for i = 2, slots_of(id) do
    redis.call("ZADD", key, text(lapse), "m" .. id .. ":" .. i)
  end
end

-- A request for more slots than a limit that was lowered meanwhile is let in alone: it would wait for ever.
local function fits(id, limit)
  return active + slots_of(id) <= limit or active == 0
end

-- the tickets that became leases, by process
local granted, changed = {}, false

-- turns tickets into leases, in order, while the limit allows it
local function grant()
  while waiting > 0 do
    local head = edge("ZRANGEBYSCORE", "-inf", "(0")
    local id = string.sub(head, 2)
    local numbers, process = string.match(id, "^[^:]*:([^:]*):([^:]*)")
    if not fits(id, limit_of(numbers)) then return end
    local lapse = tonumber(redis.call("ZSCORE", key, "e" .. id)) - LAPSE
    redis.call("ZREM", key, head, "e" .. id)
    put_lease(id, lapse)
    active, waiting, changed = active + slots_of(id), waiting - 1, true
    granted[process] = granted[process] and granted[process] .. " " .. id or id
  end
end

local function keep(id)
  changed = true
  if has_lease(id) then
    put_lease(id, lapse_of(id))
    return 1
  elseif redis.call("ZSCORE", key, "e" .. id) then
    redis.call("ZADD", key, text(LAPSE + lapse_of(id)), "e" .. id)
    return 2
  end
  return 0
end

-- whether memory is too short for a new lease, ticket or limit
local function is_full()
  refused = refused or out_of_memory
  return out_of_memory
end

local function acquire(id, waits)
  local standing = keep(id)
  if standing > 0 or is_full() then return standing end
  if waiting == 0 and fits(id, limit_of(declared)) then
    put_lease(id, lapse_of(id))
    active = active + slots_of(id)
    return 1
  elseif waits then
    local _, last = edge("ZREVRANGEBYSCORE", "(0", "-inf")
    redis.call("ZADD", key, text((last or FIRST_TICKET) + 1), "q" .. id)
    redis.call("ZADD", key, text(LAPSE + lapse_of(id)), "e" .. id)
    waiting = waiting + 1
    return 2
  end
  return 0
end

local function drop_ticket(id)
  if redis.call("ZREM", key, "q" .. id, "e" .. id) > 0 then waiting = waiting - 1 end
end

local function release(id)
  changed = true
  if redis.call("ZREM", key, "l" .. id) > 0 then
    for i = 2, slots_of(id) do
      redis.call("ZREM", key, "m" .. id .. ":" .. i)
    end
    active = active - slots_of(id)
  end
  drop_ticket(id)
  grant()
  return 0
end

local function adopt(id)
  local had_lease = has_lease(id)
  if not had_lease and is_full() then return end
  changed = true
  drop_ticket(id)
  put_lease(id, lapse_of(id))
  if not had_lease then active = active + slots_of(id) end
end

local function probe()
  if is_full() then return end
  redis.call("ZADD", key, 0, "p")
  redis.call("ZREM", key, "p")
end

local function set_limit(limit)
  if is_full() then return 0 end
  if set_limits[declared] then redis.call("ZREM", key, "s" .. declared .. "=" .. set_limits[declared]) end
  set_limits[declared], changed = nil, true
  if limit ~= declared then
    set_limits[declared] = limit
    redis.call("ZADD", key, text(SETTING + now), "s" .. declared .. "=" .. limit)
  end
  -- limits that no code declares any more must not pile up: the latest are kept
  while redis.call("ZCOUNT", key, text(SETTING), "+inf") > MOST_SETTINGS do
    redis.call("ZREM", key, (edge("ZRANGEBYSCORE", text(SETTING), "+inf")))
  end
  grant()
  return 0
end

for i = 3, #ARGV do
  if string.sub(ARGV[i], 1, 1) == "h" then adopt(string.sub(ARGV[i], 2)) end
end
if ARGV[3] == "p" then probe() else grant() end
local answers = {}
for i = 3, #ARGV do
  local verb, what = string.sub(ARGV[i], 1, 1), string.sub(ARGV[i], 2)
  local answer = 0
  if verb == "a" then
    answer = acquire(what, true)
  elseif verb == "t" then
    answer = acquire(what, false)
  elseif verb == "k" then
    answer = keep(what)
  elseif verb == "r" then
    answer = release(what)
  elseif verb == "l" then
    answer = set_limit(what)
  elseif verb == "h" then
    answer = 1
  end
  answers[#answers + 1] = answer
end

-- without the right to publish the limiter still works: waiters poll for their tickets
for process, ids in pairs(granted) do
  redis.pcall("PUBLISH", ARGV[2] .. ":" .. process, ids)
end

if changed then
  local _, lease = edge("ZREVRANGEBYSCORE", "(" .. text(LAPSE), 0)
  local _, ticket = edge("ZREVRANGEBYSCORE", "(" .. text(SETTING), text(LAPSE))
  local life = math.max(lease or 0, (ticket or LAPSE) - LAPSE) - now
  if next(set_limits) then
    redis.call("PERSIST", key) -- what was set at run time outlives idleness
  else
    redis.call("PEXPIRE", key, text(math.max(0, life) + 1000))
  end
end

if refused then return refused end

local soonest = -1
if waiting > 0 then
  local _, lease = edge("ZRANGEBYSCORE", 0, "(" .. text(LAPSE))
  if lease then soonest = math.ceil(lease - now) end
end
return text(limit_of(declared)) .. " " .. active .. " " .. waiting .. " " .. text(soonest) .. "\t" .. table.concat(answers)
