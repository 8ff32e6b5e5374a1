#!lua
-- Uses up somebody's yes to a call: for the call that holds the claim, once, and never for another.
-- KEYS: 1 used marker
-- ARGV: 1 queue name, 2 id, 3 token, 4 digest of the call's content
-- Returns: {word, approver, reason} and, if the word is approved, {nonce, expiry ms, key, signature};
--   words: approved, rejected, none, used, stale
local tag, id = '{' .. ARGV[1] .. '}', ARGV[2]
local owner = redis.call('GET', 'arq:in-progress:' .. id)
if not owner or string.match(owner, '^%d+') ~= ARGV[3] then return { 'stale', '', '' } end
local s, c = string.match(string.sub(id, #tag + 2), '^([^:]+):([^:]+)$')
local permit = 'reef:' .. tag .. ':permit:' .. s .. ':' .. ARGV[4]
local found = redis.call('HMGET', permit, 'nonce', 'verdict', 'approver', 'reason', 'expires_ms', 'key', 'signature')
local nonce, verdict, approver, reason = found[1], found[2], found[3] or '', found[4] or ''
local life = redis.call('PTTL', permit)
local approved = { 'approved', approver, reason, nonce, found[5] or '', found[6] or '', found[7] or '' }
-- An answer without an end was not written by an approver of ours.
if not nonce or not string.match(nonce, '^%x+$') or life < 1 then return { 'none', '', '' } end
if verdict == 'rejected' then return { 'rejected', approver, reason } end
if verdict ~= 'approved' then return { 'none', '', '' } end
local used = redis.call('GET', KEYS[1])
if used then
  local before, by = string.match(used, '^(%x+) (%S+) ')
  if before == nonce then
    -- A read whose worker died after this runs again; any other call does not.
    if by == c then return approved end
    return { 'used', approver, reason }
  end
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('SET', KEYS[1], nonce .. ' ' .. c .. ' ' .. now, 'PX', life + 60000)
return approved
