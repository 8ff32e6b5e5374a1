#!/bin/sh
# Runs toolreef with REDIS_URL made from a secret file, so that the password is in no image, argv or compose file.
set -eu
if [ -n "${REDIS_PASSWORD_FILE:-}" ]; then
  REDIS_URL="redis://${REDIS_USER:-worker}:$(cat "$REDIS_PASSWORD_FILE")@${REDIS_HOST:-redis}:${REDIS_PORT:-6379}/0"
  export REDIS_URL
fi
exec toolreef "$@"
