"""From what a person types to an App: what is found, and one line with a cure for what is not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient import App
from rmqclient.workers import loading
from rmqclient.workers.loading import TargetError, load_app, of_groups

SHOP = """
from rmqclient import App

class holder:
    app = App("here")

app = holder.app
number = 7

@app.handler("orders", group="billing")
def bill(message):
    pass
"""


MISTAKEN = """from rmqclient import App, RetryPolicy, Suspend
app = App("here")
class Order: ...

"""
BOX = "import dataclasses\n@dataclasses.dataclass\nclass Box:\n    inner: 'Nothing'\n"
LATER = BOX.replace("Nothing", "Inner") + "@dataclasses.dataclass\nclass Inner: ...\n"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and Path(file).is_relative_to(tmp_path):
            del sys.modules[name]


def write(path: Path, text: str = SHOP) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "target", ["shop_one:app", "shop_one:holder.app", "shop_one", "shop_one.py:app", "./shop_one.py"]
)
def test_an_app_of_the_working_directory_is_found(directory: Path, target: str) -> None:
    write(directory / "shop_one.py")
    app = load_app(target)
    assert [handler.topic for handler in app.handlers] == ["orders"]


def test_a_file_elsewhere_is_imported_under_a_name_that_workers_can_import_too(directory: Path) -> None:
    write(directory / "src" / "shop_two.py")
    app = load_app("src/shop_two.py:app")
    assert app.handlers[0].function.__module__ == "shop_two"
    assert str(directory / "src") in sys.path


def test_a_file_in_a_package_keeps_the_name_of_its_package(directory: Path) -> None:
    write(directory / "src" / "firm" / "__init__.py", "")
    write(directory / "src" / "firm" / "shop.py", "from firm import other\n" + SHOP)
    write(directory / "src" / "firm" / "other.py", "")
    app = load_app("src/firm/shop.py:app")
    assert app.handlers[0].function.__module__ == "firm.shop"


def cure(target: str) -> str:
    with pytest.raises(TargetError) as caught:
        load_app(target)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_module_that_is_not_there(directory: Path) -> None:
    write(directory / "shop_three.py")
    assert "no module shop_tree" in cure("shop_tree:app")
    assert "did you mean shop_three?" in cure("shop_tree:app")


def test_a_file_that_is_not_there(directory: Path) -> None:
    write(directory / "shop_four.py")
    assert "did you mean shop_four.py?" in cure("shop_for.py:app")


def test_a_name_that_is_none() -> None:
    assert "write module:attribute" in cure(":app")
    assert "write module:attribute" in cure(".shop:app")


def test_an_import_inside_the_module_that_is_not_there(directory: Path) -> None:
    write(directory / "shop_five.py", "import not_installed_anywhere\n")
    text = cure("shop_five:app")
    assert "importing shop_five failed: ModuleNotFoundError: No module named 'not_installed_anywhere'" in text
    assert "install it" in text


def test_a_module_that_fails_says_where(directory: Path) -> None:
    path = write(directory / "shop_six.py", "\n\nraise KeyError('ORDERS_URL')\n")
    assert cure("shop_six:app") == f"importing shop_six failed: KeyError: 'ORDERS_URL' ({path}, line 3)"


@pytest.mark.parametrize(
    ("name", "lines", "line", "words"),
    [
        ("option", "@app.handler('o', group='g', threads=0)\ndef bill(order): ...\n", 5, "threads=0"),
        ("name", "@app.handler('o', group='a b')\ndef bill(order): ...\n", 5, "a b"),
        ("type", "@app.handler('o', group='g')\ndef bill(order: Order): ...\n", 5, "shop_type:bill"),
        ("parameters", "@app.handler('o', group='g')\ndef bill(a: int, b: int): ...\n", 5, "shop_parameters:bill"),
        ("undefined", "@app.handler('o', group='g')\ndef bill(order: 'Ordr'): ...\n", 5, "shop_undefined:bill"),
        ("inside", "@app.handler('o', group='g')\ndef bill(order: 'Box'): ...\n" + BOX, 5, "shop_inside:bill"),
        ("crontab", "@app.schedule('61 * * * *', topic='o')\ndef tick(): ...\n", 5, "61 * * * *"),
        ("dataclass", "import dataclasses\ndataclasses.replace(Suspend(1), pause=-1)\n", 6, "replace"),
        ("retry", "RetryPolicy(\n    max_retries=-1,\n)\n", 5, "max_retries=-1"),
        ("table", "app.table('prices', value_type=Order)\n", 5, "value_type"),
    ],
)
def test_a_mistake_is_shown_where_the_application_made_it(
    directory: Path, name: str, lines: str, line: int, words: str
) -> None:
    path = write(directory / f"shop_{name}.py", MISTAKEN + lines)
    text = cure(f"shop_{name}:app")
    assert words in text
    assert text.endswith(f"({path}, line {line})")


def test_a_mistake_in_a_package_that_is_installed_is_shown_there(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "_INSTALLED", (f"{directory}/",))
    path = write(directory / "shop_installed.py", MISTAKEN + "@app.handler('o', group='g', threads=0)\ndef f(m): ...\n")
    assert f"({path}, line 5)" in cure("shop_installed:app")


def test_a_class_that_a_later_line_makes_whole_is_no_mistake(directory: Path) -> None:
    write(
        directory / "shop_later.py",
        MISTAKEN + "@app.handler('o', group='g')\ndef f(m: 'Box'): ...\n" + LATER,
    )
    assert len(load_app("shop_later:app").handlers) == 1


def test_a_module_that_exits_is_a_module_that_fails(directory: Path) -> None:
    write(directory / "shop_seven.py", "raise SystemExit(0)\n")
    assert "importing shop_seven failed: SystemExit" in cure("shop_seven:app")


def test_a_syntax_error_says_where(directory: Path) -> None:
    path = write(directory / "shop_eight.py", "\ndef (\n")
    assert f"({path}, line 2)" in cure("shop_eight:app")


def test_an_attribute_that_is_not_there_and_one_like_it(directory: Path) -> None:
    write(directory / "shop_nine.py")
    assert cure("shop_nine:ap") == "shop_nine has no attribute ap; did you mean app?"
    assert cure("shop_nine:zzz") == "shop_nine has no attribute zzz; its Apps: app"


def test_an_attribute_that_is_no_app(directory: Path) -> None:
    write(directory / "shop_ten.py")
    assert cure("shop_ten:number") == "shop_ten:number is a int, not an App; its Apps: app"


def test_two_apps_and_no_attribute(directory: Path) -> None:
    write(directory / "shop_eleven.py", SHOP + "\nother = App('there')\n")
    assert cure("shop_eleven") == "shop_eleven has 2 Apps: write shop_eleven:attribute; its Apps: app, other"


def test_an_app_without_a_handler(directory: Path) -> None:
    write(directory / "shop_twelve.py", "from rmqclient import App\napp = App('here')\n")
    assert "has no handler: decorate a function" in cure("shop_twelve:app")


def test_a_file_whose_name_belongs_to_another_module(directory: Path) -> None:
    write(directory / "sub" / "json.py")
    assert "rename the file" in cure("sub/json.py:app")


# --- groups ------------------------------------------------------------------------------------------------------


@pytest.fixture
def app() -> App:
    made = App("here")
    for topic, group in (("orders", "billing"), ("refunds", "billing"), ("orders", "stock")):
        made.handler(topic, group=group)(lambda _: None)
    made.schedule("* * * * *", topic="reports", name="report")(lambda: None)
    return made


def test_the_handlers_of_chosen_groups_are_run_with_all_schedules(app: App) -> None:
    chosen = of_groups(app, ["billing"])
    assert [handler.topic for handler in chosen.handlers] == ["orders", "refunds"]
    assert (chosen.crons, chosen.root) == (app.crons, app.root)
    assert len(app.handlers) == 3


def test_without_a_choice_every_handler_is_run(app: App) -> None:
    assert of_groups(app, ()) is app


def test_a_group_without_a_handler_is_refused_with_those_that_there_are(app: App) -> None:
    with pytest.raises(TargetError, match=r"no handler has the group 'biling'; did you mean billing.*billing, stock"):
        of_groups(app, ["stock", "biling"])
