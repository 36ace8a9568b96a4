"""Dashboard: a store as pages in a browser, as a program of its own or mounted into an application.

================  =====================================================================================
``application``   :class:`Dashboard`, an ASGI application: which page answers which path
``gate``          who may ask: token, cookie, Host, Origin, and the headers of every answer
``serving``       ``rmq dashboard``: the address, the token, uvicorn
``desk/``         what pages work with: the store, samples and events, templates, filters and forms
``looking/``      reading: samples, search, bodies, dead letters by reason
``pages/``        a file for each noun: what it shows, and what it changes
================  =====================================================================================

Only this room imports Starlette, Jinja2 and uvicorn, and no other room imports it. Pages are rendered here, without a
build step; ``static/vendor/vendor.json`` names the two libraries that a browser gets, with versions and digests.
"""

from __future__ import annotations

from rmqclient.errors import NotInstalled

try:
    import jinja2 as _jinja2
    import starlette as _starlette
except ImportError as _error:
    raise NotInstalled(f"{_error.name} is not installed: pip install 'rmqclient[dashboard]'") from None

from rmqclient.dashboard.application import Dashboard, dashboard

__all__ = ["Dashboard", "dashboard"]

del _jinja2, _starlette
