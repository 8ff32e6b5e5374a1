-- Shared by the scripts that look at a session's plan.
-- A nonce counts for the plan it was first seen with: an approval that is put back for a later plan, or for a session
-- opened anew under the same name, does not count again.
local function spent(tag, s, plan, approval, now)
  local nonce, expires = approval[7], tonumber(approval[4] or 0) or 0
  if approval[2] ~= 'approved' or not nonce or approval[1] ~= plan[1] or expires <= now then return '' end
  local key, is = session_key(tag, 'nonces', s), plan[2] .. ' ' .. (plan[4] or '')
  local was = redis.call('HGET', key, nonce)
  if was then return was == is and '' or 'replayed' end
  redis.call('HSET', key, nonce, is)
  local life = math.floor(math.min(expires - now, 315360000000)) + 3600000
  redis.call('PEXPIRE', key, life, 'NX')
  redis.call('PEXPIRE', key, life, 'GT')
  return ''
end

-- Appends to a row: plan digest, version, scope, proposed ms, approval digest, verdict, approver, expiry ms, reason, scope,
-- nonce, key, signature, and why the approval does not count or ''.
local function add_plan(row, tag, s, now)
  local plan = redis.call('HMGET', session_key(tag, 'plan', s), 'digest', 'version', 'scope', 'proposed_ms')
  local approval = redis.call('HMGET', session_key(tag, 'approval', s), 'digest', 'verdict', 'approver', 'expires_ms', 'reason',
    'scope', 'nonce', 'key', 'signature')
  for i = 1, 4 do row[#row + 1] = plan[i] end
  for i = 1, 9 do row[#row + 1] = approval[i] end
  row[#row + 1] = plan[1] and spent(tag, s, plan, approval, now) or ''
end
