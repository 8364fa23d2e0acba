"""Where the helper of this machine listens, found as the commands of `verbena` find it."""

from __future__ import annotations

import os
import tomllib

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


def usual_directory() -> str:
    """The user's own directory for sockets, where a helper is that was told nothing else."""
    user = os.geteuid()
    named, of_the_user = os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{user}"
    if os.path.isabs(named) or os.path.isdir(of_the_user):
        return os.path.join(named if os.path.isabs(named) else of_the_user, "verbena")
    return f"/tmp/verbena-{user}"


def http_socket() -> str:
    """The same helper's socket for HTTP."""
    path = socket() or os.path.join(usual_directory(), "local.sock")
    return f"{path.removesuffix('.sock')}.http.sock"
