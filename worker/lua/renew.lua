#!lua flags=allow-oom
-- Moves the ends of all leases of one worker, and tells which are no longer its own or are to be cancelled.
-- KEYS: 1 leases, 2 workers
-- ARGV: 1 queue name, 2 lease ms, 3 owner, 4 heartbeat or '', 5 life of claims in ms, then 2 a call: id, token
-- Returns: a word a call: kept, lost, cancel
--@include session
--@include heartbeat
local leases, workers = KEYS[1], KEYS[2]
local tag, lease_ms = '{' .. ARGV[1] .. '}', tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
beat(workers, ARGV[3], ARGV[4], now)
local answer = {}
for i = 6, #ARGV, 2 do
  local id, token, word = ARGV[i], ARGV[i + 1], 'lost'
  local owner = redis.call('GET', 'arq:in-progress:' .. id)
  if owner and string.match(owner, '^%d+') == token then
    local s, c = string.match(string.sub(id, #tag + 2), '^([^:]+):([^:]+)$')
    redis.call('ZADD', leases, 'XX', now + lease_ms, id)
    -- Only now: most calls have ended before their first renewal.
    redis.call('PEXPIRE', 'arq:in-progress:' .. id, lease_ms + 60000)
    redis.call('PEXPIRE', session_key(tag, 'running', s), ARGV[5])
    word = redis.call('EXISTS', session_key(tag, 'cancel', s) .. ':' .. c) == 1 and 'cancel' or 'kept'
  end
  answer[#answer + 1] = word
end
return answer
