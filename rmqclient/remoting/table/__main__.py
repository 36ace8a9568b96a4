"""``python -m rmqclient.remoting.table``: print the table as a page of Markdown, which is ``docs/remoting.md``."""

from __future__ import annotations

import sys

from rmqclient.remoting.table.page import page

if __name__ == "__main__":
    sys.stdout.write(page())
