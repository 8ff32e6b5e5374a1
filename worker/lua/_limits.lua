-- Shared by the scripts that hold calls to the operator's limits: calls a second (a token bucket, kept as the time at
-- which it would be full again), calls at once, and bytes stored in a window that begins with its first byte.
-- They have `limits`, and where that is false, as mostly, these functions are not made.
local limited, store, leave, crowded, enter
if limits then

-- The limits that a call comes under, each with the name that its keys end in.
local function scopes(limits, s, tool)
  local found = {}
  if limits.tenant then found[#found + 1] = { 'tenant', limits.tenant, 'tenant' } end
  if limits.session then found[#found + 1] = { 'session:' .. s, limits.session, 'session' } end
  local own = limits.tool[tool]
  if own then found[#found + 1] = { 'tool:' .. tool, own, 'tool' } end
  return found
end

-- Counts a new call and the bytes of its payload, or, if that is too much, counts nothing and returns
-- 'rate_limited <ms to wait> <whose limit>'.
function limited(limits, tag, s, tool, bytes, now)
  local of, wait, whose = scopes(limits, s, tool), 0, nil
  if #of == 0 then return nil end
  local names, full_at = {}, {}
  for i, scope in ipairs(of) do
    names[2 * i - 1], names[2 * i] = 'reef:' .. tag .. ':rate:' .. scope[1], 'reef:' .. tag .. ':stored:' .. scope[1]
  end
  local found = redis.call('MGET', unpack(names))
  for i, scope in ipairs(of) do
    local limit, ms = scope[2], 0
    if limit.interval_ms then
      full_at[i] = math.max(tonumber(found[2 * i - 1] or 0) or 0, now) + limit.interval_ms
      ms = full_at[i] - now - limit.burst * limit.interval_ms
    end
    if limit.bytes then
      if (tonumber(found[2 * i] or 0) or 0) + bytes > limit.bytes then
        local left = redis.call('PTTL', names[2 * i])
        ms = math.max(ms, left > 0 and left or limits.window_ms)
      end
    end
    -- Sums of fractions of a millisecond are never quite exact.
    if ms > 0.001 and ms > wait then wait, whose = ms, scope[3] end
  end
  if whose then return 'rate_limited ' .. string.format('%.0f', math.ceil(wait)) .. ' ' .. whose end
  for i in ipairs(of) do
    if full_at[i] then
      local life = string.format('%.0f', math.ceil(full_at[i] - now) + 1000)
      redis.call('SET', names[2 * i - 1], string.format('%.3f', full_at[i]), 'PX', life)
    end
  end
  return nil
end

function store(limits, tag, s, tool, bytes)
  if not limits.stores or bytes == 0 then return end
  for _, scope in ipairs(scopes(limits, s, tool)) do
    if scope[2].bytes then
      local key = 'reef:' .. tag .. ':stored:' .. scope[1]
      if redis.call('INCRBY', key, bytes) == bytes then redis.call('PEXPIRE', key, limits.window_ms) end
    end
  end
end

-- The running calls stand in one hash: id to tool, and how many there are of each scope that is limited.
function leave(limits, tag, s, id)
  if not limits.crowds then return end
  local key = 'reef:' .. tag .. ':active'
  local tool = redis.call('HGET', key, id)
  if not tool then return end
  redis.call('HDEL', key, id)
  for _, name in ipairs({ '#tenant', '#session:' .. s, '#tool:' .. tool }) do
    if redis.call('HINCRBY', key, name, -1) < 1 then redis.call('HDEL', key, name) end
  end
end

-- Calls that have ended without leaving, since another version of the limits or none was in force then. Once a second.
-- Those in `fresh` are being claimed by this very script.
local function forget_ended(limits, tag, leases, now, fresh)
  local key = 'reef:' .. tag .. ':active'
  local last = tonumber(redis.call('HGET', key, '#checked') or 0) or 0
  if last <= now and now < last + 1000 then return end
  redis.call('HSET', key, '#checked', now)
  for _, id in ipairs(redis.call('HKEYS', key)) do
    if string.sub(id, 1, 1) ~= '#' and not fresh[id] and not redis.call('ZSCORE', leases, id) then
      leave(limits, tag, string.match(string.sub(id, #tag + 2), '^([^:]+)'), id)
    end
  end
end

-- 'rate_limited ...' if as many calls run already as may, else nil.
function crowded(limits, tag, s, tool, id, leases, now, fresh)
  if not limits.crowds then return nil end
  local key = 'reef:' .. tag .. ':active'
  local of, fields = scopes(limits, s, tool), { id }
  for i, scope in ipairs(of) do fields[i + 1] = '#' .. scope[1] end
  for pass = 1, 2 do
    local found, whose = redis.call('HMGET', key, unpack(fields)), nil
    if found[1] then return nil end
    for i, scope in ipairs(of) do
      local most = scope[2].concurrent
      if most and tonumber(found[i + 1] or 0) >= most then whose = scope[3] end
    end
    if not whose then return nil end
    if pass == 2 then return 'rate_limited 1000 ' .. whose end
    forget_ended(limits, tag, leases, now, fresh)
  end
end

function enter(limits, tag, s, tool, id, life)
  if not limits.crowds then return end
  local key = 'reef:' .. tag .. ':active'
  if redis.call('HSETNX', key, id, tool) == 0 then return end
  for _, name in ipairs({ '#tenant', '#session:' .. s, '#tool:' .. tool }) do redis.call('HINCRBY', key, name, 1) end
  redis.call('PEXPIRE', key, life)
end
end
