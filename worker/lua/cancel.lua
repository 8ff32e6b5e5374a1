#!lua flags=allow-oom
-- Brings a call that somebody wants cancelled to the front, so that it is answered at once and not when its turn comes.
-- KEYS: 1 leases, 2 bell, 3 queue, 4 batch queue
-- ARGV: 1 queue name, 2 session, 3 call, 4 readers a session may have, 5 life of claims in ms
-- Returns: word: front, running, unknown, or unasked where nobody has written the wish down
--@include pressure
--@include session
--@include turns
local leases, bell, queue, batch = unpack(KEYS)
local tag, s, c, cap = '{' .. ARGV[1] .. '}', ARGV[2], ARGV[3], tonumber(ARGV[4])
local id = tag .. ':' .. s .. ':' .. c
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('EXISTS', session_key(tag, 'cancel', s) .. ':' .. c) == 0 then return 'unasked' end
local running = session_key(tag, 'running', s)
local found = redis.call('HMGET', running, '#r', '#e', '#w', c)
local readers, effects, parked, held = tonumber(found[1] or 0), tonumber(found[2] or 0), tonumber(found[3] or 0), found[4]
local was_parked, bytes, more = parked, 0, 0
if held and string.find(held, '^[RE]') then
  redis.call('LREM', session_key(tag, 'waiting', s), 1, c)
  parked, bytes = parked - 1, tonumber(string.sub(held, 2)) or 0
  redis.call('HSET', running, '#w', parked)
  redis.call('HINCRBY', running, '#b', -bytes)
elseif held then
  return 'running'
elseif redis.call('EXISTS', session_key(tag, 'done', s) .. ':' .. c) == 1 then
  -- It has its reply; the claim drops what was sent again.
  return 'unknown'
elseif redis.call('EXISTS', 'arq:job:' .. id) == 0 or redis.call('ZREM', queue, id) + redis.call('ZREM', batch, id) == 0 then
  return 'unknown'
end
redis.call('HSET', running, c, 'x')
redis.call('HINCRBY', running, '#x', 1)
local changes, leased = {}, { now, id }
readers, effects, parked, more = grant(tag, s, running, readers, effects, parked, changes, leased, now, cap)
redis.call('HSET', running, '#r', readers, '#e', effects, unpack(changes))
if parked < was_parked then count_parked(tag, parked - was_parked, -bytes - more) end
redis.call('PEXPIRE', running, ARGV[5])
redis.call('ZADD', leases, unpack(leased))
redis.call('LPUSH', bell, 1)
return 'front'
