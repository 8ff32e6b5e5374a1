"""python -m worker."""

import sys

from worker.cli import main

sys.exit(main())
