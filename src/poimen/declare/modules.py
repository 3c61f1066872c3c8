"""Loading the modules that authors name: by import name, or as a file.

This module must never know what a module is loaded for; it keeps the invariant that one file is
loaded as one module, so that what it declares is there once.

Source: design api.md, "Command line" (`MODULE:FUNC` and `FILE.py:FUNC`).
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from poimen.kernel.errors import NotFound


def load(given: str | ModuleType) -> ModuleType:
    """The module that is meant.

    Arguments:
        given: a module, the name of one, or a file (`agent.py`).

    Raises:
        NotFound: there is no such module or file. What goes wrong inside the module comes as it is.
    """
    if isinstance(given, ModuleType):
        return given
    return _from_file(Path(given)) if given.endswith(".py") else _by_name(given)


def _by_name(name: str) -> ModuleType:
    main = sys.modules.get("__main__")
    if main is not None and getattr(getattr(main, "__spec__", None), "name", None) == name:
        return main
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise NotFound(
            f"there is no module {name!r}",
            why=f"looked in {', '.join(sys.path[:3])} and what else sys.path names",
            hint="give an importable name, or a file: agent.py",
        ) from error
    except (TypeError, ValueError) as error:
        raise NotFound(f"{name!r} is not the name of a module", hint="give an importable name, or a file") from error


def _from_file(file: Path) -> ModuleType:
    path = file.resolve()
    if not path.is_file():
        raise NotFound(f"there is no file {file}", hint="give an importable name, or a file that exists")
    loaded = next((module for module in list(sys.modules.values()) if _is_of(module, path)), None)
    if loaded is not None:
        return loaded
    found = importlib.util.find_spec(path.stem) if path.stem.isidentifier() and path.stem not in sys.modules else None
    if found is not None and found.origin is not None and Path(found.origin).resolve() == path:
        return importlib.import_module(path.stem)
    return _as_module(path, free=found is None and path.stem not in sys.modules)


def _as_module(path: Path, *, free: bool) -> ModuleType:
    name = path.stem if free else f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise NotFound(f"{path} cannot be loaded as a module", hint="give a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _is_of(module: object, path: Path) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and file.endswith(path.name) and Path(file).resolve() == path
