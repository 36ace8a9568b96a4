"""What a store directory may lie on, and what may lie in it."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqclient import Message, Producer, StoreConfig
from rmqclient.errors import StoreUnusable
from rmqclient.health import findings
from rmqclient.store import open_store
from rmqclient.store.files import file_system
from rmqclient.store.files.file_system import Mount, find_mount, mount_of
from rmqclient.store.files.mapped_file import SCRATCH_PREFIX
from rmqclient.store.observe.reading import Reading
from tests.support.written import run, written_store

MOUNTINFO = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
30 27 0:40 / /mnt/with\040blank\134and\011tab rw shared:1 master:2 - nfs4 server:/export\040one rw,vers=4.2
31 27 0:41 / /mnt/- rw - fuse.sshfs me@there: rw
41 30 0:42 / /mnt/under\012it rw,nosuid shared:7 - tmpfs none rw,size=4k
"""

NETWORK = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "9p",
    "afs",
    "ceph",
    "fuse",
    "fuse.sshfs",
    "fuse.bindfs",
    "fuseblk",
    "virtiofs",
]
OF_THIS_HOST = ["ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay"]


# --- what it lies on ------------------------------------------------------------------------------


def test_a_mount_is_found_by_its_number_with_its_name_unescaped() -> None:
    assert find_mount(MOUNTINFO, 27) == Mount("/", "ext4")
    assert find_mount(MOUNTINFO, 30) == Mount("/mnt/with blank\\and\ttab", "nfs4")
    assert find_mount(MOUNTINFO, 31) == Mount("/mnt/-", "fuse.sshfs")
    assert find_mount(MOUNTINFO, 41) == Mount("/mnt/under\nit", "tmpfs")


def test_a_file_system_is_read_only_for_all_or_its_mount_alone() -> None:
    by_mount = "30 27 0:40 / /mnt ro shared:1 - ext4 /dev/sda rw,errors=remount-ro"
    by_itself = "30 27 0:40 / /mnt rw shared:1 - ext4 /dev/sda ro,errors=remount-ro"
    assert [find_mount(text, 30) for text in (by_mount, by_itself)] == [
        Mount("/mnt", "ext4"),
        Mount("/mnt", "ext4", is_read_only=True),
    ]


@pytest.mark.parametrize("text", ["", "30", "30 27 0:40 / /mnt rw", "x\n\n30 27 0:40 / /mnt rw shared:1 nfs4"])
def test_a_mount_that_is_not_listed_is_not_guessed(text: str) -> None:
    assert find_mount(text, 30) is None


def test_the_kernel_says_what_a_directory_lies_on(tmp_path: Path) -> None:
    kind = subprocess.run(
        ["stat", "-f", "-c", "%T", "/proc"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert mount_of(Path("/proc")) == Mount("/proc", kind)
    listed = {line.split(" - ")[1].split()[0] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    found = mount_of(tmp_path)
    assert found is not None
    assert found.kind in listed


@pytest.mark.parametrize("kind", OF_THIS_HOST)
def test_a_file_system_of_this_host_is_used(kind: str) -> None:
    assert Mount("/", kind).is_shared_memory


@pytest.mark.guarantee("G9")
@pytest.mark.parametrize("kind", NETWORK)
def test_a_file_system_of_other_hosts_is_refused_unless_somebody_insists(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(file_system, "mount_of", lambda _: Mount("/mnt/there", kind))
    root = tmp_path / "store"
    with pytest.raises(StoreUnusable, match=rf"{root} .*/mnt/there.* {kind}.*allow_network_file_system"):
        open_store(root, housekeeping=False)
    assert list(root.iterdir()) == [], "not even a lock file was made there"
    with caplog.at_level(logging.WARNING):
        open_store(root, StoreConfig(allow_network_file_system=True), housekeeping=False).close()
    assert kind in caplog.text


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mount something for the length of a test; what cannot be mounted here skips it."""
    points: list[Path] = []

    def mount(*command: str) -> Path:
        point = tmp_path / f"a mount {len(points)}"
        point.mkdir()
        done = subprocess.run([*command, str(point)], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"cannot mount here: {done.stderr.strip()}")
        points.append(point)
        return point

    yield mount
    for point in reversed(points):
        subprocess.run(["umount", "--lazy", str(point)], check=True)


def test_memory_is_used_and_the_log_says_once_what_is_lost(
    mounted: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    point = mounted("mount", "-t", "tmpfs", "none")
    with caplog.at_level(logging.WARNING), open_store(point / "store", housekeeping=False):
        open_store(point / "store", housekeeping=False).close()
    assert caplog.text.count("a reboot or a power cut loses every message") == 1
    assert str(point) in caplog.text


def test_a_file_system_that_became_read_only_is_critical_and_one_that_is_so_for_the_onlooker_alone_is_not(
    mounted: Callable[..., Path],
) -> None:
    def state_of_store(root: Path) -> str:
        with Reading(str(root)) as seen:
            return next(each for each in findings.look(seen) if each.check == "store").state

    # Given a closed store, of which a container has a mount that is read-only
    point = mounted("mount", "-t", "tmpfs", "none")
    open_store(point / "store").close()
    onlooker = mounted("mount", "--bind", str(point))
    subprocess.run(["mount", "-o", "remount,bind,ro", str(onlooker)], check=True)
    assert "read-only" not in state_of_store(onlooker / "store")

    # When nobody can write to the file system any more
    subprocess.run(["mount", "-o", "remount,ro", str(point)], check=True)

    # Then both say so
    for root in (point, onlooker):
        assert "read-only: nothing can be stored" in state_of_store(root / "store")


def test_the_layer_of_a_container_is_used_and_the_log_says_what_is_lost(
    mounted: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    memory = mounted("mount", "-t", "tmpfs", "none")
    for name in ("lower", "upper", "work"):
        (memory / name).mkdir()
    options = f"lowerdir={memory}/lower,upperdir={memory}/upper,workdir={memory}/work"
    point = mounted("mount", "-t", "overlay", "-o", options, "none")
    with caplog.at_level(logging.WARNING), Producer(point / "store") as producer:
        producer.send(Message("t", b"body"))
    assert "the layer of a container" in caplog.text
    assert not run("verify", point / "store").stdout


def test_a_bind_mount_is_the_file_system_behind_it(mounted: Callable[..., Path], tmp_path: Path) -> None:
    behind = mount_of(tmp_path)
    assert behind is not None
    assert mount_of(mounted("mount", "--bind", str(tmp_path))) == Mount(f"{tmp_path}/a mount 0", behind.kind)


def test_a_fuse_mount_is_refused(mounted: Callable[..., Path], tmp_path: Path) -> None:
    if shutil.which("bindfs") is None:
        pytest.skip("bindfs is not installed")
    (tmp_path / "behind").mkdir()
    point = mounted("bindfs", str(tmp_path / "behind"))
    with pytest.raises(StoreUnusable, match=r"fuse.*allow_network_file_system"):
        open_store(point / "store", housekeeping=False)


# --- what lies in it ------------------------------------------------------------------------------


def planted_link(path: Path, elsewhere: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(elsewhere)


def planted_hard_link(path: Path, elsewhere: Path) -> None:
    path.unlink(missing_ok=True)
    path.hardlink_to(elsewhere)


def planted_pipe(path: Path, _: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def of_somebody_else(path: Path, _: Path) -> None:
    path.touch()
    os.chown(path, 12_345, -1)


PLANTED = [planted_link, planted_hard_link, planted_pipe, of_somebody_else]
FILES = [
    "lock", "abort", "shared", "store.json", "checkpoint", "config/topics.json", "config/consumerOffset.json",
    "config/topics.json.bak", "config/topics.json.tmp", f"commitlog/{0:020d}", f"consumequeue/orders/0/{0:020d}",
]  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return written_store(tmp_path / "store")


@pytest.mark.guarantee("G9")
@pytest.mark.parametrize("plant", PLANTED)
@pytest.mark.parametrize("name", FILES)
def test_a_planted_file_is_refused_by_its_name_and_not_written_through(
    store: Path, tmp_path: Path, name: str, plant: Callable[[Path, Path], None]
) -> None:
    if plant is of_somebody_else and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"not a file of the store")
    plant(store / name, elsewhere)
    with pytest.raises(StoreUnusable, match=str(store / name)):
        open_store(store, housekeeping=False)
    assert elsewhere.read_bytes() == b"not a file of the store"


@pytest.mark.guarantee("G9")
@pytest.mark.parametrize("name", ["commitlog", "consumequeue/orders", "config"])
def test_a_directory_that_leads_elsewhere_is_refused(store: Path, tmp_path: Path, name: str) -> None:
    (store / name).rename(tmp_path / "elsewhere")
    (store / name).symlink_to(tmp_path / "elsewhere")
    before = sorted((tmp_path / "elsewhere").rglob("*"))
    with pytest.raises(StoreUnusable, match=str(store / name)):
        open_store(store, housekeeping=False)
    assert sorted((tmp_path / "elsewhere").rglob("*")) == before


def test_a_file_that_was_being_made_when_its_maker_was_killed_is_no_planted_one(store: Path) -> None:
    (store / f"{SCRATCH_PREFIX}1-00000000").hardlink_to(store / "commitlog" / f"{0:020d}")
    open_store(store, housekeeping=False).close()
    assert list(store.glob(f"{SCRATCH_PREFIX}*")) == []


def test_the_topmost_directory_of_a_disk_can_be_a_store(store: Path) -> None:
    (store / "lost+found").mkdir(mode=0)
    if os.geteuid() == 0:
        os.chown(store / "lost+found", 12_345, -1)
    open_store(store, housekeeping=False).close()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_files_and_directories_are_for_their_owner_alone_whatever_the_umask_is(tmp_path: Path, umask: int) -> None:
    script = (
        f"import os, sys; os.umask({umask})\n"
        "from pathlib import Path; from tests.support.written import written_store; written_store(Path(sys.argv[1]))"
    )
    root = tmp_path / "store"
    subprocess.run([sys.executable, "-c", script, str(root)], check=True, cwd=Path(__file__).parents[3])
    modes = {path.relative_to(root): path.stat().st_mode & 0o777 for path in [root, *root.rglob("*")]}
    wrong = {
        str(path): oct(mode) for path, mode in modes.items() if mode != (0o700 if (root / path).is_dir() else 0o600)
    }
    assert not wrong


# --- a disk that may only be read -----------------------------------------------------------------


@pytest.mark.guarantee("G9")
def test_a_store_on_a_read_only_disk_can_be_looked_at_and_not_opened(store: Path, mounted: Callable[..., Path]) -> None:
    point = mounted("mount", "--bind", "-o", "ro", str(store))
    assert run("verify", point).returncode == 0
    dumped = run("dump", point)
    assert dumped.returncode == 0
    assert dumped.stdout.count("\n") == 180
    with pytest.raises(StoreUnusable, match=rf"{point} .*mounted read-only"):
        open_store(point, housekeeping=False)


@pytest.mark.guarantee("G9")
def test_who_is_not_permitted_is_told_what_the_file_is(store: Path) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("becoming somebody else needs root and setpriv")
    as_somebody = ["setpriv", "--reuid=12345", "--clear-groups", "--regid=12345", sys.executable, "-c"]
    environment = {"PYTHONPATH": str(Path(__file__).parents[3])}
    imports = "import sys; from rmqclient.store import open_store"
    if subprocess.run([*as_somebody, imports], cwd="/", env=environment, capture_output=True, check=False).returncode:
        pytest.skip("nobody else may run this interpreter and read the package")
    script = f"{imports}; open_store(sys.argv[1], housekeeping=False)"
    with tempfile.TemporaryDirectory() as directory:  # every pytest that begins closes the directory of all to others
        Path(directory).chmod(0o755)
        place = Path(directory, "store")
        shutil.copytree(store, place)
        refused = subprocess.run(
            [*as_somebody, script, str(place)],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            env=environment,
        )
    assert f"StoreUnusable: {place} is not readable and writable by this user" in refused.stderr


def test_what_goes_while_it_is_looked_at_is_no_fault(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    going = store / "spark"
    going.mkdir()
    (going / "staged").touch()
    seen = list(os.scandir(store)) + list(os.scandir(going))
    shutil.rmtree(going)
    monkeypatch.setattr(file_system, "_entries", lambda _: iter(seen))
    file_system.check_content(store, SCRATCH_PREFIX)
    monkeypatch.undo()
    assert list(file_system._entries(going)) == []
