"""The table of docs/sandbox.md: what each wall stops, as the attacks found it.

python -m tests.attacks.table          # attack every wall that this host offers, and write the page's table anew
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.attacks.campaign import ATTACKS, Campaign
from tests.attacks.container import inside
from worker.sandbox import TIERS, Sandbox, SandboxUnavailable, Tier, detect

PAGE = Path(__file__).parent.parent.parent / "docs" / "sandbox.md"
BEGIN = "<!-- attacks: written by `make attacks`, do not edit -->"
END = "<!-- attacks: end -->"
COLUMNS = ("bwrap+seccomp", "landlock+seccomp", "landlock+seccomp in a container", "none")
IN_A_CONTAINER = COLUMNS[2]

Results = dict[str, dict[str, str]]
"""By column and by attack: `REACHED`, or how it was stopped."""


def attack(column: str) -> dict[str, str]:
    """What came of every attack on one wall.

    Raises:
        SandboxUnavailable: the host does not offer it.
    """
    with tempfile.TemporaryDirectory(prefix="reef-attacks-") as name:
        root = Path(name)
        if column == IN_A_CONTAINER:
            root.chmod(0o755)
            (root / "own").mkdir(mode=0o777)
            (root / "own").chmod(0o777)
            return inside(lambda: _attack(detect("require"), root / "own"))
        if column == "none":
            return _attack(detect("off"), root)
        tier: Tier = next(tier for tier in TIERS if column.startswith(tier))
        return _attack(detect("require", tiers=(tier,)), root)


def _attack(sandbox: Sandbox, root: Path) -> dict[str, str]:
    try:
        campaign = Campaign(sandbox, root / "campaign")
        try:
            return {**campaign.run(), "tier": sandbox.tier, "said": campaign.close()}
        finally:
            campaign.close()
    finally:
        sandbox.close()


def cell(result: str) -> str:
    """How the page shows a result."""
    return "**not stopped**" if result == "REACHED" else "stopped"


def render(results: Results, before: Results | None = None) -> str:
    """The table, with cells of walls that were not tried taken from `before`."""
    lines = [f"| a command tries to | {' | '.join(COLUMNS)} |", "|---|" + "---|" * len(COLUMNS)]
    for found in ATTACKS:
        cells = []
        for column in COLUMNS:
            if column in results:
                cells.append(cell(results[column][found.name]))
            else:
                cells.append((before or {}).get(column, {}).get(found.title, "not tried"))
        lines.append(f"| {found.title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def read(page: str) -> Results:
    """The cells of a page's table, by column and by title."""
    table = page.partition(BEGIN)[2].partition(END)[0].strip().splitlines()
    rows = [[part.strip() for part in line.strip("|").split("|")] for line in table]
    columns = rows[0][1:] if rows else []
    return {column: {row[0]: row[1 + at] for row in rows[2:]} for at, column in enumerate(columns)}


def main() -> int:
    """Attack, and write the page."""
    results: Results = {}
    for column in COLUMNS:
        try:
            results[column] = attack(column)
        except SandboxUnavailable as error:
            print(f"{column}: {error}", file=sys.stderr)
    page = PAGE.read_text()
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n\n{render(results, read(page))}\n\n{END}{tail}")
    reached = {
        column: [name for name, value in found.items() if value == "REACHED"] for column, found in results.items()
    }
    print("\n".join(f"{column}: {len(names)} not stopped" for column, names in reached.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
