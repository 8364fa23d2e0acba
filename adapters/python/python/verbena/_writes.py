"""What the middlewares have in common: which requests write, what they touch, and what a page is made of."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterable
from typing import Any, Final

from ._errors import Error
from ._updates import EVERYTHING, Touched, Updates, logger, names_of

#: What a middleware calls before a request that writes: the names that it touches, EVERYTHING, or None if the request writes nothing or brackets its write itself.
Touching = Callable[[Any], Touched | None]

#: Bytes of an answer that are read before the client gets any of it. Of a longer one the client gets all but the end before the update has ended.
READ_FIRST: Final = 64 << 10
SAFE: Final = frozenset(("GET", "HEAD", "OPTIONS", "TRACE"))
FIELD: Final = "Verbena-Dependencies"
LONGEST_FIELD: Final = 16 << 10

REFUSED: Final = b"not done: it could not be announced to the caches\n"
UNCONFIRMED: Final = b"unconfirmed: it may be done\n"

_made_of: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("verbena_made_of", default=None)


def made_of(*names: str) -> None:
    """The page that is being answered is made of what bears these names, or would show it if it were there. Without a call a page depends on everything.

    Calls add up. Raises RuntimeError outside of a request that a middleware of this package sees.
    """
    listed = _made_of.get()
    if listed is None:
        raise RuntimeError("made_of is for requests behind verbena.wsgi, verbena.asgi, verbena.django or verbena.flask")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a name of what a page is made of is text: {name!r}")
        listed.append(name)


def begin_request() -> contextvars.Token[list[str] | None]:
    """A request begins in this context: made_of works."""
    return _made_of.set([])


def end_request(token: contextvars.Token[list[str] | None]) -> None:
    """The answer's head is there."""
    _made_of.reset(token)


def field(seen: Iterable[str] = ()) -> str | None:
    """The field's value for the names of this request and those that were seen; None if there are none. An empty value is everything."""
    names = [*(_made_of.get() or ()), *seen]
    return dependency_field(names) if names else None


def dependency_field(names: Iterable[str]) -> str:
    """The field's value: a list of strings (RFC 9651); empty, which is everything, if the names cannot be written."""
    usable = names_of(names)
    if usable is None or not all(" " <= character <= "~" for name in usable for character in name):
        return ""
    quoted = ('"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"' for name in usable)
    value = ", ".join(quoted)
    return value if len(value) <= LONGEST_FIELD else ""


def everything(_request: Any) -> Touched:
    """What requests touch that nothing is said of."""
    return EVERYTHING


def touched_by(method: str, touching: Touching, request: Any) -> Touched | None:
    """What a request touches; None if there is nothing to announce."""
    return None if method in SAFE else touching(request)


def refused(error: Error) -> None:
    """A write was refused."""
    logger.warning("a write was refused because it could not be announced: %s", error)


def unconfirmed(error: Error) -> None:
    """A write is done, and its client gets an error."""
    logger.warning("a write is in the database, and its client gets an error: %s", error)


def the_helper(updates: Updates | str | None) -> Updates:
    """The helper that was named, or the usual one."""
    return updates if isinstance(updates, Updates) else Updates(updates)
