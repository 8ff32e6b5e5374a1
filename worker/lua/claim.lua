#!lua flags=allow-oom
-- Claims due calls up to the free slots: payload, session, plan and approval come with the claim.
-- KEYS: 1 queue, 2 batch queue, 3 leases, 4 fence, 5 bell, 6 workers, 7 dead letters
-- ARGV: 1 queue name, 2 free slots, 3 lease ms, 4 owner, 5 heartbeat or '', 6 max payload bytes,
--       7 classes as ';tool=r;tool=e;tool=w;' (read, effect, effect on the workspace), 8 readers a session may have,
--       9 entries to look at, at most, 10 life of claims in ms, 11 reads run at most so often,
--       12 ticket of this claim, by which release.lua finds it if the answer is lost, 13 calls and 14 bytes of one session
--       that may wait for its turn, 15 all limits as _pressure.lua publishes them,
--       16 the operator's limits as JSON (see _limits.lua) or ''
-- Returns: {now ms, more (0 or 1), ms until something is due or -1, call, call, ...}; a call is
--   {id, token, attempt, word, tool seen, payload, workspace, mode, taint, workspace level, workspace pin,
--    and in plan mode what add_plan appends}
-- Words: run, cancelled, too_large, interrupted, changed, lost, full, rate_limited <ms> <whose limit>
--@include pressure
--@include session
--@include plan
--@include heartbeat
--@include limits
local queue, batch, leases, fence, bell, workers, dead = unpack(KEYS)
local q, slots, lease_ms, owner = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local max_bytes, classes, cap, budget = tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
local life, max_reads = tonumber(ARGV[10]), tonumber(ARGV[11])
local limits = ARGV[16] ~= '' and cjson.decode(ARGV[16])
local tag = '{' .. q .. '}'
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local calls = {}

local function parts(id)
  if string.sub(id, 1, #tag + 1) ~= tag .. ':' then return nil end
  local s, c = string.match(string.sub(id, #tag + 2), '^(%w[%w._-]*):(%w[%w._-]*)$')
  if not s or #s > 64 or #c > 64 then return nil end
  return s, c
end

local function bury(id, why)
  redis.call('XADD', dead, 'MAXLEN', '~', 10000, '*', 'id', string.sub(id, 1, 512), 'why', why)
end

-- An agent can give its keys a wrong type; that must cost nobody else's claim.
local function quiet(...)
  local answer = redis.pcall(...)
  if type(answer) == 'table' and answer.err then return nil end
  return answer
end

local function seen_in(payload)
  local head = string.sub(payload, 1, 512)
  return string.match(head, '^%s*{%s*"t"%s*:%s*[%w.+-]+%s*,%s*"f"%s*:%s*"([%w._-]*)"%s*,') or ''
end

local function class_of(tool)
  return string.match(classes, ';' .. string.gsub(tool, '[.-]', '%%%0') .. '=(%a);') or 'w'
end

local tokens = tonumber(redis.call('GET', fence) or 0)
local taken, leased = { [queue] = {}, [batch] = {} }, {}

-- Sorted sets change once for many calls: that is most of what a claim costs.
local function flush()
  for source, ids in pairs(taken) do
    if ids[1] then redis.call('ZREM', source, unpack(ids)) end
    taken[source] = {}
  end
  if leased[1] then redis.call('ZADD', leases, unpack(leased)) end
  leased = {}
end

local function describe(s, c, id, word, tool, payload, writes, attempt)
  tokens = tokens + 1
  local token = string.format('%.0f', tokens)
  redis.call('SET', 'arq:retry:' .. id, attempt, 'PX', life)
  redis.call('SET', 'arq:in-progress:' .. id, token .. '/' .. ARGV[12] .. ' ' .. owner, 'PX', lease_ms + 60000)
  leased[#leased + 1], leased[#leased + 2] = now + lease_ms, id
  if limits then flush() end
  if limits and word == 'run' then enter(limits, tag, s, tool, id, life) end
  local session = redis.call('HMGET', session_key(tag, 'session', s), 'workspace', 'mode', 'taint')
  local place = session_key(tag, 'workspace', session[1] or s)
  local level = redis.call('HMGET', place, 'level', 'pin')
  -- What an effect writes carries its session's taint, so the label rises before the effect starts.
  if writes and word == 'run' and rank(session[3]) > rank(level[1]) and not (level[2] and rank(session[3]) > rank(level[2])) then
    redis.call('HSET', place, 'level', session[3])
    level[1] = session[3]
  end
  local row = { id, tokens, attempt, word, tool, payload, session[1], session[2], session[3], level[1], level[2] }
  if tool == 'plan.propose' or (session[2] and session[2] ~= 'normal') then add_plan(row, tag, s, now) end
  calls[#calls + 1] = row
end

local function fetch(id, key)
  local payload = quiet('GETRANGE', key, 0, max_bytes) or ''
  if #payload > max_bytes then return '', '', 'w', 'too_large' end
  local tool = seen_in(payload)
  return payload, tool, class_of(tool), 'run'
end

-- From the worker's own set: granted by a finished call, or left by a worker whose lease ended.
local function again(id)
  local s, c = parts(id)
  local running = session_key(tag, 'running', s)
  local payload, tool, class, word = fetch(id, 'arq:job:' .. id)
  local held = redis.call('HGET', running, c)
  local before = tonumber(redis.call('GET', 'arq:retry:' .. id) or 0)
  local cancelled = redis.call('EXISTS', session_key(tag, 'cancel', s) .. ':' .. c) == 1
  if held == 'x' then
    -- It holds no place in its session, so it must not run, whatever has become of the reason meanwhile.
    word = cancelled and 'cancelled' or word == 'run' and 'full' or word
  elseif payload == '' and word == 'run' then
    word = before > 0 and 'interrupted' or 'lost'
  elseif before > 0 and (held ~= 'r' or before >= max_reads) then
    word = 'interrupted'
  elseif held == 'r' and class ~= 'r' then
    word = 'changed'
  elseif cancelled then
    word = 'cancelled'
  end
  if limits and word == 'run' and before == 0 then word = crowded(limits, tag, s, tool, id, leases, now) or word end
  describe(s, c, id, word, tool, payload, class == 'w', before + 1)
end

local function first(id, source)
  taken[source][#taken[source] + 1] = id
  local s, c = parts(id)
  if not s then return bury(id, 'not a job id of this queue') end
  local running, key = session_key(tag, 'running', s), 'arq:job:' .. id
  local readers, effects, parked, fields, bytes, known = counts(running, c)
  if known then return end
  local done, cancel = session_key(tag, 'done', s) .. ':' .. c, session_key(tag, 'cancel', s) .. ':' .. c
  local either = redis.call('EXISTS', done, cancel) > 0
  if either and redis.call('EXISTS', done) == 1 then
    redis.call('DEL', key)
    return
  end
  local payload, tool, class, word = fetch(id, key)
  if payload == '' and word == 'run' then
    redis.call('DEL', key)
    return bury(id, 'no payload')
  end
  if either then word = 'cancelled' end
  if limits and word == 'run' then
    word = limited(limits, tag, s, tool, #payload, now) or word
    if word == 'run' then store(limits, tag, s, tool, #payload) end
  end
  local held = 'x'
  if word == 'run' then
    held = class == 'r' and 'r' or 'e'
    local may_start = parked == 0 and admits(held, readers, effects, cap)
    if limits and may_start then word = crowded(limits, tag, s, tool, id, leases, now) or word end
    if word ~= 'run' then
      redis.call('HSET', running, c, 'x')
    elseif may_start then
      if held == 'r' then readers = readers + 1 else effects = effects + 1 end
      redis.call('HSET', running, c, held, '#r', readers, '#e', effects)
    elseif parked < tonumber(ARGV[13]) and bytes + #payload <= tonumber(ARGV[14]) then
      redis.call('RPUSH', session_key(tag, 'waiting', s), c)
      redis.call('HSET', running, c, string.upper(held), '#w', parked + 1, '#b', bytes + #payload)
      count_parked(tag, 1, #payload)
      redis.call('PEXPIRE', session_key(tag, 'waiting', s), life)
      redis.call('PEXPIRE', running, life)
      redis.call('PEXPIRE', key, life, 'GT')
      return
    else
      word = 'full'
      redis.call('HSET', running, c, 'x')
    end
  else
    redis.call('HSET', running, c, held)
  end
  -- A new hash needs its life; one that goes on is told again now and then.
  if fields == 0 or tokens % 64 == 0 then redis.call('PEXPIRE', running, life) end
  describe(s, c, id, word, tool, payload, class == 'w', 1)
end

-- A producer knows this clock to about a millisecond: what is due that soon is due.
local function due(key, n) return redis.call('ZRANGEBYSCORE', key, '-inf', now + 2, 'WITHSCORES', 'LIMIT', 0, n) end

local claimed_before = tokens
redis.call('DEL', bell)
beat(workers, owner, ARGV[5], now)
while #calls < slots and budget > 0 do
  local want = math.min(slots - #calls, budget)
  local old, new, late = due(leases, want), due(queue, want), due(batch, want)
  local o, n, l = 1, 1, 1
  if not (old[1] or new[1] or late[1]) then break end
  while #calls < slots and (old[o] or new[n] or late[l]) and budget > 0 do
    budget = budget - 1
    -- Every fifth claim comes from the batch queue, so that a steady interactive load can't starve it.
    if late[l] and (tokens % 5 == 4 or not (old[o] or new[n])) then
      first(late[l], batch)
      l = l + 2
    elseif old[o] and (not new[n] or tonumber(old[o + 1]) <= tonumber(new[n + 1])) then
      again(old[o])
      o = o + 2
    elseif new[n] then
      first(new[n], queue)
      n = n + 2
    end
  end
  flush()
end
if tokens > claimed_before then redis.call('INCRBY', fence, tokens - claimed_before) end

publish_pressure(tag, queue, batch, leases, now, ARGV[15])
local more, wait = 0, -1
for _, key in ipairs({ leases, queue, batch }) do
  local head = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  if head[1] then
    local ms = math.max(0, math.ceil(tonumber(head[2]) - now - 2))
    if ms == 0 then more = 1 end
    if wait < 0 or ms < wait then wait = ms end
  end
end
if more == 1 then
  redis.call('LPUSH', bell, 1)
  redis.call('PEXPIRE', bell, life)
end
local answer = { now, more, wait }
for _, call in ipairs(calls) do answer[#answer + 1] = call end
return answer
