-- Exchanges a message with the ledger of a limit: the twin of stores/ledger.ts, which explains it.
--
-- key      the record, a text
-- first    the message: id region number answered since sent held want demand waited lease gap keep pool rests claim,
--          and of what was released number parts rest
-- reply    held fresh LF and the record; or "late" and the time
--
-- Uses only GET, SET and TIME: Redis users of limiters need the rights to call these anyway.

local MOST = 1e15

local key, key_at, first, last, batch_id_at
--> run
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local id, region = ARGV[first], ARGV[first + 1]
local numbers = {}
for i = 2, last - first do
  numbers[i] = math.min(MOST, math.max(0, math.floor(tonumber(ARGV[first + i]) or 0)))
end
local number, answered, known_since, sent, said = numbers[2], numbers[3], numbers[4], numbers[5], numbers[6]
local want, demand, waited, lease, gap = numbers[7], numbers[8], numbers[9], numbers[10], numbers[11]
local own_keep, pool, rests, claim = numbers[12], numbers[13], numbers[14], numbers[15]
-- in the future if the clock was ahead then
local since = math.min(known_since, now)
local start = since > 0 and since or now
local age = now - start
local created, closed, at, dropped = start, now - age + lease, now, 0
-- free parts that are not fresh, and for how long
local resting_before = { { pool, lease + own_keep - age } }
-- a line of the record: some words, then numbers; another version may have written others
local function fields_of(line, words, count)
  local pattern = string.rep(" ([^ ]+)", words) .. string.rep(" (%-?%d+)", count - words)
  local fields = { string.match(" " .. line, "^" .. pattern .. "$") }
  for i = words + 1, count do
    fields[i] = tonumber(fields[i])
    if not fields[i] or math.abs(fields[i]) >= 2 ^ 53 then
      error("the key " .. key .. " holds a value that no limiter has written", 0)
    end
  end
  return fields
end
local text = redis.call("GET", key)
local others, me, rows_before, back, keep = {}, nil, {}, 0, own_keep
local function parts_of(row)
  return row[4] + row[5] + row[7]
end
if text then
  local head, lines = string.match(text, "^([^\n]*)\n(.*)$")
  local times, groups = string.match(string.sub(text, -1) == "\n" and head or "", "^(%S+ %S+ %S+ %S+)(.*)$")
  created, closed, at, dropped = unpack(fields_of(times or "", 0, 4))
  resting_before = {}
  while groups ~= "" do
    local group, after = string.match(groups, "^ (%d+ %d+)(.*)$")
    resting_before[#resting_before + 1] = fields_of(group or "", 0, 2)
    groups = after
  end
  if at > now and at - now <= 1000 then now = at end
  since, created = math.min(known_since, now), math.min(created, now)
  back = math.max(0, at - now)
  closed, dropped = closed - back, dropped - back
  for line in string.gmatch(lines, "([^\n]*)\n") do
    local row = fields_of(line, 2, 15)
    rows_before[#rows_before + 1] = row
    row[11], row[15] = row[11] - back, row[15] - back
    if row[11] > now then
      keep = math.max(keep, row[12])
    end
  end
end
local longest = keep + 2 * gap
local function round_up(ms)
  local step = 1
  while step * 32 <= ms do
    step = step * 2
  end
  return math.ceil((now + ms) / step) * step - now
end
local resting = {}
local function rest(parts, ms)
  local place = 1
  while resting[place] and resting[place][2] < ms do
    place = place + 1
  end
  if not (resting[place] and resting[place][2] == ms) then
    table.insert(resting, place, { 0, ms })
  end
  resting[place][1] = math.min(MOST, resting[place][1] + parts)
end
local function release(parts, least)
  if least > 0 then
    rest(parts, round_up(least))
  end
end
local function rest_on(parts)
  local last = resting[#resting]
  if last then
    last[1] = math.min(MOST, last[1] + parts)
  end
end
local function used_of(row)
  return row[5] - row[6] + row[7] - row[8]
end
local cap = round_up(math.max(longest, closed - now + keep))
for i, group in ipairs(resting_before) do
  local ms = math.min(cap, group[2] - math.max(0, now - at))
  if ms > 0 and (group[1] > 0 or i == #resting_before) then
    rest(group[1], ms)
  end
end
local function longest_rest()
  return #resting > 0 and resting[#resting][2] or 0
end
local function rest_of(row)
  return math.max(math.min(row[11], now) + longest, closed + keep) - now
end
local lapsed, kept = 0, 0
for _, row in ipairs(rows_before) do
  if row[11] <= now then
    lapsed = lapsed + 1
  end
end
for _, row in ipairs(rows_before) do
  local is_kept = true
  if row[11] <= now then
    local rest_ms = rest_of(row)
    local until_ms = math.max(now + rest_ms, row[11] + row[12] + 2 * gap) + lease
    is_kept = until_ms > now and lapsed <= 64
    if lapsed > 64 then
      dropped = math.max(dropped, until_ms)
    end
    if not is_kept or rest_ms <= 0 or rests == 0 or row[11] <= closed then
      if row[4] > 0 then
        release(row[4], rest_ms)
      end
      row[4], row[13], row[14] = 0, 0, 0
    end
    rest_on(used_of(row))
    for i = 5, 10 do
      row[i] = 0
    end
    lapsed = lapsed - 1
  end
  if row[1] == id then
    me = row
  elseif is_kept then
    others[#others + 1] = row
    kept = kept + parts_of(row)
  end
end
-- a row: id region number held gift gift_fresh promised promised_fresh want demand lapse keep brought brought_fresh heard
local known = me and me[3] or 0
if number <= known or (sent > 0 and now - sent > lease) then
  return string.format("late %.0f", now)
end
local freed, used_up, used = 0, 0, {}
for i = 16, last - first, 3 do
  local by, parts = numbers[i], numbers[i + 1] or 0
  local least = by < number and now < closed and closed + keep - now or 0
  local ms = math.max(least, math.min(longest, numbers[i + 2] or 0))
  if by > known then
    if ms == 0 then
      freed = math.min(MOST, freed + parts)
    else
      used_up = math.min(MOST, used_up + parts)
      used[#used + 1] = { parts, ms }
    end
  end
end
local is_absent = known == 0 and (now < dropped and said or said + want + claim) == 0
local is_older = known < answered and not is_absent
me = me or { id, region, 0, 0, 0, 0, 0, 0, 0, 0, now, 0, 0, 0, now }
if answered == known then
  me[15] = now
else
  me[4], me[5], me[6] = me[4] - me[13], me[5] + me[13], me[6] + me[14]
end
local is_known = answered > 0 and answered <= known and since <= created and now >= closed
local deaf = now - me[15] - lease
local is_reclaimed = is_known and deaf <= keep and claim <= me[4] and kept + claim <= pool
local held = (said > 0 or not is_reclaimed) and said or claim
local unused = answered > 0 and math.max(0, deaf) or 0
local own_rest = math.max(longest - unused, closed + keep - now)
local is_new = answered == 0 and held == 0
if is_new then
  me[4], me[5], me[6] = me[4] + me[5], 0, 0
end
others[#others + 1] = me

local released = me[4] - held
local has_forgotten = is_older or held > me[4] or since > created
if has_forgotten then
  created, closed, released = math.max(created, since), now + lease, 0
  for _, row in ipairs(others) do
    closed = math.max(closed, row[11])
    row[5], row[6], row[7], row[8], row[13], row[14] = 0, 0, 0, 0, 0, 0
  end
end
local open = now >= closed
if #resting == 0 then
  me[8] = me[7]
end
local due = waited >= gap
local used_before = used_of(me)
local is_deaf = deaf > 0 and me[11] > math.min(now, me[15] + 2 * lease)
local wants = is_deaf and 0 or want
local wanted = math.max(0, (deaf > 0 and 0 or want) - held)
local got = math.min(wanted, me[5] + (due and me[7] or 0))
local got_fresh = math.min(got, me[6] + (due and me[8] or 0))
me[3], me[4], me[5], me[6] = number, held + got, 0, 0
me[9], me[10], me[11], me[12] = wants, is_deaf and 0 or demand, now + lease, own_keep
me[7] = due and 0 or math.min(wanted - got, me[7])
me[8] = math.min(me[7], me[8])
me[13], me[14] = got, got_fresh
rest_on(used_before - (got - got_fresh) - (me[7] - me[8]))

local left = math.min(released, math.max(0, pool - kept - parts_of(me)))
local left_fresh = math.max(0, math.min(freed, released) - (released - left))
local taken, lapse = 0, 0
local has_used = left > left_fresh
local unsaid = math.max(0, released - freed - used_up)
if unsaid > 0 and own_rest > 0 then
  used[#used + 1] = { unsaid, own_rest }
end
table.sort(used, function(a, b)
  return a[2] > b[2]
end)
for _, row in ipairs(others) do
  if open and not is_new and row ~= me then
    local given = math.max(0, math.min(row[9] - row[4] - row[5] - row[7], rests > 0 and left_fresh or left))
    local given_fresh = math.min(left_fresh, given)
    row[5], row[6] = row[5] + given, row[6] + given_fresh
    left, left_fresh = left - given, left_fresh - given_fresh
  end
  taken = taken + parts_of(row)
  lapse = math.max(lapse, row[11])
end
local to_rest = left - left_fresh
for _, group in ipairs(used) do
  local some = math.min(group[1], to_rest)
  if some > 0 or has_used and rests == 0 then
    release(some, group[2])
  end
  to_rest = to_rest - some
end
local free = math.max(0, pool - taken)
if has_forgotten then
  resting = { { free, math.max(closed - now + keep, longest_rest()) } }
end
local fresh = free
for _, group in ipairs(resting) do
  fresh = fresh - group[1]
end
fresh = math.max(0, fresh)
if open and me[7] == 0 and wants > me[4] then
  me[7] = math.min(wants - me[4], rests > 0 and fresh or free)
  me[8] = math.min(me[7], fresh)
  local to_take = me[7] - me[8]
  for i = #resting, 1, -1 do
    local some = math.min(resting[i][1], to_take)
    resting[i][1], to_take = resting[i][1] - some, to_take - some
  end
end
if me[4] + me[7] + want + claim == 0 then
  others[#others] = nil
end
local whole = "%.0f"
local head = { created, closed, now, dropped }
for _, group in ipairs(resting) do
  head[#head + 1] = group[1]
  head[#head + 1] = group[2]
end
for i, field in ipairs(head) do
  head[i] = string.format(whole, field)
end
local lines = { table.concat(head, " ") .. "\n" }
for _, row in ipairs(others) do
  for i = 3, 15 do
    row[i] = string.format(whole, row[i])
  end
  lines[#lines + 1] = table.concat(row, " ") .. "\n"
end
local next_text = table.concat(lines)
redis.call("SET", key, next_text, "PX", string.format(whole, math.max(lapse - now + longest, longest_rest()) + lease))
return string.format("%.0f %.0f\n", held + got, got_fresh) .. next_text
