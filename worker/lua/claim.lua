#!lua flags=allow-oom
-- Claims due calls up to the free slots: payload, session, plan and approval come with the claim.
-- KEYS: 1 queue, 2 batch queue, 3 leases, 4 fence, 5 bell, 6 workers, 7 dead letters
-- ARGV: 1 queue name, 2 free slots, 3 lease ms, 4 owner, 5 heartbeat or '', 6 max payload bytes,
--       7 classes as ';tool=r;tool=e;tool=w;' (read, effect, effect on the workspace), 8 readers a session may have,
--       9 entries to look at, at most, 10 life of claims in ms, 11 reads run at most so often,
--       12 ticket of this claim, by which release.lua finds it if the answer is lost, 13 calls and 14 bytes of one session
--       that may wait for its turn, 15 all limits as _pressure.lua publishes them, or '' where it was asked to a second ago,
--       16 the operator's limits as JSON (see _limits.lua) or ''
-- Returns: {now ms, more (0 or 1), ms until something is due or -1}, and then for each call
--   id, token, attempt, word, tool seen, payload, workspace, mode, taint, workspace level, workspace pin,
--   how many words of its plan follow, and in plan mode what add_plan appends
-- Words: run, cancelled, too_large, interrupted, changed, lost, full, rate_limited <ms> <whose limit>
--@include pressure
--@include session
--@include turns
--@include plan
--@include heartbeat
local queue, batch, leases, fence, bell, workers, dead = unpack(KEYS)
local slots, owner, max_bytes, classes, life = tonumber(ARGV[2]), ARGV[4], tonumber(ARGV[6]), ARGV[7], ARGV[10]
local cap, budget = tonumber(ARGV[8]), tonumber(ARGV[9])
local limits = ARGV[16] ~= '' and cjson.decode(ARGV[16])
local tag = '{' .. ARGV[1] .. '}'
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
--@include limits

local function bury(dead, id, why)
  redis.call('XADD', dead, 'MAXLEN', '~', 10000, '*', 'id', string.sub(id, 1, 512), 'why', why)
end

-- The tool that a payload names. Ours begin alike; others may write the same JSON in their own way.
local function tool_in(payload)
  -- A pattern might follow a long payload to its end.
  local tool = #payload < 4096 and string.match(payload, '^{"t":null,"f":"([%w._-]*)",')
  if tool then return tool end
  local head = string.sub(payload, 1, 512)
  return string.match(head, '^%s*{%s*"t"%s*:%s*[%w.+-]+%s*,%s*"f"%s*:%s*"([%w._-]*)"%s*,') or ''
end

-- Payload, tool, class and word of a call.
local function fetch(key, max_bytes, classes)
  -- An agent can give its keys a wrong type; that must cost nobody else's claim.
  local payload = redis.pcall('GETRANGE', key, 0, max_bytes)
  if type(payload) == 'table' then payload = '' end
  if #payload > max_bytes then return '', '', 'w', 'too_large' end
  local tool = tool_in(payload)
  local _, sign = string.find(classes, ';' .. tool .. '=', 1, true)
  return payload, tool, sign and string.sub(classes, sign + 1, sign + 1) or 'w', 'run'
end

-- When the first entry of a sorted set is due, as Redis' time in ms; never, if there is none.
local function first_of(key)
  local head = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return head[1] and tonumber(head[2]) or math.huge
end

-- Sessions and calls of the job ids that stand `step` apart in a list, at the same places, as far as they are ids of this
-- queue. Then whether any has ended or been cancelled: most have not, so all are asked for at once.
local function read_ids(list, step, tag, at, cancels, dones)
  local sessions, calls, marks, n, marked = {}, {}, {}, 0, false
  for i = 1, #list, step do
    local id = list[i]
    local s, c = string.match(id, '^(%w[%w._-]*):(%w[%w._-]*)$', at)
    if s and #s <= 64 and #c <= 64 and string.sub(id, 1, at - 1) == tag then
      sessions[i], calls[i] = s, c
      marks[n + 1], marks[n + 2], n = cancels .. s .. ':' .. c, dones .. s .. ':' .. c, n + 2
    else
      sessions[i], calls[i] = false, false
    end
  end
  for i = 1, n, 1000 do marked = redis.call('EXISTS', unpack(marks, i, math.min(i + 999, n))) > 0 or marked end
  return sessions, calls, marked
end

-- What stands before `n` in a list, `step` apart, leaves the sorted set.
local function remove_first(key, list, n, step)
  if n == 1 then return end
  local members, count = list, n - 1
  if step == 2 then
    members, count = {}, count / 2
    for i = 1, count do members[i] = list[2 * i - 1] end
  end
  with_words('ZREM', key, members, count)
end

local cancels, dones, runnings = 'reef:' .. tag .. ':cancel:', 'reef:' .. tag .. ':done:', 'reef:' .. tag .. ':running:'
local at, answer, filled, claimed = #tag + 2, { now, 0, -1 }, 3, 0
local prefix = tag .. ':'
local records, places, plans, fresh, parked_calls, parked_bytes = {}, {}, {}, {}, 0, 0
-- The session in hand: what was read and is to be written of it, and what is noted of its calls that come next.
local in_hand, running, ahead, lasts
local readers, effects, parked, bytes, was_readers, was_effects
local changes, changed, waits, waiting = {}, 0, {}, 0

-- One token for all calls of this script: none is claimed twice in it.
local fenced, claim
local until_ms = string.format('%d', now + ARGV[3])
-- A producer knows this clock to about a millisecond: what is due that soon is due.
local soon = now + 2
-- When the first entry that is left is due, where that is known: so that it is asked only where it is not.
local first_old, first_late, first_new
local none = {}
redis.call('DEL', bell)
beat(workers, owner, ARGV[5], now)
while claimed < slots and budget > 0 do
  local want = math.min(slots - claimed, budget)
  -- Of these two mostly nothing is due, which the first entry tells. Scores, each after its member, tell which came first.
  local old, late = none, none
  first_old, first_late = first_of(leases), first_of(batch)
  if first_old <= soon then
    old, first_old = redis.call('ZRANGEBYSCORE', leases, '-inf', soon, 'WITHSCORES', 'LIMIT', 0, want), nil
  end
  if first_late <= soon then
    late, first_late = redis.call('ZRANGEBYSCORE', batch, '-inf', soon, 'LIMIT', 0, want), nil
  end
  local new = redis.call('ZRANGE', queue, 0, want - 1, 'WITHSCORES')
  local last = #new
  first_new = last < 2 * want and math.huge or nil
  while last > 0 and tonumber(new[last]) > soon do
    first_new, new[last], new[last - 1], last = tonumber(new[last]), nil, nil, last - 2
  end
  if not (old[1] or new[1] or late[1]) then break end
  if not fenced then
    fenced = redis.call('INCRBY', fence, 1) - 1
    claim = string.format('%d/%s/%d %s', fenced + 1, ARGV[12], now, owner)
  end
  local new_s, new_c, any_marked = read_ids(new, 2, prefix, at, cancels, dones)
  local old_s, old_c, late_s, late_c, marked
  if old[1] then
    old_s, old_c, marked = read_ids(old, 2, prefix, at, cancels, dones)
    any_marked = any_marked or marked
  end
  if late[1] then
    late_s, late_c, marked = read_ids(late, 1, prefix, at, cancels, dones)
    any_marked = any_marked or marked
  end
  local o, n, l, leased, claims, leasing = 1, 1, 1, {}, {}, 0
  repeat
    local list, i, stride, is_new, id, s, c
    if claimed < slots and budget > 0 then
      -- Every fifth claim comes from the batch queue, so that a steady interactive load can't starve it.
      if late[l] and ((fenced + claimed) % 5 == 4 or not (old[o] or new[n])) then
        list, i, stride, is_new, s, c, l = late, l, 1, true, late_s[l], late_c[l], l + 1
      elseif old[o] and (not new[n] or tonumber(old[o + 1]) <= tonumber(new[n + 1])) then
        list, i, stride, is_new, s, c, o = old, o, 2, false, old_s[o], old_c[o], o + 2
      elseif new[n] then
        list, i, stride, is_new, s, c, n = new, n, 2, true, new_s[n], new_c[n], n + 2
      end
    end
    if list then
      id, budget = list[i], budget - 1
      if not s then bury(dead, id, 'not a job id of this queue') end
    end
    if in_hand and (s ~= in_hand or not ahead or ahead[c] == nil) then
      -- What has changed is written once for all calls that come together.
      if readers ~= was_readers then changes[changed + 1], changes[changed + 2], changed = '#r', readers, changed + 2 end
      if effects ~= was_effects then changes[changed + 1], changes[changed + 2], changed = '#e', effects, changed + 2 end
      if waiting > 0 then
        local key = 'reef:' .. tag .. ':waiting:' .. in_hand
        with_words('RPUSH', key, waits, waiting)
        redis.call('PEXPIRE', key, life)
        changes[changed + 1], changes[changed + 2], changes[changed + 3], changes[changed + 4] = '#w', parked, '#b', bytes
        changed, waiting = changed + 4, 0
      end
      with_words('HSET', running, changes, changed)
      if lasts then redis.call('PEXPIRE', running, life) end
      in_hand, changed, lasts, bytes = nil, 0, false, nil
    end
    local payload, tool, class, word, noted, attempt
    if s then
      local key, cancelled, ended, known = 'arq:job:' .. id, false, false, nil
      if in_hand then
        known = ahead[c]
      else
        in_hand, running = s, runnings .. s
        local others, found = calls_after(list, i, stride, s, at), nil
        if others then
          found = redis.call('HMGET', running, '#r', '#e', '#w', c, unpack(others))
          ahead = { [c] = found[4] }
          for m, other in ipairs(others) do ahead[other] = found[m + 4] end
        else
          found, ahead = redis.call('HMGET', running, '#r', '#e', '#w', c), nil
        end
        readers, effects = found[1] and tonumber(found[1]) or 0, found[2] and tonumber(found[2]) or 0
        parked, was_readers, was_effects, known = found[3] and tonumber(found[3]) or 0, readers, effects, found[4]
      end
      if any_marked then
        cancelled = redis.call('EXISTS', cancels .. s .. ':' .. c) == 1
        ended = redis.call('EXISTS', dones .. s .. ':' .. c) == 1
      end
      if not is_new then
        -- Granted by a call that has ended, or left by a worker whose lease ended.
        payload, tool, class, word = fetch(key, max_bytes, classes)
        local held, attempts = string.match(known or '', '^([rex])(%d*)$')
        local before = tonumber(attempts or '') or 0
        if not held then
          -- The session's record has been lost, and with it how often this was claimed.
          word = 'interrupted'
        elseif held == 'x' then
          -- It holds no place in its session, so it must not run, whatever has become of the reason meanwhile.
          word = cancelled and 'cancelled' or word == 'run' and 'full' or word
        elseif payload == '' and word == 'run' then
          word = before > 0 and 'interrupted' or 'lost'
        elseif before > 0 and (held ~= 'r' or before >= tonumber(ARGV[11])) then
          word = 'interrupted'
        elseif held == 'r' and class ~= 'r' then
          word = 'changed'
        elseif cancelled then
          word = 'cancelled'
        end
        if limits and word == 'run' and before == 0 then word = crowded(limits, tag, s, tool, id, leases, now, fresh) or word end
        attempt, noted = before + 1, held and held .. before + 1
      elseif ended and not known then
        redis.call('DEL', key)
      elseif not known then
        payload, tool, class, word = fetch(key, max_bytes, classes)
        if payload == '' and word == 'run' then
          redis.call('DEL', key)
          bury(dead, id, 'no payload')
          word = nil
        elseif cancelled then
          word = 'cancelled'
        end
        if limits and word == 'run' then
          word = limited(limits, tag, s, tool, #payload, now) or word
          if word == 'run' then store(limits, tag, s, tool, #payload) end
        end
        if word == 'run' then
          -- Reads share a session up to `cap`, an effect is alone in it.
          local has_room = parked == 0 and effects == 0 and readers < (class == 'r' and cap or 1)
          if limits and has_room then word = crowded(limits, tag, s, tool, id, leases, now, fresh) or word end
          if word == 'run' and not has_room then
            bytes = bytes or tonumber(redis.call('HGET', running, '#b') or 0)
            if parked < tonumber(ARGV[13]) and bytes + #payload <= tonumber(ARGV[14]) then
              waiting = waiting + 1
              waits[waiting], noted = c, (class == 'r' and 'R' or 'E') .. #payload
              parked, bytes, word = parked + 1, bytes + #payload, nil
              parked_calls, parked_bytes = parked_calls + 1, parked_bytes + #payload
              redis.call('PEXPIRE', key, life, 'GT')
            else
              word = 'full'
            end
          end
        end
        if word == 'run' then
          if class == 'r' then readers, noted = readers + 1, 'r1' else effects, noted = effects + 1, 'e1' end
        elseif word then
          redis.call('HINCRBY', running, '#x', 1)
          noted = 'x1'
        end
        attempt = 1
      end
      if noted then
        changes[changed + 1], changes[changed + 2], changed = c, noted, changed + 2
        if ahead then ahead[c] = noted end
        if attempt ~= 1 or not word then lasts = true end
      end
    end
    if word then
      claimed = claimed + 1
      claims[leasing + 1], claims[leasing + 2] = 'arq:in-progress:' .. id, claim
      leased[leasing + 1], leased[leasing + 2], leasing = until_ms, id, leasing + 2
      if limits then
        fresh[id] = true
        if word == 'run' then enter(limits, tag, s, tool, id, life) end
      end
      local record = records[s]
      if not record then
        record = redis.call('HMGET', 'reef:' .. tag .. ':session:' .. s, 'workspace', 'mode', 'taint')
        records[s] = record
      end
      local place, mode, taint = record[1] or s, record[2], record[3]
      local labels = places[place]
      if not labels then
        labels = redis.call('HMGET', 'reef:' .. tag .. ':workspace:' .. place, 'level', 'pin')
        places[place] = labels
      end
      -- What an effect writes carries its session's taint, so the label rises before the effect starts.
      if class == 'w' and word == 'run' and taint and rank(taint) > rank(labels[1])
          and not (labels[2] and rank(taint) > rank(labels[2])) then
        redis.call('HSET', 'reef:' .. tag .. ':workspace:' .. place, 'level', taint)
        labels[1] = taint
      end
      answer[filled + 1], answer[filled + 2], answer[filled + 3], answer[filled + 4] = id, fenced + 1, attempt, word
      answer[filled + 5], answer[filled + 6], answer[filled + 7], answer[filled + 8] = tool, payload, record[1], mode
      answer[filled + 9], answer[filled + 10], answer[filled + 11], answer[filled + 12] = taint, labels[1], labels[2], 0
      filled = filled + 12
      if tool == 'plan.propose' or (mode and mode ~= 'normal') then
        if not plans[s] then
          plans[s] = {}
          add_plan(plans[s], tag, s, now)
        end
        answer[filled] = #plans[s]
        for m, each in ipairs(plans[s]) do answer[filled + m] = each end
        filled = filled + #plans[s]
      end
    end
  until not list
  -- Sorted sets change once for many calls: that is most of what a claim costs.
  with_words('ZADD', leases, leased, leasing)
  remove_first(queue, new, n, 2)
  if n <= last then first_new = now end
  remove_first(batch, late, l, 1)
  for k = 1, leasing, 1000 do redis.call('MSET', unpack(claims, k, math.min(k + 999, leasing))) end
  if #old < 2 * want and last < 2 * want and #late < want then break end
end
if parked_calls > 0 then count_parked(tag, parked_calls, parked_bytes) end

if ARGV[15] ~= '' then publish_pressure(tag, queue, batch, leases, now, ARGV[15]) end
if claimed > 0 and first_old then first_old = math.min(first_old, tonumber(until_ms)) end
local first = math.min(first_old or first_of(leases), first_new or first_of(queue), first_late or first_of(batch))
local more, wait = 0, first < math.huge and math.max(0, math.ceil(first - soon)) or -1
if wait == 0 then
  more = 1
  redis.call('LPUSH', bell, 1)
  redis.call('PEXPIRE', bell, life)
end
answer[2], answer[3] = more, wait
return answer
