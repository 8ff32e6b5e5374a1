#!lua flags=allow-oom
-- Gives back claims that were never started; the next claim takes them as if for the first time.
-- With no ids it gives back all claims of an owner but those listed as known: a claim whose answer was lost.
-- KEYS: 1 leases, 2 bell
-- ARGV: 1 queue name, 2 owner, 3 'these' or 'others', then 2 a call: id, token
-- Returns: how many were given back
local leases, bell = KEYS[1], KEYS[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local released, listed = 0, {}
for i = 4, #ARGV, 2 do listed[ARGV[i]] = ARGV[i + 1] end

local function release(id)
  if redis.call('DECR', 'arq:retry:' .. id) < 1 then redis.call('DEL', 'arq:retry:' .. id) end
  redis.call('DEL', 'arq:in-progress:' .. id)
  redis.call('ZADD', leases, 'XX', now, id)
  released = released + 1
end

if ARGV[3] == 'these' then
  for id, token in pairs(listed) do
    local owner = redis.call('GET', 'arq:in-progress:' .. id)
    if owner and string.match(owner, '^%d+') == token then release(id) end
  end
else
  for _, id in ipairs(redis.call('ZRANGE', leases, 0, 9999)) do
    local claim = redis.call('GET', 'arq:in-progress:' .. id)
    local token, owner = string.match(claim or '', '^(%d+) (.*)$')
    if owner == ARGV[2] and listed[id] ~= token then release(id) end
  end
end
if released > 0 then redis.call('LPUSH', bell, 1) end
return released
