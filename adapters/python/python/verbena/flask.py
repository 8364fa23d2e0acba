"""Flask applications behind `verbena proxy`: every request that writes is announced.

    app = Flask(__name__)
    verbena.flask.announce(app)

It wraps `app.wsgi_app`, so it is outside of all that Flask does with a request, teardown too: call it last.
"""

from __future__ import annotations

from typing import Any, TypeVar

from . import wsgi
from ._updates import Updates
from ._writes import Touching, everything

__all__ = ["announce"]

App = TypeVar("App")


def announce(app: App, updates: Updates | str | None = None, touching: Touching = everything) -> App:
    """Puts `verbena.wsgi.Announce` around the application, and gives the application. `touching` gets the WSGI environment."""
    its: Any = app
    its.wsgi_app = wsgi.Announce(its.wsgi_app, updates, touching)
    return app
