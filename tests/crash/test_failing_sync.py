"""EIO on a sync of the log in the middle of a guarded effect, from `poimen.run` to the restart that settles it."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from poimen.kernel.errors import StorageFailed
from poimen.log.sqlite import SqliteStore
from poimen.testing import Witness, child_command, strace_command

if TYPE_CHECKING:
    from pathlib import Path

    from poimen.testing import ForkServer

EFFECTS = 12
PROTOCOL = ("intent.pending.v1", "intent.dispatched.v1", "intent.committed.v1")
FIRST = 20
"""The number of a sync of the -wal file that falls into the middle of the effects, as the next two do."""


def failing(program: str, db: Path, when: int, env: dict[str, str]) -> subprocess.Popen[str]:
    """A child whose n-th sync of the -wal file fails, and every other one works."""
    trace = strace_command(
        output=db.parent / "trace", calls=["fdatasync"], inject=f"error=EIO:when={when}", only=f"{db}-wal"
    )
    return subprocess.Popen(
        [*trace, *child_command(f"tests.crash.programs:{program}", args=(str(db), EFFECTS), env=env)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def told(child: subprocess.Popen[str]) -> dict[str, Any]:
    assert child.stdout is not None
    found: dict[str, Any] = json.loads(child.stdout.readline())
    return found


def test_a_failed_sync_of_an_effect_is_unknown_until_the_restart_settles_it(server: ForkServer, tmp_path: Path) -> None:
    in_doubt = set()
    for when in range(FIRST, FIRST + 3):
        folder = tmp_path / str(when)
        folder.mkdir()
        in_doubt.add(fail_and_restart(server, folder, when))
    assert in_doubt == set(PROTOCOL), "each of the three records was once the one in doubt"


def fail_and_restart(server: ForkServer, folder: Path, when: int) -> str:
    """Let one sync fail, look at what is left, start again; the kind of the record that was in doubt."""
    db, witness = folder / "poimen.db", Witness(folder / "witness")
    env = {"POIMEN_WITNESS": str(witness.path)}
    with failing("fails", db, when, env) as child:
        failed = told(child)
        assert failed["error"] == "CommitUnknown"
        # While that process lives, and after it: nobody reads what may not be so.
        with pytest.raises(StorageFailed, match="closed until a failed commit is settled"):
            SqliteStore(db, read_only=True)
        assert failed["seen"] == len(witness)
        child.communicate("\n")
    with pytest.raises(StorageFailed, match="closed until"):
        SqliteStore(db, read_only=True)

    ended = server.run("tests.crash.programs:goes_on", args=(EFFECTS,), db=db, run_id="r", env=env)
    store = SqliteStore(db, read_only=True)
    records = store.read("r")
    store.close()
    kinds = [record.kind for record in records]
    settled = records[kinds.index("append.settled.v1")]
    assert json.loads(settled.body) == {"found": True, "record_ids": failed["ids"]}
    assert kinds[settled.lsn] == "branch.resumed.v1", "settled before anything else is done"
    said = [json.loads(record.body)["classification"] for record in records if record.kind == "intent.classified.v1"]
    ids = [line.split()[0] for line in witness.lines()]
    assert len(ids) == len(set(ids)), "an effect that nobody may repeat was repeated"
    in_doubt = next(r.kind for r in records if r.record_id in failed["ids"] and r.kind in PROTOCOL)
    if in_doubt == "intent.dispatched.v1":
        assert (said, ended.how, len(ids)) == (["may_have_been_sent"], "waiting", failed["seen"])
    else:
        assert said == (["never_sent"] if in_doubt == "intent.pending.v1" else [])
        assert (ended.how, ended.value, len(ids)) == ("returned", EFFECTS, EFFECTS)
    return in_doubt


def test_after_a_failed_sync_the_process_acknowledges_nothing_more(tmp_path: Path) -> None:
    db, witness = tmp_path / "poimen.db", Witness(tmp_path / "witness")
    with failing("fails_for_all", db, FIRST, {"POIMEN_WITNESS": str(witness.path)}) as child:
        found = told(child)
        child.communicate("\n")
    assert set(found["errors"]) <= {"CommitUnknown", "StorageFailed"}
    assert "CommitUnknown" in found["errors"]
    assert found["late"] in {"CommitUnknown", "StorageFailed"}
    assert found["seen"] == found["seen_after"] == len(witness)
    with pytest.raises(StorageFailed, match="closed until"):
        SqliteStore(db, read_only=True)
    store = SqliteStore(db)
    assert store.settled
    assert store.head("late") is None
    assert list(store.check()) == []
    store.close()
