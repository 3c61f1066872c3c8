"""From a recorded name back to the code."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
import textwrap
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

import poimen
from poimen import effects
from poimen.declare import modules
from poimen.declare.registry import Registry
from poimen.declare.specs import spec_of
from tests.declare import samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Write = Any

TOOL = """
import poimen
from poimen import effects

@poimen.tool(effect=effects.READ)
def {name}(x: int) -> int:
    return x
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Writes modules that can be imported for the length of a test."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))

    def writing(name: str, text: str) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
        importlib.invalidate_caches()
        return file

    yield writing
    for name in set(sys.modules) - before:
        del sys.modules[name]


def names(registry: Registry) -> list[str]:
    return sorted(spec.name for spec in registry)


def test_a_module_gives_what_it_declares() -> None:
    registry = Registry.of([samples])
    assert names(registry) == sorted(
        ["charge", "refund", "look-up", "chat", "tidy", "wrapped", "early", "shop", "shop_sync", "cheap"]
    )
    assert len(registry) == 10
    assert registry.tool("tool", "charge") is spec_of(samples.charge)
    assert registry.tool("tool", "look-up") is spec_of(samples.look)
    assert registry.tool("model", "chat") is spec_of(samples.chat)
    assert registry.tool("step", "tidy") is spec_of(samples.tidy)
    assert registry.workflow("shop") is spec_of(samples.shop)
    assert registry.verifier("cheap") is spec_of(samples.cheap)


def test_a_name_of_another_kind_is_not_found() -> None:
    registry = Registry.of(["tests.declare.samples"])
    assert registry.tool("step", "charge") is None
    assert registry.tool("tool", "look") is None
    assert registry.workflow("charge") is None
    assert registry.verifier("shop") is None


def test_a_call_leads_to_what_its_workflow_can_name() -> None:
    registry = Registry.of_call(samples.shop(samples.Order("a", 1)))
    assert registry.workflow("shop") is spec_of(samples.shop)
    assert registry.tool("tool", "charge") is spec_of(samples.charge)


def test_a_call_of_a_local_workflow_leads_to_local_tools() -> None:
    @poimen.tool(effect=effects.READ)
    def back(x: int) -> int:
        return x

    @poimen.tool(effect=effects.READ, undo=back)
    def inner(x: int) -> int:
        return x

    @poimen.step
    def outer(x: int) -> int:
        return inner(x)

    @poimen.workflow
    async def local(x: int) -> int:
        return await outer.aio(x)

    registry = Registry.of_call(local(1))
    assert {"inner", "outer", "local", "back"} <= set(names(registry))


def test_what_is_imported_from_elsewhere_is_found(write: Write) -> None:
    write("far.py", TOOL.format(name="far_tool"))
    write("deep/__init__.py", "from deep import inside")
    write("deep/inside.py", TOOL.format(name="deep_tool"))
    write("lists.py", TOOL.format(name="listed") + "ALL = [listed]\nBY = {'l': listed}\n")
    write("sets.py", TOOL.format(name="in_a_set") + "TOOLS = poimen.Toolset(in_a_set)\n")
    write("below.py", TOOL.format(name="below_tool"))
    write(
        "middle.py",
        """
        import poimen, below
        @poimen.step
        def middle(x: int) -> int:
            return below.below_tool(x)
        """,
    )
    write(
        "app.py",
        """
        import deep
        import poimen
        from far import far_tool as renamed
        from lists import ALL
        from middle import middle
        from sets import TOOLS

        @poimen.workflow
        def app(x: int) -> int:
            return renamed(x)
        """,
    )
    app = importlib.import_module("app")
    expected = ["app", "below_tool", "deep_tool", "far_tool", "in_a_set", "listed", "middle"]
    assert names(Registry.of_call(app.app(1))) == expected
    assert names(Registry.of(["app"])) == expected


def test_a_body_that_is_decorated_elsewhere_belongs_to_its_author(write: Write) -> None:
    write("far.py", TOOL.format(name="far_tool"))
    write(
        "logs.py",
        """
        import functools

        def logged(fn):
            @functools.wraps(fn)
            def inner(*args, **kwargs):
                return fn(*args, **kwargs)
            return inner
        """,
    )
    file = write(
        "author.py",
        """
        from __future__ import annotations
        import far, logs, poimen

        @poimen.workflow
        @logs.logged
        def author(x: int, y: Later = None) -> int:
            return far.far_tool(x)

        class Later: ...
        """,
    )
    author: Any = importlib.import_module("author")
    spec = spec_of(author.author)
    assert spec is not None
    assert (spec.file, spec.line, spec.module) == (str(file), 5, "author")
    assert author.author.__globals__ is vars(author)
    assert list(inspect.signature(author.author).parameters) == ["x", "y"]
    registry = Registry()
    registry.add(spec)
    assert names(registry) == ["author", "far_tool"]


def test_two_of_one_name_are_refused_naming_both_files(write: Write) -> None:
    write("one.py", TOOL.format(name="same"))
    write("two.py", TOOL.format(name="same"))
    with pytest.raises(poimen.BadDeclaration) as refused:
        Registry.of(["one", "two"])
    text = str(refused.value)
    assert "'same'" in text
    assert "one.py:5" in text
    assert "two.py:5" in text
    assert "name=" in text


def test_two_of_one_name_in_different_runtimes_are_strangers(write: Write) -> None:
    write("one.py", TOOL.format(name="same"))
    write("two.py", TOOL.format(name="same"))
    first, second = Registry.of(["one"]), Registry.of(["two"])
    assert first.tool("tool", "same") is not second.tool("tool", "same")


def test_tools_models_and_steps_share_their_names(write: Write) -> None:
    write("one.py", TOOL.format(name="same"))
    write("two.py", "import poimen\n@poimen.step\ndef same(x: int) -> int:\n    return x\n")
    with pytest.raises(poimen.BadDeclaration, match=r"the tool at .*one\.py:5 and the step at .*two\.py:2"):
        Registry.of(["one", "two"])


def test_a_workflow_may_be_called_as_a_tool_is(write: Write) -> None:
    write("one.py", TOOL.format(name="same"))
    write("two.py", "import poimen\n@poimen.workflow\ndef same(x: int) -> int:\n    return x\n")
    assert len(Registry.of(["one", "two"])) == 2


def test_products_of_a_factory_need_names_of_their_own(write: Write) -> None:
    factory = """
        import poimen
        from poimen import effects

        def make(url: str, name: str = "post"):
            @poimen.tool(effect=effects.READ, name=name)
            def post(x: int) -> str:
                return url
            return post
    """
    write("factory.py", factory + "\n        a, b = make('a'), make('b')\n")
    with pytest.raises(poimen.BadDeclaration, match="two declarations are called 'post'"):
        Registry.of(["factory"])
    write("named.py", factory + "\n        a, b = make('a', 'post-a'), make('b', 'post-b')\n")
    assert names(Registry.of(["named"])) == ["post-a", "post-b"]


def test_a_module_that_is_loaded_again_replaces_its_own(write: Write) -> None:
    file = write("again.py", TOOL.format(name="same"))
    module = importlib.import_module("again")
    registry = Registry.of([module])
    first = registry.tool("tool", "same")
    file.write_text("# one line more, so that the place is another\n" + file.read_text())
    importlib.reload(module)
    registry.add_module(module)
    second = registry.tool("tool", "same")
    assert second is not None
    assert first is not second
    assert second is spec_of(module.same)


def test_a_cell_that_is_run_again_replaces_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    cell = TOOL.format(name="cell")
    registry = Registry()
    found = []
    for number in (1, 2):
        exec(compile(cell, f"<ipython-input-{number}>", "exec"), vars(notebook))
        registry.add_module(notebook)
        found.append(registry.tool("tool", "cell"))
    assert found[0] is not found[1]
    assert found[1] is spec_of(vars(notebook)["cell"])
    assert found[1] is not None
    assert found[1].file == "<ipython-input-2>"


def test_an_old_version_that_is_kept_beside_the_new_one_is_refused(write: Write) -> None:
    text = TOOL.format(name="same")
    write("aliased.py", text + "old = same\n" + text)
    with pytest.raises(poimen.BadDeclaration, match="two declarations are called 'same'"):
        Registry.of(["aliased"])


def test_a_script_that_is_imported_as_well_is_one(write: Write) -> None:
    write("script.py", TOOL.format(name="same"))
    main = modules.load("script")
    spec = importlib.util.spec_from_file_location("script_again", str(main.__file__))
    assert spec is not None
    assert spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    registry = Registry.of([main, again])
    assert registry.tool("tool", "same") is spec_of(again.same)


def test_what_is_added_twice_is_there_once() -> None:
    registry = Registry.of([samples, samples])
    spec = spec_of(samples.charge)
    assert spec is not None
    registry.add(spec)
    assert len(registry) == 10


# ---- modules -------------------------------------------------------------------------------------------------------


def test_a_module_is_loaded_by_name_or_as_a_file(write: Write) -> None:
    file = write("plain.py", "x = 1")
    module = modules.load("plain")
    assert module.x == 1
    assert modules.load(str(file)) is module
    assert modules.load(module) is module


def test_a_file_that_can_be_imported_is_imported_under_its_name(write: Write) -> None:
    file = write("importable.py", "x = 1")
    assert modules.load(str(file)) is importlib.import_module("importable")


def test_a_file_that_cannot_be_imported_is_loaded_as_a_module(write: Write, tmp_path: Path) -> None:
    file = write("elsewhere/my-agent.py", TOOL.format(name="dashed"))
    module = modules.load(str(file))
    assert modules.load(str(file)) is module
    assert sys.modules[module.__name__] is module
    assert names(Registry.of([str(file)])) == ["dashed"]


def test_a_file_named_as_another_module_gets_a_name_of_its_own(write: Write) -> None:
    import json

    file = write("elsewhere/json.py", "mine = 1")
    module = modules.load(str(file))
    assert module.mine == 1
    assert sys.modules["json"] is json
    assert module.__name__.startswith("json_")


@pytest.mark.parametrize(
    "given", ["nowhere", "tests.nowhere", "nowhere.at.all", "nowhere.py", "..relative", "", "a..b"]
)
def test_what_is_not_there_is_not_found(given: str) -> None:
    with pytest.raises(poimen.NotFound, match=r"there is no|is not the name"):
        modules.load(given)


def test_what_goes_wrong_inside_a_module_comes_as_it_is(write: Write) -> None:
    file = write("broken.py", "raise RuntimeError('inside')")
    write("lacks.py", "import not_installed_anywhere")
    for given in ("broken", str(file)):
        with pytest.raises(RuntimeError, match="inside"):
            modules.load(given)
        assert "broken" not in sys.modules
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        modules.load("lacks")


MAIN = """
import sys
import poimen
from poimen.declare import modules

x = []

if __name__ == "__main__":
    found = modules.load(sys.argv[1])
    print(found is sys.modules["__main__"])
"""


@pytest.mark.parametrize("as_module", [True, False])
def test_the_program_itself_is_not_loaded_a_second_time(write: Write, tmp_path: Path, as_module: bool) -> None:
    file = write("program.py", MAIN)
    how = ["-m", "program", "program"] if as_module else [str(file), str(file)]
    told = subprocess.run([sys.executable, *how], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert told.stdout == "True\n"
