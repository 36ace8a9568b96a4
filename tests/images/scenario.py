"""Scenarios: a store that lives, loses its power, lives on with what an image left, and so on; each life is judged.

``python -m tests.images --seed 7 --image 1234`` does again what leads to one image, and judges that alone.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.images.image import Image, draw
from tests.images.judge import RUNTIME, Judge, materialise, stale_runtime_file
from tests.images.ledger import Ledger
from tests.images.timeline import FIRST
from tests.images.workload import CONFIG, Life

LIVES = 4
IMAGES_PER_LIFE = 250
IMAGES = LIVES * IMAGES_PER_LIFE
"""Of one scenario."""

_OPERATIONS = (15, 60)
_SIZES = ((17,), (200,), (400,), (1, 60, 300), (20, 200, 900), (40, 1_500))
"""Bodies of all messages; equal ones make records of different lives stand at the same bytes."""

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


def run(seed: int, images: int, scratch: Path, most_problems: int = 20) -> Figures:
    """Judge so many images, numbered from 0."""
    figures = Figures()
    for number in range(-(-images // IMAGES)):
        Scenario(seed, number, scratch / str(number), figures).run(range(min(IMAGES, images - number * IMAGES)))
        if len(figures.problems) >= most_problems:
            break
    return figures


def run_one(seed: int, image: int, scratch: Path) -> Figures:
    """Judge one image of a run, by its number."""
    figures = Figures()
    scenario = Scenario(seed, image // IMAGES, scratch / "one", figures)
    scenario.run(range(image % IMAGES, image % IMAGES + 1))
    return figures


class Scenario:
    """The lives of one store."""

    def __init__(self, seed: int, number: int, scratch: Path, figures: Figures) -> None:
        self._seed = seed
        self._number = number
        self._scratch = scratch
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
            first = number * IMAGES_PER_LIFE
            life = self._live(number, ledger, start)
            self._report(life.ledger.faults, f"life {number} of scenario {self._number}")
            here = range(max(first, wanted.start), min(first + IMAGES_PER_LIFE, wanted.stop))
            self._judge_life(life, here, first)
            if wanted.stop <= first + IMAGES_PER_LIFE:
                return
            moment = self._cut_moment(life)
            start = draw(life.recorder.timeline, moment, self._chance)
            found = self._judge.judge(start, life.ledger, moment)
            if found.problems:
                self._report(found.problems, f"the end of life {number} of scenario {self._number}")
                return
            ledger = life.ledger.after_power_cut(moment, found.records)

    def _live(self, number: int, ledger: Ledger, start: Image) -> Life:
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
            chance = random.Random(f"{self._seed} image {self._number * IMAGES + number}")
            moment = self._moment(life, chance)
            image = draw(life.recorder.timeline, moment, chance)
            problems = self._judge_image(life, image, moment, chance, stale, is_used=(number - first) % _USED_ONE_IN == 0)
            image_number = self._number * IMAGES + number
            self._report(problems, f"image {image_number} ({image.kind}, moment {moment} of life {first // IMAGES_PER_LIFE})")
            self._figures.images += 1
            self._figures.kinds[image.kind] += 1
            self._figures.in_recovery += moment < life.opened_at

    def _judge_image(
        self, life: Life, image: Image, moment: int, chance: random.Random, stale: bytes | None, *, is_used: bool
    ) -> list[str]:
        if is_used:
            self._figures.used += 1
            return self._judge.open_and_use(image, life.ledger, moment, chance, stale if chance.random() < 0.5 else None)
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
            self._figures.problems.append(f"seed {self._seed}, {where}: {'; '.join(problems)}")
