#!/usr/bin/env bash
# Makes a random password for each role in deploy/secrets/redis_<role>, where there is none yet.
# The folder is private; the files are readable, since compose hands them to other users as they are.
set -euo pipefail
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
while read -r _ role _; do
  [ "$role" != default ] || continue
  [ -s "secrets/redis_$role" ] || head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' >"secrets/redis_$role"
  chmod 444 "secrets/redis_$role"
done <redis/users.acl
echo "deploy/secrets: one password a role"
