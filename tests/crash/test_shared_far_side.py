"""`sweep` against a service that all trials share: each is held against what it did itself, and strangers show."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from poimen._typing import override
from poimen.testing import ForkServer, sweep
from tests.crash import far_side

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Service(ThreadingHTTPServer):
    """Holds one charge a key, and every mail."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.held: list[str] = ["of-last-week"]

    def seen(self, folder: Path) -> list[str]:
        assert folder.is_dir()
        return list(self.held)


class Answer(BaseHTTPRequestHandler):
    """Takes one effect."""

    server: Service

    def do_POST(self) -> None:
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = said.get("mail") or said["key"]
        if "mail" in said or name not in self.server.held:
            self.server.held.append(name)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    @override
    def log_message(self, *args: object) -> None:
        """Nothing is printed."""


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    with Service() as made:
        monkeypatch.setenv(far_side.ADDRESS, f"http://127.0.0.1:{made.server_address[1]}")
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def server(service: Service) -> Iterator[ForkServer]:
    assert service.held
    with ForkServer("tests.crash.far_side:charges") as made:
        yield made


@pytest.mark.parametrize("width", [1, 8])
def test_what_other_trials_did_there_is_not_counted(
    service: Service, server: ForkServer, tmp_path: Path, width: int
) -> None:
    found = sweep(far_side.charges("tea"), seen=service.seen, folder=tmp_path, server=server, width=width)
    found.assert_clean()
    assert [(row.effect, row.wanted, row.sends) for row in found.effects] == [
        ("charge#0", 1, (1, 2)),
        ("of-last-week", 1, (0, 0)),
    ]
    assert len(service.held) == found.kills + 2  # one of each trial, one of the undisturbed run, one of last week


def test_what_a_trial_did_there_twice_is_a_duplicate(service: Service, server: ForkServer, tmp_path: Path) -> None:
    found = sweep(far_side.mails("ann"), seen=service.seen, folder=tmp_path, server=server)
    assert (found.duplicates, found.losses) == (2, 0)
    assert found["mail#0"].duplicates == 2


def test_what_is_missing_there_is_a_loss(service: Service, server: ForkServer, tmp_path: Path) -> None:
    def forgetful(folder: Path) -> list[str]:
        return service.seen(folder)[: 2 if folder.name == "undisturbed" else 3]

    found = sweep(far_side.charges("tea"), seen=forgetful, folder=tmp_path, server=server, points=False)
    assert found["charge#0"].losses == found.kills - 1
    assert found.duplicates == 0


def test_an_id_of_no_trial_is_one_too_many(service: Service, server: ForkServer, tmp_path: Path) -> None:
    found = sweep(far_side.strangers("tea"), seen=service.seen, folder=tmp_path, server=server, points=False)
    assert found["strange#0"].duplicates == found.losses == 0
    strangers = [row for row in found.effects if row.effect.startswith("of-nobody") and not row.wanted]
    assert strangers
    assert all(row.duplicates for row in strangers)
