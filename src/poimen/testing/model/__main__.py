"""`python -m poimen.testing.model`: explore, walk, put the walks to the real kernel, run the controls; the figures.

Source: design proof.md, P10.
"""

from __future__ import annotations

import sys

from poimen.testing.model.searching import CONTROLS, search, sought

if __name__ == "__main__":
    limit, walks = (int(word) for word in (*sys.argv[1:3], *("25000", "100")[len(sys.argv) - 1 :]))
    found = search(limit=limit, walks=walks)
    sys.stdout.write(f"{found.told()}\n")
    caught = [sought(control) for control in CONTROLS]
    sys.stdout.write("\n".join([*(each.told() for each in caught), ""]))
    sys.exit(0 if found.whole and all(each.broken for each in caught) else 1)
