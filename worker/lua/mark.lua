#!lua flags=allow-oom
-- Raises a workspace's level, before a command starts that may copy whatever it sees there.
-- KEYS: 1 workspace
-- ARGV: 1 level
-- Returns: word: raised, kept
--@include session
if rank(ARGV[1]) <= rank(redis.call('HGET', KEYS[1], 'level')) then return 'kept' end
redis.call('HSET', KEYS[1], 'level', ARGV[1])
return 'raised'
