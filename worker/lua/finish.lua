#!lua flags=allow-oom
-- Ends calls whose claim is still the caller's: reply once, close the claim, raise taint, audit, grant the next.
-- KEYS: 1 leases, 2 bell, 3 audit, 4 queue
-- ARGV: 1 queue name, 2 readers a session may have, 3 life of replies ms, 4 replies kept a session,
--       5 life of outcomes ms, 6 stored reply bytes at most, 7 audit entries kept, 8 life of plans ms,
--       9 the operator's limits as JSON (see _limits.lua) or '',
--       then 8 a call: id, token, reply JSON, digest, level, audit JSON or '', plan as 'digest bytes scope body', bytes
--       those of the scope, or '',
--       what an approver is asked for as JSON or ''
-- Returns: {granted, word, word, ...}, a word a call: done, stale
--@include pressure
--@include session
--@include limits
local leases, bell, audit = KEYS[1], KEYS[2], KEYS[3]
local q, cap, reply_life, reply_cap = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local done_life, stored, audit_cap, plan_life = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local tag = '{' .. q .. '}'
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local granted, ended, alive = 0, {}, {}
local limits = ARGV[9] ~= '' and cjson.decode(ARGV[9])

local function raise(s, c, level, reply)
  local key = session_key(tag, 'session', s)
  local taint = redis.call('HGET', key, 'taint')
  if rank(level) > rank(taint) then
    redis.call('HSET', key, 'taint', level, 'taint:' .. level, now .. ' ' .. c)
    -- A closed session's record ends; one that is used again must not forget what it sees now.
    redis.call('PERSIST', key)
    taint = level
  end
  -- Calls that ran beside this one may have raised the taint since the reply was written.
  local from, to = string.find(reply, '"taint":"', 1, true)
  local stop = string.find(reply, '"', to + 1, true)
  if rank(taint) > rank(string.sub(reply, to + 1, stop - 1)) then
    return string.sub(reply, 1, to) .. taint .. string.sub(reply, stop)
  end
  return reply
end

local function finish(id, token, reply, digest, level, entry, plan, ask)
  local owner = redis.call('GET', 'arq:in-progress:' .. id)
  if not owner or string.match(owner, '^%d+') ~= token then return 'stale' end
  local s, c = string.match(string.sub(id, #tag + 2), '^([^:]+):([^:]+)$')
  local replies = session_key(tag, 'replies', s)
  reply = raise(s, c, level, reply)
  redis.call('DEL', 'arq:job:' .. id, 'arq:in-progress:' .. id, 'arq:retry:' .. id, session_key(tag, 'cancel', s) .. ':' .. c)
  ended[#ended + 1] = id
  local entry_id = redis.call('XADD', replies, 'MAXLEN', '~', reply_cap, '*', 'reply', reply)
  if not alive[s] then redis.call('PEXPIRE', replies, reply_life) end
  alive[s] = true
  local kept = #reply <= stored and reply or ''
  redis.call('SET', session_key(tag, 'done', s) .. ':' .. c, digest .. ' ' .. entry_id .. ' ' .. kept, 'PX', done_life)
  if limits then
    -- The reply's own words come before any text of the agent's.
    store(limits, tag, s, string.match(reply, '"tool":"([^"]*)"') or '', #reply + #kept)
    leave(limits, tag, s, id)
  end
  if entry ~= '' then redis.call('XADD', audit, 'MAXLEN', '~', audit_cap, '*', 'entry', entry) end
  if plan ~= '' then
    local key = session_key(tag, 'plan', s)
    local named, bytes, rest = string.match(plan, '^(%x+) (%d+) (.*)$')
    local scope, body = string.sub(rest, 1, tonumber(bytes)), string.sub(rest, tonumber(bytes) + 2)
    redis.call('HSET', key, 'digest', named, 'scope', scope, 'body', body, 'proposed_ms', now, 'call', c)
    redis.call('HINCRBY', key, 'version', 1)
    redis.call('PEXPIRE', key, plan_life)
  end
  if ask ~= '' then
    local key = 'reef:' .. tag .. ':asks'
    redis.call('XADD', key, 'MAXLEN', '~', 1000, '*', 'ask', ask)
    redis.call('PEXPIRE', key, plan_life)
  end
  granted = granted + let_go(tag, leases, s, c, now, cap)
  return 'done'
end

-- The stream is trimmed, a log's last entry says that all before it are there: it is kept here for a year and more.
local function keep_head(entry)
  local worker, seq, hash = string.match(entry, '^{"worker":"([^"\\]+)","seq":(%d+),"hash":"(%x+)"')
  if not worker then return end
  local heads = 'reef:' .. tag .. ':heads'
  local before = tonumber(string.match(redis.call('HGET', heads, worker) or '', '^%d+') or -1)
  if before >= tonumber(seq) then return end
  if redis.call('HSET', heads, worker, seq .. ' ' .. hash .. ' ' .. now) == 1 and redis.call('HLEN', heads) > 10000 then
    local all, oldest, at = redis.call('HGETALL', heads), nil, now
    for i = 1, #all, 2 do
      local kept = tonumber(string.match(all[i + 1], '%d+$'))
      if kept < at then oldest, at = all[i], kept end
    end
    if oldest then redis.call('HDEL', heads, oldest) end
  end
  redis.call('PEXPIRE', heads, 34560000000)
end

local answer, last = { 0 }, ''
for i = 10, #ARGV, 8 do
  answer[#answer + 1] = finish(unpack(ARGV, i, i + 7))
  if ARGV[i + 5] ~= '' then last = ARGV[i + 5] end
end
if ended[1] then redis.call('ZREM', leases, unpack(ended)) end
keep_head(last)
if granted > 0 then redis.call('LPUSH', bell, 1) end
answer[1] = granted
return answer
