#!lua
-- Appends progress entries of a running call, after the session's taint has risen to their level.
-- KEYS: 1 leases
-- ARGV: 1 queue name, 2 id, 3 token, 4 level, 5 life of replies ms, 6 replies kept a session, then entries as JSON
-- Returns: word: done, stale
--@include session
local tag, id, level = '{' .. ARGV[1] .. '}', ARGV[2], ARGV[4]
local owner = redis.call('GET', 'arq:in-progress:' .. id)
if not owner or string.match(owner, '^%d+') ~= ARGV[3] then return 'stale' end
local s, c = string.match(string.sub(id, #tag + 2), '^([^:]+):([^:]+)$')
local session, replies = session_key(tag, 'session', s), session_key(tag, 'replies', s)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if rank(level) > rank(redis.call('HGET', session, 'taint')) then
  redis.call('HSET', session, 'taint', level, 'taint:' .. level, now .. ' ' .. c)
  redis.call('PERSIST', session)
end
for i = 7, #ARGV do redis.call('XADD', replies, 'MAXLEN', '~', ARGV[6], '*', 'reply', ARGV[i]) end
redis.call('PEXPIRE', replies, ARGV[5])
return 'done'
