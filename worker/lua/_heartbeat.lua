-- Shared by the scripts that run often anyway, so that a heartbeat costs no command of its own.
-- A worker that has not been heard of for a minute is forgotten.
local function beat(workers, owner, heartbeat, now)
  if heartbeat == '' then return end
  redis.call('HSET', workers, owner, now .. ' ' .. heartbeat)
  redis.call('PEXPIRE', workers, 3600000)
  local all = redis.call('HGETALL', workers)
  for i = 1, #all, 2 do
    local at = tonumber(string.match(all[i + 1], '^%d+') or 0)
    if at + 60000 < now then redis.call('HDEL', workers, all[i]) end
  end
end
