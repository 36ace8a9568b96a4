"""Scenarios: a store that lives, loses its power, lives on with what an image left, and so on; each life is judged.

``python -m tests.images --seed 7 --image 1234`` does again what leads to one image, and judges that alone.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from rmqclient.store.settings.store_settings import STORE_SETTINGS_FILE
from tests.images.image import Image, draw
from tests.images.judge import RUNTIME, Judge, materialise, stale_runtime_file
from tests.images.ledger import Ledger
from tests.images.timeline import FIRST
from tests.images.workload import CONFIG, Life

LIVES = 4
IMAGES_PER_LIFE = 250
"""Of a long run; a short one sees more lives with fewer images of each."""

_OPERATIONS = (15, 60)
_SIZES = ((17,), (200,), (400,), (1, 60, 300), (20, 200, 900), (40, 1_500))
"""Bodies of all messages; equal ones make records of different lives stand at the same bytes."""

_MOST_PROBLEMS = 20
_USED_ONE_IN = 100
_TWICE_ONE_IN = 20


@dataclass(slots=True)
class Figures:
    """What was done, and what was wrong."""

    images: int = 0
    scenarios: int = 0
    lives: int = 0
    moments: int = 0
    records: int = 0
    used: int = 0
    recovered_twice: int = 0
    in_recovery: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list, repr=False)
    """One line for each image."""


def run(seed: int, images: int, scratch: Path, images_per_life: int = IMAGES_PER_LIFE) -> Figures:
    """Judge so many images, numbered from 0; stop early when many are wrong."""
    figures = Figures()
    of_scenario = LIVES * images_per_life
    for number in range(-(-images // of_scenario)):
        scenario = Scenario(seed, number, scratch / str(number), figures, images_per_life)
        scenario.run(range(min(of_scenario, images - number * of_scenario)))
        shutil.rmtree(scratch / str(number))
        if len(figures.problems) >= _MOST_PROBLEMS:
            break
    return figures


def run_one(seed: int, image: int, scratch: Path, images_per_life: int = IMAGES_PER_LIFE) -> Figures:
    """Judge one image of a run, by its number."""
    figures = Figures()
    number, wanted = divmod(image, LIVES * images_per_life)
    Scenario(seed, number, scratch / str(number), figures, images_per_life).run(range(wanted, wanted + 1))
    return figures


def memory() -> Path | None:
    """Return a directory in memory, None where there is none."""
    path = Path("/dev/shm")
    return path if path.is_dir() else None


class Scenario:
    """The lives of one store."""

    def __init__(self, seed: int, number: int, scratch: Path, figures: Figures, images_per_life: int) -> None:
        self._seed = seed
        self._number = number
        self._scratch = scratch
        self._images_per_life = images_per_life
        self._figures = figures
        self._chance = random.Random(f"{seed} scenario {number}")
        self._sizes = self._chance.choice(_SIZES)
        scratch.mkdir()
        self._judge = Judge(scratch / "image", CONFIG)

    def run(self, wanted: range) -> None:
        """Live through all lives that the wanted images need, and judge those."""
        self._figures.scenarios += 1
        ledger = Ledger(CONFIG.commit_log_file_bytes, {})
        start = Image("empty", {}, {}, set())
        for number in range(LIVES):
            first = number * self._images_per_life
            where = f"life {number} of scenario {self._number}"
            try:
                life = self._live(ledger, start)
            except Exception as error:  # noqa: BLE001 - whatever it is, a store that was recovered must not raise it
                self._report([f"raised {error!r}"], where)
                return
            self._report(life.ledger.faults, where)
            behind = first + self._images_per_life
            self._judge_life(life, range(max(first, wanted.start), min(behind, wanted.stop)), first)
            if wanted.stop <= behind:
                return
            moment = self._cut_moment(life)
            start = draw(life.recorder.timeline, moment, self._chance)
            found = self._judge.judge(start, life.ledger, moment)
            if found.problems:
                self._report(found.problems, f"the end of {where}")
                return
            ledger = life.ledger.after_power_cut(moment, found.records)

    def _live(self, ledger: Ledger, start: Image) -> Life:
        root = self._scratch / "store"
        materialise(start, root)
        life = Life(root, ledger, random.Random(self._chance.random()), sizes=self._sizes)
        life.live(self._chance.randint(*_OPERATIONS))
        self._figures.lives += 1
        self._figures.moments += life.recorder.timeline.moment
        return life

    def _judge_life(self, life: Life, wanted: range, first: int) -> None:
        stale = stale_runtime_file(life.root) if (life.root / RUNTIME).exists() else None
        for number in wanted:
            image_number = self._number * LIVES * self._images_per_life + number
            chance = random.Random(f"{self._seed} image {image_number}")
            moment = self._moment(life, chance)
            image = draw(life.recorder.timeline, moment, chance)
            is_used = (number - first) % min(_USED_ONE_IN, self._images_per_life // 3) == 0
            problems = self._judge_image(life, image, moment, chance, stale if is_used else None, is_used=is_used)
            again = f"--image {image_number} --images-per-life {self._images_per_life}"
            self._report(problems, f"{again} ({image.kind}, moment {moment})")
            self._figures.images += 1
            self._figures.kinds[image.kind] += 1
            self._figures.in_recovery += moment < life.opened_at

    def _judge_image(
        self, life: Life, image: Image, moment: int, chance: random.Random, stale: bytes | None, *, is_used: bool
    ) -> list[str]:
        if is_used:
            self._figures.used += 1
            is_left = (
                chance.random() < 0.75 and str(STORE_SETTINGS_FILE) in image.files
            )  # which is on the disk before it
            left = stale if is_left else None
            return self._judge.open_and_use(image, life.ledger, moment, chance, left)
        twice = chance.random() < 1 / _TWICE_ONE_IN
        self._figures.recovered_twice += twice
        found = self._judge.judge(image, life.ledger, moment, twice=twice)
        self._figures.records += len(found.records)
        return found.problems

    def _moment(self, life: Life, chance: random.Random) -> int:
        last = life.recorder.timeline.moment
        return chance.randint(FIRST, life.opened_at) if chance.random() < 0.15 else chance.randint(FIRST, last)

    def _cut_moment(self, life: Life) -> int:
        """Return when the power goes: in the recovery, or late in the life."""
        last = life.recorder.timeline.moment
        if self._chance.random() < 0.25:
            return self._chance.randint(FIRST, life.opened_at)
        return self._chance.randint(last * 2 // 3, last)

    def _report(self, problems: list[str], where: str) -> None:
        if problems:
            problem = f"--seed {self._seed} {where}: {'; '.join(problems)}"
            print(problem, flush=True)  # at once, because a long run may never come to its end
            self._figures.problems.append(problem)
