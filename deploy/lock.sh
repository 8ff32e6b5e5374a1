#!/usr/bin/env bash
# Pins all dependencies with the hashes of all their files: one lock for every Python from 3.11 and every machine.
# The locks name no index, so that whoever installs decides where packages come from.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
.venv/bin/python -m venv "$tools" 2>/dev/null || "${PYTHON:-python3}" -m venv "$tools"
if [ -s requirements-lock.txt ]; then
  "$tools/bin/pip" install --quiet --require-hashes -r requirements-lock.txt
else
  "$tools/bin/pip" install --quiet uv
fi

compile() {
  local output=$1
  shift
  "$tools/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
    --no-header --no-annotate --no-emit-index-url --no-emit-find-links --upgrade "$@" --output-file "$output.new" >/dev/null
  if grep -nE '(https?|file):/|^-|^/' "$output.new"; then
    echo "lock: $output names a place, see above" >&2
    rm -f "$output.new"
    exit 1
  fi
  mv "$output.new" "$output"
}

compile requirements.txt pyproject.toml --all-extras --group build
compile requirements-dev.txt pyproject.toml --all-extras --group build --group dev --constraint requirements.txt
compile requirements-lock.txt --group lock
