-- Shared by the scripts: names of a session's keys, counts, and who may run next in it.
local function session_key(tag, kind, s) return 'reef:' .. tag .. ':' .. kind .. ':' .. s end

local RANK = { PUBLIC = 0, INTERNAL = 1, CONFIDENTIAL = 2, RESTRICTED = 3 }

-- A word that is no level ranks highest, never lower.
local function rank(level) if not level then return 0 end return RANK[level] or 3 end

-- Readers, effects, waiting calls, how many of these counters there are, bytes waiting, and what call `c` holds.
local function counts(running, c)
  local n = redis.call('HMGET', running, '#r', '#e', '#w', '#b', c or '#')
  local fields = (n[1] and 1 or 0) + (n[2] and 1 or 0) + (n[3] and 1 or 0) + (n[4] and 1 or 0)
  return tonumber(n[1] or 0), tonumber(n[2] or 0), tonumber(n[3] or 0), fields, tonumber(n[4] or 0), n[5]
end

-- Reads share a session up to `cap`, an effect is alone in it.
local function admits(class, readers, effects, cap)
  if class == 'r' then return effects == 0 and readers < cap end
  return effects == 0 and readers == 0
end

-- Gives the session to those that waited longest. Returns how many may now be claimed.
local function grant(tag, leases, s, now, cap)
  local running, waiting = session_key(tag, 'running', s), session_key(tag, 'waiting', s)
  local readers, effects, parked, fields, bytes = counts(running)
  local granted, before, bytes_before = 0, parked, bytes
  while parked > 0 do
    local c = redis.call('LINDEX', waiting, 0)
    if not c then parked, bytes = 0, 0 break end
    local class = string.lower(redis.call('HGET', running, c) or 'x')
    if class ~= 'x' then
      if not admits(class, readers, effects, cap) then break end
      if class == 'r' then readers = readers + 1 else effects = effects + 1 end
      redis.call('HSET', running, c, class)
      redis.call('ZADD', leases, now, tag .. ':' .. s .. ':' .. c)
      granted = granted + 1
      parked = parked - 1
      bytes = parked > 0 and math.max(0, bytes - payload_bytes(tag .. ':' .. s .. ':' .. c)) or 0
    end
    redis.call('LPOP', waiting)
  end
  if parked < before then count_parked(tag, parked - before, bytes - bytes_before) end
  if readers + effects + parked == 0 and redis.call('HLEN', running) == fields then
    redis.call('DEL', running, waiting)
  elseif fields > 0 then
    redis.call('HSET', running, '#r', readers, '#e', effects, '#w', parked, '#b', bytes)
  end
  return granted
end

-- Takes a call that has ended out of its session, and gives its place on. Returns how many may now be claimed.
local function let_go(tag, leases, s, c, now, cap)
  local running = session_key(tag, 'running', s)
  local readers, effects, parked, fields, _, held = counts(running, c)
  if held == 'r' then readers = readers - 1 elseif held == 'e' then effects = effects - 1 end
  if parked + readers + effects == 0 and redis.call('HLEN', running) == fields + (held and 1 or 0) then
    redis.call('DEL', running, session_key(tag, 'waiting', s))
    return 0
  end
  redis.call('HDEL', running, c)
  if held == 'r' or held == 'e' then redis.call('HSET', running, '#r', readers, '#e', effects) end
  return parked > 0 and grant(tag, leases, s, now, cap) or 0
end
