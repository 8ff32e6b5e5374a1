#!lua flags=allow-oom
-- Gives back claims that were never started; the next claim takes them as if for the first time.
-- By its ticket it gives back what one claim took whose answer was lost. Owners would not do: a successor has the name of
-- a dead worker, whose effects have started; nor would "all but those I know", which may arrive late.
-- KEYS: 1 leases, 2 bell
-- ARGV: 1 queue name, 2 ticket or '', then 2 a call: id, token
-- Returns: how many were given back
local leases, bell = KEYS[1], KEYS[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local released = 0

local function release(id)
  if redis.call('DECR', 'arq:retry:' .. id) < 1 then redis.call('DEL', 'arq:retry:' .. id) end
  redis.call('DEL', 'arq:in-progress:' .. id)
  redis.call('ZADD', leases, 'XX', now, id)
  released = released + 1
end

for i = 3, #ARGV, 2 do
  local claim = redis.call('GET', 'arq:in-progress:' .. ARGV[i])
  if claim and string.match(claim, '^%d+') == ARGV[i + 1] then release(ARGV[i]) end
end
if ARGV[2] ~= '' then
  for _, id in ipairs(redis.call('ZRANGE', leases, 0, 9999)) do
    local claim = redis.call('GET', 'arq:in-progress:' .. id)
    if claim and string.match(claim, '^%d+/(%S+) ') == ARGV[2] then release(id) end
  end
end
if released > 0 then redis.call('LPUSH', bell, 1) end
return released
