-- What a key holds, for an error that says so.
--
-- KEYS[1]  the key
-- reply    its type ("none": it is gone; empty: this user may not ask), a tab, and the first 40 bytes of a text

local kind, text = redis.pcall("TYPE", KEYS[1]), redis.pcall("GET", KEYS[1])
if type(text) ~= "string" then text = "" end
return (kind.ok or "") .. "\t" .. string.sub(text, 1, 40)
