-- Registers a process, and counts the registered processes.
--
-- key      a text: for each process its id, a space, when its registration lapses (epoch ms), a line end
-- first    the id of the process
-- second   the lifetime of the registration, ms
-- reply    the number of registered processes, as text
--
-- Uses only GET, SET and TIME: Redis users of limiters need the rights to call these anyway.

local key, key_at, first, last, batch_id_at
--> run
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local id, lapse = ARGV[first], now + ARGV[first + 1]
local lines, latest = { string.format("%s %.0f\n", id, lapse) }, lapse
for other, at in string.gmatch(redis.call("GET", key) or "", "(%S+) (%d+)\n") do
  at = tonumber(at)
  if other ~= id and at > now then
    lines[#lines + 1] = string.format("%s %.0f\n", other, at)
    latest = math.max(latest, at)
  end
end
redis.call("SET", key, table.concat(lines), "PX", string.format("%.0f", latest - now))
return tostring(#lines)
