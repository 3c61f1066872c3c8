"""What a run waits for: time, people, signals, children, and code that was not declared.

Each is awaited as it stands (`await poimen.sleep(5)`), has the same face as `.aio`, and a blocking one
as `.sync`. This module must never know how a wait is carried out; it keeps the invariant that both
colours say the same.

Source: design api.md, "Inside a run".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar, final, overload

from poimen.later import not_built

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from poimen.declare.shapes import Call
    from poimen.declare.specs import Budget, Seconds
    from poimen.effects import Effect
    from poimen.engine.surface.inside import Json

T = TypeVar("T")


@final
class Sleep:
    """A durable sleep: it goes on while no process runs."""

    __slots__ = ()

    def __call__(self, seconds: Seconds, /) -> Coroutine[Any, Any, None]:
        """Sleep.

        Arguments:
            seconds: a number, or a timedelta.

        Raises:
            NotBuiltYet: always, in this version.
        """
        not_built("sleep")

    def aio(self, seconds: Seconds, /) -> Coroutine[Any, Any, None]:
        """The awaitable face."""
        return self(seconds)

    def sync(self, seconds: Seconds, /) -> None:
        """The blocking face."""
        not_built("sleep")


@final
class Ask:
    """A question to a person, answered once."""

    __slots__ = ()

    @overload
    def __call__(
        self,
        question: str,
        answer: type[T],
        /,
        *,
        key: str = ...,
        timeout: Seconds = ...,
        default: T = ...,
        assignee: str = ...,
        acts: bool = ...,
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def __call__(
        self,
        question: str,
        /,
        *,
        options: Sequence[T],
        key: str = ...,
        timeout: Seconds = ...,
        default: T = ...,
        assignee: str = ...,
        acts: bool = ...,
    ) -> Coroutine[Any, Any, T]: ...
    def __call__(self, *_args: Any, **_settings: Any) -> Any:
        """Ask.

        Arguments:
            question: the text that is shown.
            answer: the type of the answer; or instead `options`, what may be chosen.
            key: names the question's step.
            timeout: after that the answer is `default`, or `TimeoutError` is raised.
            assignee: who is asked.
            acts: whether the person does something in the world by answering.

        Raises:
            NotBuiltYet: always, in this version.
        """
        not_built("ask")

    @overload
    def aio(
        self,
        question: str,
        answer: type[T],
        /,
        *,
        key: str = ...,
        timeout: Seconds = ...,
        default: T = ...,
        assignee: str = ...,
        acts: bool = ...,
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def aio(
        self,
        question: str,
        /,
        *,
        options: Sequence[T],
        key: str = ...,
        timeout: Seconds = ...,
        default: T = ...,
        assignee: str = ...,
        acts: bool = ...,
    ) -> Coroutine[Any, Any, T]: ...
    def aio(self, *_args: Any, **_settings: Any) -> Any:
        """The awaitable face."""
        not_built("ask")

    @overload
    def sync(
        self,
        question: str,
        answer: type[T],
        /,
        *,
        key: str = ...,
        timeout: Seconds = ...,
        default: T = ...,
        assignee: str = ...,
        acts: bool = ...,
    ) -> T: ...
    @overload
    def sync(
        self,
        question: str,
        /,
        *,
        options: Sequence[T],
        key: str = ...,
        timeout: Seconds = ...,
        default: T = ...,
        assignee: str = ...,
        acts: bool = ...,
    ) -> T: ...
    def sync(self, *_args: Any, **_settings: Any) -> Any:
        """The blocking face."""
        not_built("ask")


@final
class Receive:
    """A signal sent to the run from outside."""

    __slots__ = ()

    def __call__(self, name: str, type: type[T], /, *, timeout: Seconds | None = None) -> Coroutine[Any, Any, T]:  # noqa: A002
        """Wait for the next signal of a name.

        Arguments:
            name: of the signal.
            type: of its value.
            timeout: after that `TimeoutError` is raised.

        Raises:
            NotBuiltYet: always, in this version.
        """
        not_built("receive")

    def aio(self, name: str, type: type[T], /, *, timeout: Seconds | None = None) -> Coroutine[Any, Any, T]:  # noqa: A002
        """The awaitable face."""
        not_built("receive")

    def sync(self, name: str, type: type[T], /, *, timeout: Seconds | None = None) -> T:  # noqa: A002
        """The blocking face."""
        not_built("receive")


@final
class Child:
    """Another run, started and awaited by this one."""

    __slots__ = ()

    def __call__(
        self,
        call: Call[T],
        /,
        *,
        run_id: str | None = None,
        timeout: Seconds | None = None,
        budget: Budget | None = None,
    ) -> Coroutine[Any, Any, T]:
        """Start a run and wait for its result.

        Arguments:
            call: what is to be run.
            run_id: of the child; derived from this run by default.
            timeout: of the child.
            budget: of the child, within that of this run.

        Raises:
            NotBuiltYet: always, in this version.
        """
        not_built("child")

    def aio(
        self,
        call: Call[T],
        /,
        *,
        run_id: str | None = None,
        timeout: Seconds | None = None,
        budget: Budget | None = None,
    ) -> Coroutine[Any, Any, T]:
        """The awaitable face."""
        not_built("child")

    def sync(
        self,
        call: Call[T],
        /,
        *,
        run_id: str | None = None,
        timeout: Seconds | None = None,
        budget: Budget | None = None,
    ) -> T:
        """The blocking face."""
        not_built("child")


@final
class Perform:
    """The same gate for code that was not declared: adapters."""

    __slots__ = ()

    def __call__(
        self,
        name: str,
        body: Callable[[], Awaitable[T]],
        /,
        *,
        effect: Effect,
        args: Json,
        key: str | None = None,
        version: str | None = None,
        summary: str | None = None,
    ) -> Coroutine[Any, Any, T]:
        """Perform one effect.

        Arguments:
            name: under which it is recorded; numbered in the order of the calls.
            body: does it; called by the gate.
            effect: what may be done with it after a crash.
            args: what it is about, recorded and compared.
            key: names its step.
            version: free text, recorded.
            summary: for people.

        Raises:
            NotBuiltYet: always, in this version.
        """
        not_built("perform")

    def aio(
        self,
        name: str,
        body: Callable[[], Awaitable[T]],
        /,
        *,
        effect: Effect,
        args: Json,
        key: str | None = None,
        version: str | None = None,
        summary: str | None = None,
    ) -> Coroutine[Any, Any, T]:
        """The awaitable face."""
        not_built("perform")

    def sync(
        self,
        name: str,
        body: Callable[[], T],
        /,
        *,
        effect: Effect,
        args: Json,
        key: str | None = None,
        version: str | None = None,
        summary: str | None = None,
    ) -> T:
        """The blocking face."""
        not_built("perform")


sleep: Final = Sleep()
ask: Final = Ask()
receive: Final = Receive()
child: Final = Child()
perform: Final = Perform()
