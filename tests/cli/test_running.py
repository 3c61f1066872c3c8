"""`poimen run`: its arguments by the annotations, files of input, many runs, the same id again, admission alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.conftest import AGENT, Cli, child

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = {
    "text": "t",
    "number": 0,
    "share": 0.5,
    "loud": False,
    "calm": True,
    "day": None,
    "size": "small",
    "word": "a",
    "maybe": None,
    "marked": "",
    "items": [],
    "anything": None,
}


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        (("t",), {}),
        (("123",), {"text": "123"}),
        (('{"a": 1}',), {"text": '{"a": 1}'}),
        (("text=a=b",), {"text": "a=b"}),
        (("other=b",), {"text": "other=b"}),
        (("--text=--x",), {"text": "--x"}),
        (("t", "-5"), {"number": -5}),
        (("t", "--number", "7"), {"number": 7}),
        (("number=8", "t"), {"number": 8}),
        (("t", "--share", "2"), {"share": 2.0}),
        (("t", "--loud"), {"loud": True}),
        (("--loud", "t"), {"loud": True}),
        (("t", "--loud", "yes"), {"loud": True}),
        (("t", "loud=TRUE"), {"loud": True}),
        (("t", "--no-calm"), {"calm": False}),
        (("t", "--calm=no"), {"calm": False}),
        (("t", "--day", "2026-03-14"), {"day": "2026-03-14"}),
        (("t", "--day", "null"), {}),
        (("t", "--size", "large"), {"size": "large"}),
        (("t", "--word", "b"), {"word": "b"}),
        (("t", "--maybe", "5"), {"maybe": "5"}),
        (("t", "--maybe", "null"), {}),
        (("t", "--marked", "7"), {"marked": "7"}),
        (("t", "--items", '[{"name": "x", "price": "1.50"}, {"name": "y"}]'), {"items": [["x", "1.50"], ["y", "1"]]}),
        (("t", "--anything", "[1]"), {"anything": [1]}),
        (("t", "--anything", "some words"), {"anything": "some words"}),
        (("t", "anything=007"), {"anything": "007"}),
        (("--", "t", "--calm=no"), {"calm": False}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_arguments_follow_the_annotations(cli: Cli, words: tuple[str, ...], changed: dict[str, Any]) -> None:
    done = cli("run", "--db", "memory:", "--json", f"{AGENT}:typed", *words)
    assert done.code == 0, done
    assert done.data["result"] == PLAIN | changed
    assert set(done.data) == {"run_id", "workflow", "state", "result"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("t", "--number", "1.5"), "number: a float does not fit int"),
        (("t", "--number", "NaN"), "number: a str does not fit int"),
        (("t", "--number"), "--number needs a value"),
        (("t", "--loud=perhaps"), "loud: a str does not fit bool"),
        (("t", "--size", "huge"), "size: a str does not fit"),
        (("t", "--word", "c"), "word: a str does not fit"),
        (("t", "--day", "tomorrow"), "day: a str does not fit"),
        (("t", "--items", '[{"nme": "x"}]'), "items[0].name"),
        (("t", "--number", "1", "number=2"), "number is given twice"),
        (("t", "--text", "u"), "multiple values for argument 'text'"),
        (("t", "1", "2"), "usage: one word too many: it takes text, number"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_words_that_do_not_fit(cli: Cli, tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    done = cli("run", "--db", "db", f"{AGENT}:typed", *words)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert list(tmp_path.iterdir()) == []


def test_as_many_words_as_it_takes(cli: Cli) -> None:
    done = cli("run", "--db", "memory:", "--json", f"{AGENT}:many", "a", "b=c", "x=1", "--y", "2")
    assert done.code == 2, "every name=value goes to **rest, where an int is asked for"
    done = cli("run", "--db", "memory:", "--json", f"{AGENT}:many", "a", "c", "x=1", "--y", "2")
    assert done.data["result"] == [["a", "c"], {"x": 1, "y": 2}]


@pytest.mark.parametrize("given", ['{"order": "tea"}', "@input.json", "-"])
def test_input_as_one_object(cli: Cli, tmp_path: Path, given: str) -> None:
    (tmp_path / "input.json").write_text('{"order": "tea"}', encoding="utf-8")
    done = cli("run", f"{AGENT}:shop", "--input", given, "--db", "db", "-q", stdin='{"order": "tea"}')
    assert (done.code, done.out) == (0, "charged 4200, mailed tea\n")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("[1]", "an object of arguments by name is expected"),
        ('{"order": 5}', "order: str is annotated"),
        ('{"order": "tea", "x": 1}', "no such parameter"),
        ("{}", "no argument is stored"),
    ],
)
def test_input_that_does_not_fit(cli: Cli, given: str, says: str) -> None:
    done = cli("run", f"{AGENT}:shop", "--input", given, "--db", "db")
    assert (done.code, says in done.err) == (2, True), done


def test_the_same_id_again_is_the_same_run(cli: Cli, tmp_path: Path) -> None:
    first = cli("run", f"{AGENT}:shop", "tea", "--id", "t", "--db", "db")
    again = cli("run", f"{AGENT}:shop", "tea", "--id", "t", "--db", "db")
    recorded = cli("run", f"{AGENT}:shop", "--id", "t", "--db", "db")
    assert [said.out for said in (first, again, recorded)] == ["charged 4200, mailed tea\n"] * 3
    assert (tmp_path / "witness.txt").read_text(encoding="utf-8") == "charge tea\nmail tea\n"


def test_an_id_that_was_made_up_is_said(cli: Cli) -> None:
    done = cli("run", f"{AGENT}:nothing", "--db", "db")
    run = done.err.split(";")[0].removeprefix("run ")
    assert cli("runs", "show", run, "--json", "--db", "db").data["state"] == "SUCCEEDED"


def test_no_id_is_promised_where_no_run_exists(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello world " * 100, encoding="utf-8")
    for place in ("text", tmp_path):
        done = cli("run", f"{AGENT}:nothing", "--db", place)
        assert done.code != 0
        assert "goes on with it" not in done.err


@pytest.mark.parametrize("db", [":memory:", "file:x?mode=memory", "file:x.db"])
def test_a_name_of_sqlites_own_makes_no_files(cli: Cli, tmp_path: Path, db: str) -> None:
    for words in (("run", f"{AGENT}:nothing"), ("runs",), ("doctor",)):
        done = cli(*words, "--db", db)
        if words != ("doctor",):
            assert done.code == 6
            assert "did you mean memory:" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_module_here_or_in_src_is_found(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "shop_in_src.py").write_text(AGENT.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "beside.py").write_text("ANSWER = 42\n", encoding="utf-8")
    program = "import beside, poimen\n@poimen.workflow\nasync def go() -> int:\n    return beside.ANSWER\n"
    (tmp_path / "sub" / "uses_beside.py").write_text(program, encoding="utf-8")
    assert cli("run", "shop_in_src:nothing", "--db", "memory:", "-q").out == "null\n"
    assert cli("run", "sub/uses_beside.py", "--db", "memory:", "-q").out == "42\n", "its only workflow needs no name"


def test_detach_admits_only(cli: Cli, tmp_path: Path) -> None:
    done = cli("run", f"{AGENT}:shop", "tea", "--id", "t", "--detach", "--db", "db")
    assert (done.code, done.out) == (0, "t\n")
    assert f"poimen --db db run {AGENT}:shop --id t" in done.err
    run = cli("runs", "show", "t", "--json", "--db", "db").data
    assert (run["state"], run["lsn"], run["command"]) == ("PENDING", 1, "poimen --db db run FILE_OR_MODULE:shop --id t")
    assert not (tmp_path / "witness.txt").exists()
    assert cli("run", f"{AGENT}:shop", "tea", "--id", "t", "--detach", "--json", "--db", "db").data["is_new"] is False
    assert cli("run", f"{AGENT}:shop", "--id", "t", "--db", "db").out == "charged 4200, mailed tea\n"


def test_settings_from_a_file(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POIMEN_DB", "")
    monkeypatch.delenv("POIMEN_DB")
    (tmp_path / "dev.env").write_text(
        "# settings\n\nexport POIMEN_DB = 'from file/db'\nPOIMEN_BY=ann\n", encoding="utf-8"
    )
    done = child("run", f"{AGENT}:nothing", "--id", "t", "--env-file", "dev.env", cwd=tmp_path)
    assert done.code == 0, done
    assert (tmp_path / "from file" / "db").exists()
    (tmp_path / "bad.env").write_text("POIMEN_DB\n", encoding="utf-8")
    wrong = cli("runs", "--env-file", "bad.env")
    assert (wrong.code, "line 1 is not NAME=value" in wrong.err) == (2, True)
    assert cli("runs", "--env-file", "nowhere.env").code == 2


# ---- many ------------------------------------------------------------------------------------------------------


def lines(tmp_path: Path, *rows: Any) -> str:
    file = tmp_path / "each.jsonl"
    file.write_text("".join(f"{json.dumps(row) if row is not None else ''}\n" for row in rows), encoding="utf-8")
    return f"@{file}"


def test_one_run_a_line(cli: Cli, tmp_path: Path) -> None:
    given = lines(tmp_path, {"order": "tea"}, None, {"id": "own", "input": {"order": "milk"}, "tags": {"k": "v"}})
    for _ in range(2):
        done = cli("run", f"{AGENT}:shop", "--each", given, "--id", "batch", "--json", "--db", "db")
        assert done.code == 0, done
        assert [(one["run_id"], one["line"], one["state"], one["result"]) for one in done.data] == [
            ("batch-1", 1, "SUCCEEDED", "charged 4200, mailed tea"),
            ("own", 3, "SUCCEEDED", "charged 4200, mailed milk"),
        ]
    assert sorted((tmp_path / "witness.txt").read_text(encoding="utf-8").splitlines()) == [
        *("charge milk", "charge tea", "mail milk", "mail tea"),
    ]
    assert [one["id"] for one in cli("runs", "ls", "--tag", "k=v", "--json", "--db", "db").data] == ["own"]
    shown = cli("run", f"{AGENT}:shop", "--each", given, "--id", "batch", "--db", "db")
    assert sorted(shown.out.splitlines()) == [
        "batch-1  SUCCEEDED  charged 4200, mailed tea",
        "own  SUCCEEDED  charged 4200, mailed milk",
    ]


def test_the_worst_end_of_many_is_the_exit(cli: Cli, killed: Path, tmp_path: Path) -> None:
    waits = {"id": "tea-1", "input": {"order": "tea"}}
    done = cli("run", f"{AGENT}:shop", "--each", lines(tmp_path, waits), "--json", "--db", killed)
    assert (done.code, done.data[0]["state"], done.data[0]["error"]["code"]) == (4, "WAITING", "PO330")
    other = lines(tmp_path, waits, {"id": "t", "input": {"order": "milk"}})
    mixed = cli("run", f"{AGENT}:shop", "--each", other, "--json", "--db", killed)
    assert (mixed.code, [one["exit"] for one in mixed.data]) == (4, [4, 0])
    bad = cli(
        "run", f"{AGENT}:fails", "--each", lines(tmp_path, {"message": "x"}), "--id", "b", "--json", "--db", killed
    )
    assert (bad.code, bad.data[0]["state"]) == (1, "FAILED")


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([{"order": "tea"}, {"order": 5}], "--each, line 2: order"),
        ([{"order": "tea"}, ["x"]], "--each, line 2: an object of arguments"),
        ([{"id": "a", "input": {"order": "x"}}] * 2, "ids that stand there twice: a"),
        ([{"id": "a/b", "input": {"order": "x"}}], "cannot be a run id"),
    ],
)
def test_all_lines_are_checked_before_the_first_is_begun(cli: Cli, tmp_path: Path, rows: list[Any], says: str) -> None:
    done = cli("run", f"{AGENT}:shop", "--each", lines(tmp_path, *rows), "--id", "batch", "--db", "db")
    assert (done.code, says in done.err) == (2, True), done
    assert not (tmp_path / "db").exists()


def test_a_batch_without_ids_could_not_be_repeated(cli: Cli, tmp_path: Path) -> None:
    done = cli("run", f"{AGENT}:shop", "--each", lines(tmp_path, {"order": "tea"}), "--db", "db")
    assert (done.code, "has no id: give --id PREFIX" in done.err) == (2, True)


def test_what_was_run_is_as_of_its_last_record(cli: Cli) -> None:
    ran = cli("run", f"{AGENT}:shop", "tea", "--id", "a", "--json", "--db", "db")
    end = cli("runs", "--json", "--db", "db").envelope["as_of"]["feed"]
    assert ran.envelope["as_of"]["feed"] == end > 0
    left = cli("run", f"{AGENT}:shop", "tea", "--id", "b", "--detach", "--json", "--db", "db")
    assert left.envelope["as_of"]["feed"] == end + 1
    each = cli(
        "run", f"{AGENT}:shop", "--each", "-", "--json", "--db", "db", stdin='{"id": "c", "input": {"order": "x"}}'
    )
    assert each.envelope["as_of"]["feed"] == cli("runs", "--json", "--db", "db").envelope["as_of"]["feed"] > end + 1
    assert cli("run", f"{AGENT}:shop", "tea", "--json", "--db", "memory:").envelope["as_of"]["feed"] == 0


def test_an_empty_place_to_go_on_from_is_refused(cli: Cli, waiting: Path) -> None:
    for words in (("runs",), ("inbox",), ("intents",), ("log", "tail")):
        done = cli(*words, "--after", "", "--db", waiting)
        assert (done.code, "--after is empty" in done.err) == (2, True), done
