"""Faults in the dashboard: who may look and act, and that what it shows stays text."""

from __future__ import annotations

from tests.planted.fault import Fault

GATE = "tests/dashboard/test_gate.py"
PAGES = "tests/dashboard/test_pages.py"

FAULTS = [
    Fault(
        name="every client is let in",
        file="rmqclient/dashboard/gate.py",
        old="        if not self._guarded:\n            return self._locked\n",
        new="",
        tests=GATE,
        select="without_the_token",
    ),
    Fault(
        name="a cookie need not be signed here",
        file="rmqclient/dashboard/gate.py",
        old="return browser if browser and _same(signature, _signed(self._token, browser)) else None",
        new="return browser or None",
        tests=GATE,
        select="cookie_that_was_not_signed",
    ),
    Fault(
        name="a page of elsewhere may read",
        file="rmqclient/dashboard/gate.py",
        old="if origin is not None and _host_of(origin) != host:",
        new="if origin is None and _host_of(origin) != host:",
        tests=GATE,
        select="foreign_origin",
    ),
    Fault(
        name="any name of the host is taken",
        file="rmqclient/dashboard/gate.py",
        old="        if host not in self._hosts and _name_of(host) not in self._hosts:\n",
        new="        if not self._hosts:\n",
        tests=GATE,
        select="foreign_host",
    ),
    Fault(
        name="actions are always allowed",
        file="rmqclient/dashboard/desk/forms.py",
        old="        if not desk_of(request).allow_actions:\n",
        new="        if False:\n",
        tests=GATE,
        select="without_allow_actions",
    ),
    Fault(
        name="a form from elsewhere is taken",
        file="rmqclient/dashboard/desk/forms.py",
        old='        if not hmac.compare_digest(form.one("form_token").encode(), request.state.form_token.encode()):\n',
        new="        if False:\n",
        tests=GATE,
        select="without_the_form_token",
    ),
    Fault(
        name="bodies are markup",
        file="rmqclient/dashboard/desk/rendering.py",
        old="            autoescape=True,\n",
        new="            autoescape=False,\n",
        tests=PAGES,
        select="stay_text",
    ),
    Fault(
        name="all letters of a group are replayed",
        file="rmqclient/dashboard/looking/issues.py",
        old="    return Selection(among=frozenset(among), done=True)\n",
        new="    return Selection()\n",
        tests=PAGES,
        select="only_the_ticked",
    ),
]
