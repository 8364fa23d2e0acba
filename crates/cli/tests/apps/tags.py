"""With the argument `tags` a shop's statements say for which request they are, as `verbena.database` has it.

The package's module comes from its source: the package itself may not be built here.
"""

import contextlib
import importlib.util
import pathlib
import sys


def _module():
    source = pathlib.Path(__file__).resolve().parents[4] / "adapters/python/python/verbena/database.py"
    spec = importlib.util.spec_from_file_location("verbena_database", source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_tags = _module() if "tags" in sys.argv else None


def cursor_class(base):
    return _tags.cursor(base) if _tags else base


def of_request(headers):
    return _tags.request(headers.get(_tags.FIELD)) if _tags else contextlib.nullcontext()
