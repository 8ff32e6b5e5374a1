-- Shared by the scripts that change which calls of a session run. A session's record (`running` in contracts/keys.py) is
-- read once, changed in the script's variables, and written once.
-- Redis makes a script's functions anew each time it runs, at a cost for each of the script's variables that they use, and
-- tables cost more than that: so these use none, and are given and return what others would keep in a table.

-- Runs a command on a key with a list of words, of which Lua's unpack and Redis' commands take only so many at once.
local function with_words(name, key, words, count)
  for i = 1, count, 1000 do redis.call(name, key, unpack(words, i, math.min(i + 999, count))) end
end

-- The calls that follow the one at `i` in a list of job ids, `step` apart, as far as they are of the same session: its name
-- begins at `at` in each id. Or nil.
local function calls_after(list, i, step, s, at)
  local calls, n, colon = nil, 0, at + #s
  local id = list[i + step]
  while id and string.byte(id, colon) == 58 and string.find(id, s, at, true) == at do
    calls, n, i = calls or {}, n + 1, i + step
    calls[n] = string.sub(id, colon + 1)
    id = list[i + step]
  end
  return calls
end

-- Gives a session to those of its calls that waited longest: appends fields and values of its record to `changes`, scores
-- and ids to `leased`. Returns readers, effects, calls left waiting, and the bytes of those that wait no longer.
local function grant(tag, s, running, readers, effects, parked, changes, leased, now, cap)
  -- Reads share a session up to `cap`, an effect is alone in it.
  if effects > 0 or readers >= cap then return readers, effects, parked, 0 end
  local waiting, look, was = 'reef:' .. tag .. ':waiting:' .. s, 1, tonumber(redis.call('HGET', running, '#b') or 0)
  local bytes = was
  while parked > 0 and effects == 0 and readers < cap do
    local cs = redis.call('LRANGE', waiting, 0, look - 1)
    if not cs[1] then
      parked, bytes = 0, 0
      break
    end
    local held, taken = redis.call('HMGET', running, unpack(cs)), 0
    for i, c in ipairs(cs) do
      -- What is not noted as waiting is no call of this session any more.
      local class, size = string.match(held[i] or '', '^([RE])(%d*)$')
      if class then
        if effects > 0 or readers >= (class == 'R' and cap or 1) then break end
        if class == 'R' then readers = readers + 1 else effects = effects + 1 end
        parked = parked - 1
        bytes = parked > 0 and math.max(0, bytes - (tonumber(size) or 0)) or 0
        changes[#changes + 1] = c
        changes[#changes + 1] = string.lower(class)
        leased[#leased + 1] = now
        leased[#leased + 1] = tag .. ':' .. s .. ':' .. c
      end
      taken = i
    end
    if taken > 0 then redis.call('LPOP', waiting, taken) end
    if taken < #cs then break end
    -- Where one read waits, others often follow it.
    look = math.min(cap - readers, parked, 1000)
  end
  changes[#changes + 1] = '#w'
  changes[#changes + 1] = parked
  changes[#changes + 1] = '#b'
  changes[#changes + 1] = bytes
  return readers, effects, parked, was - bytes
end
