-- Returns the type and value of a key, for an error message.
--
-- KEYS[1]  the key
-- reply    its type ("none": it does not exist; empty: this user lacks the right), a tab, and the first 40 bytes of a text,
--          or of the first member of a sorted set

local kind, text = redis.pcall("TYPE", KEYS[1]), redis.pcall("GET", KEYS[1])
if kind.ok == "zset" then text = redis.pcall("ZRANGEBYSCORE", KEYS[1], "-inf", "+inf", "LIMIT", 0, 1)[1] end
if type(text) ~= "string" then text = "" end
return (kind.ok or "") .. "\t" .. string.sub(text, 1, 40)
