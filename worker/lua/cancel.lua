#!lua flags=allow-oom
-- Brings a call that somebody wants cancelled to the front, so that it is answered at once and not when its turn comes.
-- KEYS: 1 leases, 2 bell, 3 queue, 4 batch queue
-- ARGV: 1 queue name, 2 session, 3 call, 4 readers a session may have, 5 life of claims in ms
-- Returns: word: front, running, unknown
--@include pressure
--@include session
local leases, bell, queue, batch = unpack(KEYS)
local tag, s, c, cap = '{' .. ARGV[1] .. '}', ARGV[2], ARGV[3], tonumber(ARGV[4])
local id, running = tag .. ':' .. s .. ':' .. c, session_key(tag, 'running', s)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('EXISTS', session_key(tag, 'cancel', s) .. ':' .. c) == 0 then return 'unknown' end
local held = redis.call('HGET', running, c)
if held == 'R' or held == 'E' then
  redis.call('LREM', session_key(tag, 'waiting', s), 1, c)
  local bytes = payload_bytes(id)
  redis.call('HINCRBY', running, '#w', -1)
  if redis.call('HINCRBY', running, '#b', -bytes) < 0 then redis.call('HSET', running, '#b', 0) end
  count_parked(tag, -1, -bytes)
elseif held then
  return 'running'
elseif redis.call('EXISTS', 'arq:job:' .. id) == 0 or redis.call('ZREM', queue, id) + redis.call('ZREM', batch, id) == 0 then
  return 'unknown'
end
redis.call('HSET', running, c, 'x')
redis.call('PEXPIRE', running, tonumber(ARGV[5]))
redis.call('ZADD', leases, now, id)
grant(tag, leases, s, now, cap)
redis.call('LPUSH', bell, 1)
return 'front'
