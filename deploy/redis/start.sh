#!/bin/sh
# Starts Redis with the users of users.acl, whose passwords come from files: start.sh [more redis-server options]
# Users that the provisioner has made and saved since are kept; the roles' own lines are made anew each time.
set -eu
umask 077

template=${USERS_TEMPLATE:-/etc/toolreef/users.acl}
config=${REDIS_CONFIG:-/etc/toolreef/redis.conf}
secrets=${SECRETS:-/run/secrets}
data=${DATA:-/data}

fresh=$(mktemp "$data/users.acl.XXXXXX")
roles=
while read -r _ role rest; do
  roles="$roles|$role"
  case $rest in
  *"#<$role>"*)
    [ -s "$secrets/redis_$role" ] || { echo "start.sh: $secrets/redis_$role is missing or empty" >&2; exit 1; }
    hash=$(tr -d '\n' <"$secrets/redis_$role" | sha256sum | cut -d ' ' -f 1)
    rest="${rest%%"#<$role>"*}#$hash${rest#*"#<$role>"}"
    ;;
  esac
  printf 'user %s %s\n' "$role" "$rest"
done <"$template" >"$fresh"

if [ -f "$data/users.acl" ]; then
  grep -vE "^user (${roles#|}) " "$data/users.acl" >>"$fresh" || true
fi
mv "$fresh" "$data/users.acl"

exec redis-server "$config" --dir "$data" --aclfile "$data/users.acl" "$@"
