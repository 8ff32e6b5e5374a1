-- Shared by the scripts that park calls or let them go: what waits for its session is counted, and how full the queue is
-- is published, so that agents, who may run no script, can hold back.

-- An agent can give its keys a wrong type; that must cost nobody else's call.
local function payload_bytes(id)
  local length = redis.pcall('STRLEN', 'arq:job:' .. id)
  return type(length) == 'number' and length or 0
end

local function count_parked(tag, calls, bytes)
  local key = 'reef:' .. tag .. ':parked'
  if redis.call('HINCRBY', key, 'calls', calls) <= 0 then redis.call('DEL', key) return end
  redis.call('HINCRBY', key, 'bytes', bytes)
  redis.call('PEXPIRE', key, 604800000)
end

-- The mean length of a few payloads, spread over the queue.
local function mean_bytes(queue, depth)
  local looked, sum = math.min(depth, 16), 0
  for i = 0, looked - 1 do
    local id = redis.call('ZRANGE', queue, math.floor(i * depth / looked), math.floor(i * depth / looked))[1]
    sum = sum + payload_bytes(id)
  end
  return looked > 0 and math.floor(sum / looked) or 0
end

-- Once a second at most. Numbers: now ms, parked calls, parked bytes, mean bytes of a waiting payload, memory used,
-- maxmemory, then the limits: calls and bytes of the queue, percent of maxmemory, calls and bytes of a session.
local function publish_pressure(tag, queue, batch, leases, now, limits)
  local key = 'reef:' .. tag .. ':pressure'
  local at = tonumber(string.match(redis.call('GET', key) or '', '^%d+') or 0)
  if at <= now and now < at + 1000 then return end
  local parked = redis.call('HMGET', 'reef:' .. tag .. ':parked', 'calls', 'bytes')
  if parked[1] and redis.call('ZCARD', leases) == 0 then
    -- Nothing runs, so nothing waits for it: what was counted has expired.
    redis.call('DEL', 'reef:' .. tag .. ':parked')
    parked = { 0, 0 }
  end
  local source = redis.call('ZCARD', queue) > 0 and queue or batch
  local info = redis.pcall('INFO', 'memory')
  info = type(info) == 'string' and info or ''
  local numbers = { now, parked[1] or 0, math.max(0, tonumber(parked[2] or 0)), mean_bytes(source, redis.call('ZCARD', source)),
    string.match(info, '\nused_memory:(%d+)') or 0, string.match(info, '\nmaxmemory:(%d+)') or 0, limits }
  for i, number in ipairs(numbers) do numbers[i] = type(number) == 'number' and string.format('%.0f', number) or number end
  redis.call('SET', key, table.concat(numbers, ' '), 'PX', 3600000)
end
