-- Shared by the scripts: names of a session's keys, and the order of levels.
local function session_key(tag, kind, s) return 'reef:' .. tag .. ':' .. kind .. ':' .. s end

local RANK = { PUBLIC = 0, INTERNAL = 1, CONFIDENTIAL = 2, RESTRICTED = 3 }

-- A word that is no level ranks highest, never lower.
local function rank(level) if not level then return 0 end return RANK[level] or 3 end
