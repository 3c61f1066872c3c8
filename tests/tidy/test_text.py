"""What no file of the repository says: other words for our things, claims we cannot keep, paths, loose ends."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.tidy.tree import line_of, texts

# These rules are spelled here and in the glossary, which says what not to say.
RULES: Final = ("tests/tidy/", "docs/glossary.md")
OURS: Final = {name: text for name, text in texts().items() if not name.startswith(RULES)}

WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
BANNED: Final = {
    form: word
    for word, forms in {
        "checkpoint": "checkpoint checkpoints checkpointed checkpointing",
        "journal": "journal journals journaled journaling",
        "job": "job jobs",
        "task": "task tasks",
        "manager": "manager managers",
        "helper": "helper helpers",
        "util": "util utils",
        "status": "status statuses",
    }.items()
    for form in forms.split()
}
# Names that others gave: taken out of a line before it is read.
GIVEN: Final = re.compile(
    r"(?i:context[ _-]?managers?)"  # Python's
    r"|\b(?:importlib|email|ctypes|urllib3)\.utils?\b"  # the standard library's and urllib3's
    r"|\bjournal_(?:mode|size_limit)\b"  # SQLite's
    r"|\bPoolManager\b"  # urllib3's
    r"|\bDevelopment Status ::"  # the package index's
    r"|/task/"  # Linux's, below /proc
    r"|(?i:langgraph[-.]checkpoint)"  # packages of LangGraph
    r"|[\"']task[\"']"  # a partition of a model's context (design api.md)
    r"|\bstatus_code\b|\bHTTPStatus\b|\braise_for_status\b|\.status\b"  # HTTP's
)
# A word that belongs to another system may be used where that system is the subject: in a Python file that uses it,
# elsewhere within a line of its name.
USES: Final = {
    "task": re.compile("asyncio|absurd_sdk"),
    "checkpoint": re.compile("(?i)apsw|sqlite"),
    "journal": re.compile("import specunode"),
}
SUBJECT: Final = {
    "checkpoint": re.compile(r"(?i)wal\b|wal_|sqlite|pragma|truncate|passive|apsw"),
    "journal": re.compile(r"(?i)sqlite|pragma"),
    "task": re.compile(r"(?i)asyncio|taskgroup|event loop|coroutine|\bloop\b"),
    "status": re.compile(r"(?i)http|\bexit\b|waitpid|\bgit\b"),
}


def banned_words(name: str, text: str) -> list[str]:
    lines = text.split("\n")
    free = {word for word, use in USES.items() if name.endswith(".py") and use.search(text)}
    found = []
    for number, line in enumerate(lines, 1):
        for spelled in WORD.findall(GIVEN.sub(" ", line)):
            word = BANNED.get(spelled.lower())
            if word is None or word in free:
                continue
            near = "\n".join(lines[max(0, number - 2) : number + 1])
            if not (word in SUBJECT and SUBJECT[word].search(near)):
                found.append(f"{name}:{number}: {spelled}")
    return found


def test_words() -> None:
    assert len(OURS) > len(BANNED)
    named_by_others = {"requirements.lock", "bench/peers/pins.json"}
    said = {name: text for name, text in OURS.items() if name not in named_by_others}
    assert [hit for name, text in said.items() for hit in banned_words(name, text)] == []


@pytest.mark.parametrize(
    ("line", "hits"),
    [
        ("class JobManager:", 2),
        ("run_status = 1", 1),
        ("a list of tasks", 1),
        ("PRAGMA wal_checkpoint(TRUNCATE)", 0),
        ("we write a checkpoint here", 1),
        ("the asyncio task ends", 0),
        ("with a context manager, of type AbstractContextManager", 0),
        ("if response.status_code == 502:", 0),
        ("helpful, statusbar, jobless, utility", 0),
    ],
)
def test_words_are_seen(line: str, hits: int) -> None:
    assert len(banned_words("page.md", line)) == hits


# Wrapped lines and comment marks between the words do not hide a claim. Tests may count something once.
GAP: Final = r"[\s#*>/-]+"
CLAIM: Final = re.compile(
    rf"(?i)exactly{GAP}once|never{GAP}duplicates|guarantee[ds]?{GAP}delivery|effectively{GAP}once"
)
# Spelled with brackets so that they do not find themselves.
PATH: Final = re.compile(r"/(?:w[o]rk|r[o]ot|f[a]rm|h[o]me|U[s]ers)/")
HOST: Final = re.compile(r"(?i)py[p]i\.org|pythonh[o]sted|npm[j]s\.org|deb[i]an\.org/debian|proxy\.g[o]lang")
LOOSE: Final = re.compile(
    r"\bTO[D]O\b|\bFIX[M]E\b|\bX[X]X\b|raise\s+NotImplemented"
    r"|(?i:simplified f[o]r now|in a r[e]al (?:implementation|system))"
)


def _hits(pattern: re.Pattern[str], names: dict[str, str]) -> list[str]:
    return [
        f"{name}:{line_of(text, hit.start())}: {hit.group()!r}"
        for name, text in names.items()
        for hit in pattern.finditer(text)
    ]


def test_no_claim_that_nobody_can_keep() -> None:
    assert _hits(CLAIM, {name: text for name, text in OURS.items() if not name.startswith("tests/")}) == []


def test_no_path_of_one_machine() -> None:
    assert _hits(PATH, texts()) == []


def test_no_host_of_a_registry() -> None:
    assert _hits(HOST, texts()) == []


def test_no_loose_end() -> None:
    assert _hits(LOOSE, texts()) == []


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (CLAIM, "it runs Exactly-once."),
        (CLAIM, "# so it is sent exactly\n    # once, always"),
        (PATH, "see /h" + "ome/ann/notes"),
        (HOST, "files.pythonh" + "osted.org"),
        (LOOSE, "# TO" + "DO: later"),
        (LOOSE, "raise  Not" + "ImplementedError"),
    ],
)
def test_the_patterns_see(pattern: re.Pattern[str], said: str) -> None:
    assert pattern.search(said)
