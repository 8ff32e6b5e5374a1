#!/usr/bin/env bash
# Makes .venv and installs what is pinned: deploy/setup.sh requirements.txt
# Asks Debian's package system only for what is missing, and only where that is possible.
set -euo pipefail
cd "$(dirname "$0")/.."
requirements=$1

say() { printf 'setup: %s\n' "$*" >&2; }

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null && [ -t 0 ]; then
    sudo "$@"
  elif command -v sudo >/dev/null; then
    sudo -n "$@"
  else
    say "root is needed for: $*"
    return 1
  fi
}

apt_updated=
apt_install() {
  command -v apt-get >/dev/null || return 1
  say "installing $* with apt-get"
  if [ -z "$apt_updated" ]; then
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update </dev/null >/dev/null || return 1
    apt_updated=1
  fi
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
    -o Dpkg::Use-Pty=0 "$@" </dev/null >/dev/null
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
has_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

find_python() {
  local name found
  for name in "${PYTHON:-python3}" python3 python3.14 python3.13 python3.12 python3.11; do
    found=$(command -v "$name" || true)
    if [ -n "$found" ] && new_enough "$found"; then
      printf '%s\n' "$found"
      return
    fi
  done
  return 1
}

make_venv() {
  local python
  if ! python=$(find_python); then
    apt_install python3 python3-venv || true
    python=$(find_python) || {
      say "needs Python 3.11 or newer, and found $(python3 --version 2>/dev/null || echo none)." \
        "Install one and say which: make setup PYTHON=/path/to/python3"
      exit 1
    }
  fi
  if ! has_venv "$python"; then
    # Debian keeps ensurepip in a package of its own, one a Python version.
    version=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    apt_install "$version" || apt_install python3-venv || true
    has_venv "$python" || {
      say "$python has no venv module. Install it (Debian: apt-get install $version), then run make again"
      exit 1
    }
  fi
  say "making .venv with $("$python" --version) at $python"
  rm -rf .venv
  "$python" -m venv .venv
}

if ! { [ -x .venv/bin/python ] && new_enough .venv/bin/python && .venv/bin/python -m pip --version >/dev/null 2>&1; }; then
  make_venv
fi

# The wheel's bwrap stands in where this fails, so it is no error.
command -v bwrap >/dev/null || apt_install bubblewrap || say "no system bubblewrap; the one in the wheel will be used"

if [ "$requirements" = requirements-dev.txt ]; then
  # The dashboard's tests drive a real browser, and skip themselves where there is none.
  command -v chromium >/dev/null || apt_install chromium || say "no chromium; the browser tests will be skipped"
fi

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
.venv/bin/python -m pip install --quiet --require-hashes -r "$requirements"
.venv/bin/python -m pip install --quiet --no-deps --no-build-isolation -e .
say "installed $requirements into .venv"
