#!lua flags=allow-oom
-- Gives back claims that were never started; the next claim takes them as if for the first time.
-- By its ticket it gives back what one claim took whose answer was lost. Owners would not do: a successor has the name of
-- a dead worker, whose effects have started; nor would "all but those I know", which may arrive late.
-- KEYS: 1 leases, 2 bell
-- ARGV: 1 queue name, 2 ticket or '', then 2 a call: id, token
-- Returns: how many were given back
--@include session
local leases, bell = KEYS[1], KEYS[2]
local tag = '{' .. ARGV[1] .. '}'
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local released = 0

local function release(id)
  local s, c = string.match(id, '^([^:]+):([^:]+)$', #tag + 2)
  local running = session_key(tag, 'running', s)
  local class, times = string.match(redis.call('HGET', running, c) or '', '^([rex])(%d+)$')
  if class then redis.call('HSET', running, c, class .. (times == '1' and '' or times - 1)) end
  redis.call('DEL', 'arq:in-progress:' .. id)
  redis.call('ZADD', leases, 'XX', now, id)
  released = released + 1
end

for i = 3, #ARGV, 2 do
  local claim = redis.call('GET', 'arq:in-progress:' .. ARGV[i])
  if claim and string.match(claim, '^%d+') == ARGV[i + 1] then release(ARGV[i]) end
end
if ARGV[2] ~= '' then
  local ids = redis.call('ZRANGE', leases, 0, 9999)
  for i = 1, #ids, 1000 do
    local names = {}
    for k = i, math.min(i + 999, #ids) do names[#names + 1] = 'arq:in-progress:' .. ids[k] end
    for k, claim in ipairs(redis.call('MGET', unpack(names))) do
      if claim and string.match(claim, '^%d+/([^/ ]+)') == ARGV[2] then release(ids[i - 1 + k]) end
    end
  end
end
if released > 0 then redis.call('LPUSH', bell, 1) end
return released
