"""Where the helper of this machine listens, found as the commands of `verbena` find it."""

from __future__ import annotations

import os
import tomllib

from ._native import usual_directory

CONFIG = "VERBENA_CONFIG"


def socket() -> str | None:
    """The socket that the configuration names: that of VERBENA_CONFIG, or of `verbena.toml` in the working directory. None if neither says where or how it is called."""
    file = os.environ.get(CONFIG)
    if file == "":
        raise ValueError(f"{CONFIG} is empty: unset it, or name a file")
    if file is None and not os.path.exists("verbena.toml"):
        return None
    with open(file or "verbena.toml", "rb") as opened:
        try:
            configured = tomllib.load(opened)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{file or 'verbena.toml'}: {error}") from error
    runtime = configured.get("node", {}).get("runtime")
    name = configured.get("cluster", {}).get("name")
    if runtime is None and name is None:
        return None
    return os.path.join(runtime or usual_directory(), f"{name or 'local'}.sock")


def http_socket() -> str:
    """The same helper's socket for HTTP."""
    path = socket() or os.path.join(usual_directory(), "local.sock")
    return f"{path.removesuffix('.sock')}.http.sock"
