-- One call for one limiter: the hot path if there is one, else transition.lua from `--> load` on.

key, key_at, first, last, batch_id_at = KEYS[1], 1, 1, #ARGV - 2, #ARGV - 1
do
--> hot
end
