#!lua flags=allow-oom
-- Looks at a session's mode, plan and approval once more, just before an effect starts.
-- KEYS: 1 plan (the worker may only read the approval, and Redis takes a declared key for one that is written)
-- ARGV: 1 queue name, 2 session
-- Returns: {now ms, mode, and what add_plan appends}
--@include session
--@include plan
local tag, s = '{' .. ARGV[1] .. '}', ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local row = { now, redis.call('HGET', session_key(tag, 'session', s), 'mode') }
add_plan(row, tag, s, now)
return row
