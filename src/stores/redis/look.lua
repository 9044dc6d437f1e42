-- Returns the type and value of a key, for an error message.
--
-- KEYS[1]  the key
-- reply    its type ("none": it does not exist; empty: this user lacks the right), a tab, and the first 40 bytes of a text

local kind, text = redis.pcall("TYPE", KEYS[1]), redis.pcall("GET", KEYS[1])
if type(text) ~= "string" then text = "" end
return (kind.ok or "") .. "\t" .. string.sub(text, 1, 40)
