"""Drafts follow rules that anybody can check, also when a model writes the words."""

from __future__ import annotations

import http.server
import json
import threading
from typing import Any

import pytest

import drafter
import notes
from gitrepo import Commit, History


def history(*titles: str, since: str = "v1.2.3", taken: tuple[str, ...] = (), omitted: int = 0) -> History:
    commits = [
        Commit(sha=f"{n:040x}", title=title.removesuffix(" [breaks]"), breaking=title.endswith("[breaks]"))
        for n, title in enumerate(titles, 1)
    ]
    return History(branch="main", base="b" * 40, since=since, taken=list(taken), commits=commits, omitted=omitted)


@pytest.mark.parametrize(
    ("since", "titles", "taken", "tag"),
    [
        ("", ["fix: a"], (), "v0.1.0"),
        ("v1.2.3", ["fix: a", "no prefix"], (), "v1.2.4"),
        ("v1.2.3", ["fix: a", "feat(x): b"], (), "v1.3.0"),
        ("v1.2.3", ["feat: b", "fix!: a"], (), "v2.0.0"),
        ("v1.2.3", ["refactor: a [breaks]"], (), "v2.0.0"),
        ("v1.2.3", ["Merge branch x"], (), "v1.2.4"),
        ("v0.4.9", ["feat!: a"], (), "v0.5.0"),
        ("1.2.9", ["fix: a"], (), "1.2.10"),
        ("v1.2.3", ["fix: a"], ("v1.2.4", "1.2.5"), "v1.2.6"),
        ("", ["feat: a"], ("v0.1.0",), "v0.1.1"),
    ],
)
def test_the_next_tag_follows_from_the_messages_and_the_last_tag(since, titles, taken, tag):
    assert drafter.by_rule(history(*titles, since=since, taken=taken)).tag == tag


def test_the_notes_group_the_commits_and_are_the_same_each_time():
    changes = history(
        "feat(cli): add x", "fix: mend y", "Merge branch z", "ci: speed up", "feature toggles: maybe", "drop q [breaks]"
    )
    found = drafter.by_rule(changes)
    assert found.body == (
        "### Breaking changes\n\n- drop q (0000000)\n\n"
        "### Features\n\n- **cli:** add x (0000000)\n\n"
        "### Fixes\n\n- mend y (0000000)\n\n"
        "### Maintenance\n\n- speed up (0000000)\n\n"
        "### Other changes\n\n- feature toggles: maybe (0000000)"
    )
    assert drafter.by_rule(changes) == found
    long = drafter.by_rule(history(*["fix: a"] * 33, omitted=7)).body
    assert long.endswith("- … and 3 more\n\n… and 7 earlier commits.")
    assert long.count("- a (") == 30


def test_which_tags_name_a_version():
    tags = ["v1.9.0", "v1.10.0", "nightly", "v2.0.0-rc1", "v01.0.0", "pkg/v9.9.9", "1.9.9"]
    assert (notes.highest(tags), notes.highest(["nightly"])) == ("v1.10.0", "")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"", b"# Changelog\n\n## v2 (2001-01-01)\n\n- b\n"),
        (b"# C\n\n## v1\n\n- a\n", b"# C\n\n## v2 (2001-01-01)\n\n- b\n\n## v1\n\n- a\n"),
        (
            b"# C\n\n## [Unreleased]\n\n- u\n\n## v1\n",
            b"# C\n\n## [Unreleased]\n\n- u\n\n## v2 (2001-01-01)\n\n- b\n\n## v1\n",
        ),
        (b"# C\r\n\r\n## v1\r\n", b"# C\r\n\r\n## v2 (2001-01-01)\r\n\r\n- b\r\n\r\n## v1\r\n"),
        (b"plain \xff", b"plain \xff\n\n## v2 (2001-01-01)\n\n- b\n"),
    ],
)
def test_an_entry_goes_on_top_and_leaves_the_rest_alone(old, new):
    assert notes.with_entry(old, tag="v2", day="2001-01-01", body="- b\n\n") == new


def test_other_peoples_text_is_one_printable_line():
    assert notes.one_line("fix:\x1b[31m red\r\n\tline") == "fix: [31m red line"


# ---- an endpoint ---------------------------------------------------------------------------------------------------


@pytest.fixture
def endpoint():
    """A server that answers what it is told to; gives its address, the answers to come, the requests seen."""
    answers: list[tuple[int, Any]] = []
    seen: list[tuple[str, str | None, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.path, self.headers["Authorization"], json.loads(raw)))
            code, data = answers.pop(0)
            self.send_response(code)
            self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(json.dumps(data).encode())

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1", answers, seen
    server.shutdown()
    server.server_close()
    thread.join()


def said(content: str) -> dict[str, Any]:
    return {"choices": [{"message": {"content": content}}], "usage": {"prompt_tokens": 11, "completion_tokens": 7}}


def test_an_endpoint_chooses_the_step_and_the_words_only(endpoint):
    url, answers, seen = endpoint
    answers.append((200, said('Here: {"bump": "major", "notes": "All \\u001b[1mnew"}, tag it v9.9.9')))
    environment = {"POIMEN_DRAFTER_URL": url, "POIMEN_DRAFTER_MODEL": "m", "POIMEN_DRAFTER_KEY": "secret"}
    found = drafter.draft(history("fix: a"), environment)
    assert found == drafter.Draft(tag="v2.0.0", body="All [1mnew", model="m", input_tokens=11, output_tokens=7)
    path, key, asked = seen[0]
    assert (path, key, asked["model"]) == ("/v1/chat/completions", "Bearer secret", "m")
    assert json.loads(asked["messages"][1]["content"]) == {"since": "v1.2.3", "commits": ["fix: a"]}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((200, said("no json")), "did not answer with the JSON object"),
        ((200, said('{"bump": "v9.9.9", "notes": "x"}')), "answered with the bump 'v9.9.9'"),
        ((200, said('{"bump": "minor", "notes": " "}')), "0 characters of notes"),
        ((200, {"choices": []}), "did not answer with the JSON object"),
        ((200, ["x"]), "no object"),
        ((429, {}), "answered 429"),
        ((302, {}), "answered 302"),
    ],
)
def test_an_unusable_answer_is_an_error_that_does_not_show_the_key(answer, why, endpoint):
    url, answers, seen = endpoint
    answers.append(answer)
    with pytest.raises(drafter.DraftFailed, match=why) as failed:
        drafter.by_model(history("fix: a"), url, "m", "secret")
    assert "secret" not in str(failed.value)
    assert len(seen) == 1


def test_without_an_address_the_local_drafter_writes_and_a_wrong_address_is_refused():
    assert drafter.draft(history("feat: a"), {}).model == ""
    for url, model in (("file:///etc/passwd", "m"), ("http://127.0.0.1:1", "")):
        with pytest.raises(drafter.DraftFailed, match="must"):
            drafter.draft(history("feat: a"), {"POIMEN_DRAFTER_URL": url, "POIMEN_DRAFTER_MODEL": model})
