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
--@include turns
local leases, bell, audit, argv = KEYS[1], KEYS[2], KEYS[3], ARGV
local tag = '{' .. argv[1] .. '}'
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local limits = argv[9] ~= '' and cjson.decode(argv[9])
--@include limits

-- Gives the places of the first `count` of `calls`, which have ended, to those that wait for them. Returns how many keys
-- are to be removed, and how many calls and bytes wait no longer.
local function pass_on(tag, s, calls, count, gone, removed, leased, now, cap)
  local running = 'reef:' .. tag .. ':running:' .. s
  local n = redis.call('HMGET', running, '#r', '#e', '#w', '#x', unpack(calls, 1, count))
  local readers, effects = n[1] and tonumber(n[1]) or 0, n[2] and tonumber(n[2]) or 0
  local parked, answered = n[3] and tonumber(n[3]) or 0, n[4] and tonumber(n[4]) or 0
  for i = 5, 4 + count do
    local held = n[i] and string.byte(n[i])
    -- 'r', 'e', 'x'
    if held == 114 then readers = readers - 1
    elseif held == 101 then effects = effects - 1
    elseif held == 120 then answered = answered - 1 end
  end
  local changes, was_parked, bytes = nil, parked, 0
  if parked > 0 then
    changes = {}
    readers, effects, parked, bytes = grant(tag, s, running, readers, effects, parked, changes, leased, now, cap)
  end
  if readers + effects + parked + answered == 0 then
    removed = removed + 1
    gone[removed] = running
    -- Where none has waited since the record was made, there is no list of those that do.
    if n[3] then
      removed = removed + 1
      gone[removed] = 'reef:' .. tag .. ':waiting:' .. s
    end
  else
    with_words('HDEL', running, calls, count)
    changes = changes or {}
    local m = #changes
    changes[m + 1], changes[m + 2], changes[m + 3], changes[m + 4] = '#r', readers, '#e', effects
    changes[m + 5], changes[m + 6] = '#x', answered
    with_words('HSET', running, changes, m + 6)
  end
  return removed, was_parked - parked, bytes
end

-- The stream is trimmed, a log's last entry says that all before it are there: it is kept here for a year and more.
local function keep_head(tag, now, entry)
  local worker, seq, hash = string.match(entry, '^{"worker":"([^"\\]+)","seq":(%d+),"hash":"(%x+)"')
  if not worker then return end
  local heads = 'reef:' .. tag .. ':heads'
  local before = tonumber(string.match(redis.call('HGET', heads, worker) or '', '^%d+') or -1)
  if before >= tonumber(seq) then return end
  local is_new = redis.call('HSET', heads, worker, seq .. ' ' .. hash .. ' ' .. now) == 1
  if is_new and redis.call('HLEN', heads) > 10000 then
    local all, oldest, at = redis.call('HGETALL', heads), nil, now
    for i = 1, #all, 2 do
      local kept = tonumber(string.match(all[i + 1], '%d+$'))
      if kept < at then oldest, at = all[i], kept end
    end
    if oldest then redis.call('HDEL', heads, oldest) end
  end
  if is_new or seq % 100 == 0 then redis.call('PEXPIRE', heads, 34560000000) end
end

local at, answer, count, claims, owners = #tag + 2, { 0 }, (#argv - 9) / 8, {}, nil
local gone, removed, ended, endings, leased, over = {}, 0, {}, 0, {}, {}
local unparked, unparked_bytes = 0, 0
-- The call that is looked at, the last one that was begun, and the session in hand with its calls that have ended.
local k, begun, in_hand, dropped, drops = 1, 0, nil, {}, 0

local function let_next_run()
  local calls = drops
  drops = 0
  if calls == 0 then return end
  local parked, bytes
  removed, parked, bytes = pass_on(tag, in_hand, dropped, calls, gone, removed, leased, now, tonumber(argv[2]))
  unparked, unparked_bytes = unparked + parked, unparked_bytes + bytes
end

local function answer_all()
  local reply_life, reply_cap, done_life, stored, plan_life = argv[3], argv[4], argv[5], tonumber(argv[6]), argv[8]
  local dones, streams, cancels = 'reef:' .. tag .. ':done:', 'reef:' .. tag .. ':replies:', 'reef:' .. tag .. ':cancel:'
  local taint, seen, token
  while k <= count do
    local i, owner = 8 * k + 2, owners[k]
    local id, word = argv[i], 'stale'
    -- Calls that were claimed together have the same.
    if owner ~= seen then seen, token = owner, owner and string.match(owner, '^%d+') end
    if token == argv[i + 1] and not over[id] then
      local reply, level, entry = argv[i + 2], argv[i + 4], argv[i + 5]
      local name = string.sub(id, at)
      local colon = string.find(name, ':', 1, true)
      local s, c = string.sub(name, 1, colon - 1), string.sub(name, colon + 1)
      local replies = streams .. s
      if s ~= in_hand then let_next_run() end
      -- The same ending twice is one.
      begun, over[id], word = k, true, 'done'
      if s ~= in_hand then
        taint = redis.call('HGET', 'reef:' .. tag .. ':session:' .. s, 'taint')
        in_hand = s
      end
      if level ~= taint and rank(level) > rank(taint) then
        local key = 'reef:' .. tag .. ':session:' .. s
        redis.call('HSET', key, 'taint', level, 'taint:' .. level, now .. ' ' .. c)
        -- A closed session's record ends; one that is used again must not forget what it sees now.
        redis.call('PERSIST', key)
        taint = level
      end
      -- Calls that ran beside this one may have raised the taint since the reply was written.
      local _, to = string.find(reply, ',"taint":"', 1, true)
      local stop = string.find(reply, '"', to + 1, true)
      local told = string.sub(reply, to + 1, stop - 1)
      if told ~= taint and rank(taint) > rank(told) then
        reply = string.sub(reply, 1, to) .. taint .. string.sub(reply, stop)
      end
      local entry_id = redis.call('XADD', replies, 'MAXLEN', '~', reply_cap, '*', 'reply', reply)
      -- From here on it has its reply and must never get another, whatever comes of the rest.
      endings, drops = endings + 1, drops + 1
      ended[endings], dropped[drops] = id, c
      gone[removed + 1], gone[removed + 2], gone[removed + 3] = claims[k], 'arq:job:' .. id, cancels .. name
      removed = removed + 3
      if drops == 1 then redis.call('PEXPIRE', replies, reply_life) end
      local kept = #reply <= stored and reply or ''
      redis.call('SET', dones .. name, argv[i + 3] .. ' ' .. entry_id .. ' ' .. kept, 'PX', done_life)
      if limits then
        -- The reply's own words come before any text of the agent's.
        store(limits, tag, s, string.match(reply, '"tool":"([^"]*)"') or '', #reply + #kept)
        leave(limits, tag, s, id)
      end
      if entry ~= '' and k == count then
        -- To look for what is to be trimmed once a batch is enough.
        redis.call('XADD', audit, 'MAXLEN', '~', argv[7], '*', 'entry', entry)
      elseif entry ~= '' then
        redis.call('XADD', audit, '*', 'entry', entry)
      end
      local plan, ask = argv[i + 6], argv[i + 7]
      if plan ~= '' then
        local key = 'reef:' .. tag .. ':plan:' .. s
        local named, size, rest = string.match(plan, '^(%x+) (%d+) (.*)$')
        local scope, body = string.sub(rest, 1, tonumber(size)), string.sub(rest, tonumber(size) + 2)
        redis.call('HSET', key, 'digest', named, 'scope', scope, 'body', body, 'proposed_ms', now, 'call', c)
        redis.call('HINCRBY', key, 'version', 1)
        redis.call('PEXPIRE', key, plan_life)
        local proposed = 'reef:' .. tag .. ':plans'
        redis.call('ZADD', proposed, now, s)
        redis.call('ZREMRANGEBYRANK', proposed, 0, -1001)
        redis.call('PEXPIRE', proposed, plan_life)
      end
      if ask ~= '' then
        local key = 'reef:' .. tag .. ':asks'
        redis.call('XADD', key, 'MAXLEN', '~', 1000, '*', 'ask', ask)
        redis.call('PEXPIRE', key, plan_life)
      end
    end
    answer[k + 1] = word
    k = k + 1
  end
  let_next_run()
end

for n = 1, count do claims[n] = 'arq:in-progress:' .. argv[8 * n + 2] end
for n = 1, count, 1000 do
  local found = redis.call('MGET', unpack(claims, n, math.min(n + 999, count)))
  if n == 1 then owners = found else for m, owner in ipairs(found) do owners[n - 1 + m] = owner end end
end
-- What Redis refuses of one call or session must cost no other its ending.
local well, failed = pcall(answer_all)
while not well do
  if begun == k then answer[k + 1], k = 'done', k + 1 end
  pcall(let_next_run)
  in_hand = nil
  well = pcall(answer_all)
end
for n = 1, removed, 1000 do redis.call('DEL', unpack(gone, n, math.min(n + 999, removed))) end
with_words('ZREM', leases, ended, endings)
with_words('ZADD', leases, leased, #leased)
if unparked > 0 then count_parked(tag, -unparked, -unparked_bytes) end
if leased[1] then redis.call('LPUSH', bell, 1) end
for i = #argv - 2, 10, -8 do
  if argv[i] ~= '' then
    keep_head(tag, now, argv[i])
    break
  end
end
if failed then return type(failed) == 'table' and failed or redis.error_reply(tostring(failed)) end
answer[1] = #leased / 2
return answer
