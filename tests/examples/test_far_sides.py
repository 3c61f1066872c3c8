"""The far sides of the release agent: a registry that dedupes, a mail server that does not.

Real processes on the loopback address; a kill is SIGKILL.
"""

from __future__ import annotations

import email
import email.policy
import http.client
import json
import os
import re
import signal
import smtplib
import socket
import subprocess
import sys
from email.message import EmailMessage
from typing import Any

import pytest

from world import HERE, WorldError

RELEASE = {"version": "v1.0.0", "sha": "a" * 40, "body": "notes"}
TEXT = "grüße\n.\nthe line above looks like the end\n"


# ---- the registry --------------------------------------------------------------------------------------------------


def ask(port: int, method: str, path: str, key: str = "", data: object = None) -> tuple[int, Any, bool]:
    """The answer's code, its JSON, and whether it was marked as replayed."""
    far_side = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    body = data if data is None or isinstance(data, bytes) else json.dumps(data).encode()
    far_side.request(method, path, body, {"Idempotency-Key": key} if key else {})
    answer = far_side.getresponse()
    found = answer.getcode(), json.loads(answer.read()), answer.headers.get("Idempotent-Replay") == "true"
    far_side.close()
    return found


def test_the_registry_dedupes_on_the_key_also_after_it_was_killed(running, tmp_path):
    file = tmp_path / "releases.jsonl"
    service, port = running("registry_service.py", "--file", str(file))
    first = ask(port, "POST", "/releases", "k1", RELEASE)
    assert first == (201, {**first[1], **RELEASE, "id": 1, "key": "k1"}, False)
    assert ask(port, "POST", "/releases", "k1", RELEASE) == (201, first[1], True)
    assert ask(port, "POST", "/releases", "k1", RELEASE | {"body": "other"})[0] == 422
    service.process.kill()
    service.process.wait()
    _, port = running("registry_service.py", "--file", str(file))
    assert ask(port, "POST", "/releases", "k1", RELEASE) == (201, first[1], True)
    assert ask(port, "POST", "/releases", "k2", RELEASE)[1]["id"] == 2
    assert [entry["key"] for entry in ask(port, "GET", "/releases")[1]["releases"]] == ["k1", "k2"]
    assert ask(port, "GET", "/releases/v1.0.0")[1]["id"] == 2
    assert ask(port, "GET", "/releases/v9.9.9")[0] == 404
    assert len(file.read_bytes().splitlines()) == 2


def test_a_key_in_flight_is_refused_until_its_request_is_over(running, tmp_path):
    _, port = running("registry_service.py", "--file", str(tmp_path / "releases.jsonl"))
    body = json.dumps(RELEASE).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=20) as slow:
        head = f"POST /releases HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k1\r\nContent-Length: {len(body)}\r\n"
        slow.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert slow.recv(100).startswith(b"HTTP/1.1 100")
        assert ask(port, "POST", "/releases", "k1", RELEASE)[0] == 409
        slow.sendall(body)
        assert slow.recv(100).startswith(b"HTTP/1.1 201")
    assert ask(port, "POST", "/releases", "k1", RELEASE)[2] is True


@pytest.mark.parametrize("kept", [1, 40, -1])
def test_a_torn_last_line_is_cut_and_the_rest_is_kept(kept, running, tmp_path):
    file = tmp_path / "releases.jsonl"
    service, port = running("registry_service.py", "--file", str(file))
    for key in ("k1", "k2"):
        ask(port, "POST", "/releases", key, RELEASE)
    service.stop()
    whole, torn = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(whole + torn[:kept])
    _, port = running("registry_service.py", "--file", str(file))
    assert file.read_bytes() == whole
    assert ask(port, "POST", "/releases", "k1", RELEASE)[2] is True
    assert ask(port, "POST", "/releases", "k2", RELEASE)[1:] == (json.loads(torn), False)


def test_the_registry_does_not_start_on_a_damaged_or_a_shared_file(running, tmp_path):
    file = tmp_path / "releases.jsonl"
    _, port = running("registry_service.py", "--file", str(file))
    ask(port, "POST", "/releases", "k1", RELEASE)
    with pytest.raises(WorldError, match=r"did not start.*temporarily unavailable"):
        running("registry_service.py", "--file", str(file))
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_bytes(b"{}\n" + file.read_bytes())
    with pytest.raises(WorldError, match="line 1 cannot be read"):
        running("registry_service.py", "--file", str(damaged))
    assert damaged.read_bytes() == b"{}\n" + file.read_bytes()


def test_bad_input_is_refused_and_binds_no_key(running, tmp_path):
    file = tmp_path / "releases.jsonl"
    _, port = running("registry_service.py", "--file", str(file))
    changes: list[dict[str, object]] = [{"sha": "x"}, {"more": 1}, {"version": "a/b"}, {"body": None}]
    bad_ones: list[object] = [b"no json", [], {}, *({**RELEASE, **change} for change in changes)]
    for bad in bad_ones:
        assert ask(port, "POST", "/releases", "k1", bad)[0] == 400
    assert ask(port, "POST", "/releases", "", RELEASE)[0] == 400
    assert ask(port, "POST", "/elsewhere", "k1", RELEASE)[0] == 404
    assert file.read_bytes() == b""
    assert ask(port, "POST", "/releases", "k1", RELEASE)[0] == 201


def test_an_answer_leaves_after_its_entry_is_synced(tmp_path):
    trace = tmp_path / "trace"
    script = [sys.executable, str(HERE / "registry_service.py"), "--file", str(tmp_path / "releases.jsonl")]
    calls = "trace=write,fsync,fdatasync,sendto"
    service = subprocess.Popen(
        ["strace", "-f", "-y", "-e", calls, "-o", str(trace), *script, "--until-stdin-closes"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert service.stdin is not None
    assert service.stdout is not None
    try:
        port = json.loads(service.stdout.readline())["port"]
        for key in ("k1", "k2"):
            assert ask(port, "POST", "/releases", key, RELEASE)[0] == 201
        service.stdin.close()
        service.wait(20)
    finally:
        if service.poll() is None:
            os.killpg(service.pid, signal.SIGKILL)
            service.wait()
        service.stdout.close()
    seen = re.findall(
        r'(write)\(\S+releases\.jsonl>|(fsync)\(\S+releases\.jsonl>|(sendto)\(\S+, "HTTP', trace.read_text()
    )
    assert ["".join(one) for one in seen] == ["fsync", *["write", "fsync", "sendto"] * 2]


# ---- the mail server -------------------------------------------------------------------------------------------------


def send(port: int, to: str, number: str) -> None:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"], mail["Message-ID"] = "a@x", to, f"Released {number}", f"<{number}@x>"
    mail.set_content(TEXT)
    with smtplib.SMTP("127.0.0.1", port, local_hostname="localhost", timeout=20) as server:
        server.send_message(mail)


def test_each_accepted_mail_is_one_file_and_the_same_mail_twice_is_two(running, tmp_path):
    spool = tmp_path / "spool"
    service, port = running("mail_service.py", "--spool", str(spool))
    for number in ("1", "1", "2"):
        send(port, "team@example.org", number)
    service.process.kill()
    service.process.wait()
    (spool / "tmp" / "000009.eml").write_text("never accepted")
    _, port = running("mail_service.py", "--spool", str(spool))
    send(port, "team@example.org", "3")
    kept = sorted((spool / "new").iterdir())
    mails = [email.message_from_bytes(path.read_bytes(), policy=email.policy.default) for path in kept]
    assert [path.name for path in kept] == [f"00000{n}.eml" for n in (1, 2, 3, 4)]
    assert [mail["Message-ID"] for mail in mails] == ["<1@x>", "<1@x>", "<2@x>", "<3@x>"]
    assert {(mail["Return-Path"], mail["Delivered-To"]) for mail in mails} == {("<a@x>", "team@example.org")}
    assert {mail.get_content().replace("\r\n", "\n") for mail in mails} == {TEXT}
    assert list((spool / "tmp").iterdir()) == []


def test_a_recipient_that_cannot_exist_is_refused_and_nothing_is_kept(running, tmp_path):
    _, port = running("mail_service.py", "--spool", str(tmp_path / "spool"))
    with pytest.raises(smtplib.SMTPRecipientsRefused):
        send(port, "nobody@example.invalid", "1")
    assert list((tmp_path / "spool" / "new").iterdir()) == []


def test_a_mail_that_cannot_be_stored_is_not_accepted(running, tmp_path):
    spool = tmp_path / "spool"
    _, port = running("mail_service.py", "--spool", str(spool))
    (spool / "tmp").rmdir()
    with pytest.raises(smtplib.SMTPDataError, match="451"):
        send(port, "team@example.org", "1")
    (spool / "tmp").mkdir()
    send(port, "team@example.org", "1")
    assert len(list((spool / "new").iterdir())) == 1
