"""Chaos by hand: python -m tests.chaos --seed N --duration SECONDS [--only FAULT] [--fsync everysec [--cut-tail]]"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.campaign import run
from tests.chaos.faults import FAULTS


def main() -> int:
    """0 where the promise held."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--duration", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--only", choices=sorted(FAULTS), help="one kind of fault instead of all")
    parser.add_argument("--fsync", choices=["always", "everysec"], default="always")
    parser.add_argument("--cut-tail", action="store_true", help="lose power: everysec's last second is gone")
    parser.add_argument("--keep", action="store_true", help="keep the directory with logs and books")
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="chaos-"))
    print(f"seed {options.seed}, {options.duration:g} s, appendfsync {options.fsync}, in {home}", flush=True)
    only = "lose-power" if options.cut_tail else options.only
    verdict = run(home, seed=options.seed, duration_s=options.duration, fsync=options.fsync, only=only)
    print(verdict.table())
    if options.keep or verdict.faults:
        print(f"kept: {home}")
    else:
        shutil.rmtree(home)
    # A cut tail is there to be reported, not to be survived.
    return 1 if verdict.faults and only != "lose-power" else 0


if __name__ == "__main__":
    sys.exit(main())
