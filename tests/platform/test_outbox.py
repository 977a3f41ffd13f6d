"""Letters are kept first, delivered in order, and survive the death of who wrote them."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from oclgrid.platform.outbox import KEPT_SECONDS, Letter, Numbers, Outbox, clear_out
from oclgrid.trainables.cell import TransientError

DEADLINE_SECONDS = 60.0


def letter(number: int) -> Letter:
    numbers = Numbers(values={"E": number / 10}, step=number, at=1000 + number)
    files = {f"checkpoints/stage-{number}.pt": bytes([number]) * 5, "a.csv": b""}
    return Letter(files=files, numbers=(numbers,), tags={"error": ""}, status="RUNNING")


class Store:
    """Takes letters while it is open."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.taken: list[Letter] = []
        self.open = threading.Event()
        if is_open:
            self.open.set()

    def take(self, one: Letter) -> None:
        if not self.open.is_set():
            raise TransientError("the store is shut")
        self.taken.append(one)


def test_a_letter_is_the_same_after_it_was_a_file() -> None:
    for one in (letter(3), Letter(), Letter(status="FINISHED")):
        assert Letter.unpacked(one.packed()) == one


def test_letters_are_delivered_in_order_and_leave_nothing_behind(tmp_path: Path) -> None:
    store = Store()
    outbox = Outbox(tmp_path / "run", store.take)
    for number in range(12):
        outbox.put(letter(number))
    assert outbox.wait(DEADLINE_SECONDS) == ""
    assert store.taken == [letter(n) for n in range(12)]
    assert list(tmp_path.iterdir()) == []


def test_who_puts_goes_on_while_the_store_is_away(tmp_path: Path) -> None:
    store = Store(is_open=False)
    outbox = Outbox(tmp_path / "run", store.take)
    outbox.put(letter(1))
    outbox.put(letter(2))
    assert outbox.wait(1.0) == "2 results wait: the store is shut"
    store.open.set()
    assert outbox.wait(DEADLINE_SECONDS) == ""
    assert store.taken == [letter(1), letter(2)]


def test_letters_of_a_killed_process_are_delivered_by_the_next(tmp_path: Path) -> None:
    code = f"""
import os, pathlib, signal
from oclgrid.platform.outbox import Outbox
from tests.platform.test_outbox import Store, letter
outbox = Outbox(pathlib.Path({str(tmp_path / "run")!r}), Store(is_open=False).take)
outbox.put(letter(1))
outbox.put(letter(2))
os.kill(os.getpid(), signal.SIGKILL)
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, timeout=300)
    assert done.returncode == -signal.SIGKILL
    store = Store()
    outbox = Outbox(tmp_path / "run", store.take)
    outbox.send()
    outbox.put(letter(3))
    assert outbox.wait(DEADLINE_SECONDS) == ""
    assert store.taken == [letter(1), letter(2), letter(3)]


def test_a_damaged_letter_and_those_after_it_are_dropped(tmp_path: Path) -> None:
    _leave(tmp_path / "run", 3)
    second = sorted((tmp_path / "run").iterdir())[1]
    second.write_bytes(second.read_bytes()[:-1])
    store = Store()
    outbox = Outbox(tmp_path / "run", store.take)
    outbox.send()
    assert outbox.wait(DEADLINE_SECONDS) == ""
    assert store.taken == [letter(0)]


def _leave(folder: Path, count: int) -> None:
    """Leave letters that nobody delivers."""
    outbox = Outbox(folder, Store().take)
    for number in range(count):
        outbox._write(letter(number).packed())


def test_who_loses_a_letter_to_a_damaged_disk_is_told_to_begin_again(tmp_path: Path) -> None:
    store = Store(is_open=False)
    outbox = Outbox(tmp_path / "run", store.take)
    outbox.put(letter(1))
    (path,) = (tmp_path / "run").iterdir()
    path.write_bytes(b"")
    with pytest.raises(TransientError, match="is damaged"):
        outbox.wait(DEADLINE_SECONDS)
    with pytest.raises(TransientError, match="is damaged"):
        outbox.put(letter(2))


def test_where_nothing_can_be_written_letters_wait_in_memory(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where the folder should be")
    store = Store(is_open=False)
    outbox = Outbox(tmp_path / "run", store.take)
    outbox.put(letter(1))
    outbox.put(letter(2))
    assert outbox.wait(0.5).startswith("2 results wait")
    store.open.set()
    assert outbox.wait(DEADLINE_SECONDS) == ""
    assert store.taken == [letter(1), letter(2)]


def test_what_is_refused_is_told_and_left_to_others(tmp_path: Path) -> None:
    def refuse(_: Letter) -> None:
        raise LookupError("the cell is another command's")

    outbox = Outbox(tmp_path / "run", refuse)
    outbox.put(letter(1))
    with pytest.raises(LookupError, match="another command's"):
        outbox.wait(DEADLINE_SECONDS)
    store = Store()
    other = Outbox(tmp_path / "run", store.take)
    other.send()
    assert other.wait(DEADLINE_SECONDS) == ""
    assert store.taken == [letter(1)]


def test_a_letter_that_two_processes_know_of_is_delivered_once(tmp_path: Path) -> None:
    for _ in range(50):  # whoever comes second may find nothing left at any line
        _leave(tmp_path / "run", 3)
        store = Store()
        outboxes = [Outbox(tmp_path / "run", store.take) for _ in range(2)]
        for outbox in outboxes:
            outbox.send()
        for outbox in outboxes:
            assert outbox.wait(DEADLINE_SECONDS) == ""
        assert store.taken == [letter(n) for n in range(3)]
        assert os.listdir(tmp_path) == []


def test_only_what_was_left_long_ago_is_cleared_out(tmp_path: Path) -> None:
    for name in ("old", "new"):
        _leave(tmp_path / name, 1)
    long_ago = time.time() - KEPT_SECONDS - 60
    os.utime(tmp_path / "old", (long_ago, long_ago))
    clear_out(tmp_path)
    assert os.listdir(tmp_path) == ["new"]
    clear_out(tmp_path / "nowhere")
