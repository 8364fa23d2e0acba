"""What a request of Django reads and writes, from the statements that it sends to its databases.

Names: `shop_product:7` is a row, `shop_product` all that a list shows, `shop_product:*` every row at once, `shop_product:+` rows that are not there yet.

    a page that reads          depends on                        a statement that writes      touches
    the row 7 by its key       shop_product:7, shop_product:*    the row 7 by its key         shop_product:7, shop_product
    a row that is not there    shop_product:+ besides            inserts                      shop_product:+, shop_product
    anything else of it        shop_product                      anything else of it          shop_product:*, shop_product:+, shop_product

An update of what a statement touches begins before the statement runs, and ends when the request has: after
COMMIT. Whatever is not understood is everything.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from ._errors import Error
from ._updates import EVERYTHING, Touched, Update, Updates, names_of

_record: contextvars.ContextVar[Record | None] = contextvars.ContextVar("verbena_models", default=None)

# Names as Django and people write them, in the quotes of all databases.
_NAME: Final = r"""[`"]?(\w+)[`"]?"""
_WHERE: Final = rf"""{_NAME}\.{_NAME} (?:= %s|IN \((%s(?:, %s)*)\))"""
_READS_ROWS: Final = re.compile(rf"""SELECT .*? FROM {_NAME} WHERE {_WHERE}(?: ORDER BY [^()]*)?(?: LIMIT \d+)?(?: FOR UPDATE)?""")
_UPDATES_ROWS: Final = re.compile(rf"""UPDATE {_NAME} SET (.*) WHERE {_WHERE}""")
_DELETES_ROWS: Final = re.compile(rf"""DELETE FROM {_NAME} WHERE {_WHERE}""")
_INSERTS: Final = re.compile(rf"""INSERT (?:OR )?(?:IGNORE )?INTO {_NAME} """)
# What follows FROM and the like, up to where it is clear whether a list of tables goes on.
_TABLES: Final = re.compile(r"""\b(?:FROM|JOIN|INTO|UPDATE|USING)\s+(?:ONLY\s+)?(?:[`"]?(\w+)[`"]?(?:\s+(?:AS\s+)?(?!(?:JOIN|FROM|INTO|UPDATE|USING)\b)[`"]?\w+[`"]?)?(\s*,)?|(\(\s*SELECT)\b)?""", re.IGNORECASE)
_CONTROL: Final = re.compile(r"(?:SAVEPOINT|RELEASE|ROLLBACK|BEGIN|COMMIT|START TRANSACTION|SET|SHOW|PRAGMA)\b", re.IGNORECASE)
_WRITES: Final = re.compile(r"\b(?:INSERT|UPDATE|DELETE|REPLACE|MERGE|TRUNCATE|CREATE|ALTER|DROP|CALL|DO|EXEC|EXECUTE|LOAD|COPY)\b", re.IGNORECASE)
_KEY: Final = re.compile(r"[a-z0-9_-]{1,64}")


class Record:
    """One request, or one block of `announced`."""

    def __init__(self, updates: Updates) -> None:
        self._updates = updates
        self._begun: list[Update] = []
        self._held: set[str] = set()
        self._holds_everything = False
        self._reads: set[str] = set()
        self._asked: dict[str, str] = {}
        self._found: list[Any] = []
        self._reads_everything = False
        #: Why a statement was not run.
        self.refused: Error | None = None

    @property
    def has_begun(self) -> bool:
        return bool(self._begun)

    def names(self) -> list[str] | None:
        """What the page depends on; None for everything."""
        if self._reads_everything:
            return None
        found = {f"{one._meta.db_table}:{_key(one._meta, one.pk)}" for one in self._found if not one._state.adding}
        missing = {f"{table}:+" for name, table in self._asked.items() if name not in found}
        return sorted(self._reads | missing | set(self._asked) | {f"{table}:*" for table in self._asked.values()})

    def sees(self, sql: str, params: Any) -> None:
        """A statement is about to run. Raises if the update that it needs cannot begin."""
        tables = _Tables.of_the_project()
        statement = " ".join(sql.split()).rstrip("; ")
        if _CONTROL.match(statement):
            return
        if statement[:7].upper() == "SELECT ":
            self._reads_of(statement, params, tables)
            return
        if not _WRITES.search(statement):
            self._reads_everything = True
            return
        # A write may say what it has found there (RETURNING).
        mentioned = tables.mentioned(statement)
        self._depends_on(mentioned)
        touched = tables.touched_by(statement, params) or (mentioned and {name for table in mentioned for name in (table, f"{table}:*", f"{table}:+")})
        self._touches(touched or None)

    def _reads_of(self, statement: str, params: Any, tables: _Tables) -> None:
        rows = tables.rows(_READS_ROWS.fullmatch(statement), params, 1)
        if rows is None or statement.upper().count("SELECT ") > 1:
            self._depends_on(tables.mentioned(statement))
        else:
            self._asked.update(rows)

    def _depends_on(self, tables: set[str] | None) -> None:
        if tables is None:
            self._reads_everything = True
        else:
            # A list shows rows too, and those may be written at once.
            self._reads |= tables

    def announce(self, touched: Touched) -> None:
        """Begins an update. Raises if it cannot."""
        try:
            self._begun.append(self._updates.begin(touched))
        except Error as error:
            self.refused = error
            raise

    def _touches(self, touched: set[str] | None) -> None:
        if self._holds_everything or (touched is not None and touched <= self._held):
            return
        self.announce(EVERYTHING if touched is None else sorted(touched))
        self._holds_everything = touched is None or names_of(sorted(touched)) is None
        self._held |= touched or set()

    def sees_instance(self, instance: Any) -> None:
        """A row of a model was read, or one was made by hand."""
        if self._asked and f"{instance._meta.db_table}:{_key(instance._meta, instance.pk)}" in self._asked:
            self._found.append(instance)

    def end(self, outcome: str) -> None:
        """Ends all that was begun. Raises the first error, when all are ended."""
        first: Error | None = None
        for update in self._begun:
            if outcome != "done":
                update.end_quietly(outcome)  # type: ignore[arg-type]
                continue
            try:
                update.end("done")
            except Error as error:
                first = first or error
        if first is not None:
            raise first


class _Tables:
    """The tables of the project's models. Others are not known: views, and tables that other programs make."""

    _own: _Tables | None = None

    def __init__(self, models: Iterable[Any]) -> None:
        self._keys = {model._meta.db_table: model._meta for model in models if model._meta.managed and not model._meta.proxy}

    @classmethod
    def of_the_project(cls) -> _Tables:
        if cls._own is None:
            registered = importlib.import_module("django.apps").apps.all_models
            cls._own = cls(model for models in registered.values() for model in models.values())
        return cls._own

    def mentioned(self, statement: str) -> set[str] | None:
        """The tables of a statement; None if it may have others."""
        found = set()
        statement = statement.replace("ESCAPE '\\'", "")
        if "'" in statement or "--" in statement or "/*" in statement or "$$" in statement:
            return None
        for table, goes_on, nested in _TABLES.findall(statement):
            if goes_on or not (nested or table in self._keys):
                return None
            found |= {table} - {""}
        is_of_none = statement[:7].upper() == "SELECT " and "(" not in statement and " FROM " not in statement.upper()
        return found if found or is_of_none else None

    def rows(self, match: re.Match[str] | None, params: Any, group: int) -> dict[str, str] | None:
        """The rows that a statement names by their key alone, each with its table. None if it is no such statement. Names of its condition begin behind `group`."""
        if match is None or not isinstance(params, (list, tuple)):
            return None
        table, of, column = match[1], match[group + 1], match[group + 2]
        meta = self._keys.get(table)
        count = match[group + 3].count("%s") if match[group + 3] else 1
        if meta is None or of != table or column != meta.pk.column:
            return None
        if match[0].startswith("SELECT") and ("(" in match[0][: match.start(group + 1)] or len(params) != count):
            return None
        keys = [_key(meta, value) for value in params[-count:]]
        return None if None in keys else {f"{table}:{key}": table for key in keys}

    def touched_by(self, statement: str, params: Any) -> set[str] | None:
        """What a statement that writes touches; None if it has another form than those that are known."""
        if (match := _INSERTS.match(statement)) is not None:
            upper = statement.upper()
            known = match[1] in self._keys and not any(word in upper for word in ("ON CONFLICT", "ON DUPLICATE", " SELECT "))
            return {match[1], f"{match[1]}:+"} if known else None
        update = _UPDATES_ROWS.fullmatch(statement)
        if update is not None:
            meta = self._keys.get(update[1])
            if meta is None or re.search(rf"""[`"]?\b{meta.pk.column}\b[`"]? =""", update[2]):
                return None
        rows = self.rows(update, params, 2) or self.rows(_DELETES_ROWS.fullmatch(statement), params, 1)
        return set(rows) | set(rows.values()) if rows else None


def _key(meta: Any, value: Any) -> str | None:
    """A key as it is in a name. None if two texts could be one key to the database."""
    kind = meta.pk.get_internal_type()
    if kind in ("OneToOneField", "ForeignKey"):
        return _key(meta.pk.target_field.model._meta, value)
    if kind.endswith(("AutoField", "IntegerField")):
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else None
    if kind == "UUIDField":
        value = value.hex if isinstance(value, uuid.UUID) else str(value).replace("-", "").lower()
        return value if re.fullmatch("[0-9a-f]{32}", value) else None
    return value if kind == "CharField" and isinstance(value, str) and _KEY.fullmatch(value) else None


def begin(record: Record) -> contextvars.Token[Record | None]:
    """From here on the statements of this context are the record's."""
    return _record.set(record)


def end(token: contextvars.Token[Record | None]) -> None:
    _record.reset(token)


@contextlib.contextmanager
def announced(updates: Updates) -> Iterator[None]:
    """What is written in this block is announced, and ends with it: let transactions end inside."""
    record = Record(updates)
    token = begin(record)
    try:
        yield
    except BaseException:
        record.end("unknown")
        raise
    finally:
        end(token)
    record.end("done")


def watch() -> None:
    """Sees the statements of all connections, those that are open and those that will be."""
    db = importlib.import_module("django.db")
    importlib.import_module("django.db.backends.signals").connection_created.connect(_connected, dispatch_uid="verbena")
    importlib.import_module("django.db.models.signals").post_init.connect(_made, dispatch_uid="verbena")
    for connection in db.connections.all(initialized_only=True):
        _connected(connection=connection)


def _connected(connection: Any, **_others: Any) -> None:
    if _execute not in connection.execute_wrappers:
        connection.execute_wrappers.append(_execute)


def _made(instance: Any, **_others: Any) -> None:
    record = _record.get()
    if record is not None:
        record.sees_instance(instance)


def _execute(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
    record = _record.get()
    if record is not None:
        record.sees(str(sql), None if many else params)
    return execute(sql, params, many, context)
