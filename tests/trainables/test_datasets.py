import multiprocessing
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oclgrid.trainables import decoded
from oclgrid.trainables.datasets import DATASETS, Dataset, data_root, dataset, load
from oclgrid.trainables.decoded import UNDECODED, _alone, cache_path, digest
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.sources import Images, MissingDataError, Splits

SIDE = 4
SIZES = (1442, 355)


def fake(root: Path, download: bool) -> Splits:
    """Return ten random images; each reading leaves a mark below the root."""
    root.mkdir(parents=True, exist_ok=True)
    (root / f"read-{os.getpid()}").touch()
    rng = np.random.default_rng(0)

    def split(count: int) -> Images:
        pixels = rng.integers(0, 256, (count, SIDE, SIDE, 3), dtype=np.uint8)
        return Images(pixels, np.arange(count, dtype=np.int64) % 2)

    return Splits(split(7), split(3))


def absent(root: Path, download: bool) -> Splits:
    raise MissingDataError("no files\nhere")


def broken(root: Path, download: bool) -> Splits:
    raise RuntimeError("a bug")


def info(root: Path) -> Dataset:
    return Dataset(
        name="fake",
        about="random images",
        classes=2,
        stages=1,
        side=SIDE,
        digest=digest(fake(root / "elsewhere", False)),
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        read=fake,
    )


def files(root: Path) -> list[str]:
    return sorted(p.name for p in (root / "oclgrid").glob("*"))


def never(root: Path, download: bool) -> Splits:
    """Decode for ever."""
    (root / f"waiting-{os.getpid()}").touch()
    time.sleep(600)
    raise AssertionError


def await_marks(root: Path, pattern: str, count: int) -> None:
    deadline = time.monotonic() + 120
    while len(list(root.glob(pattern))) < count:
        assert time.monotonic() < deadline, f"no {pattern}"
        time.sleep(0.05)


def load_elsewhere(wanted: Dataset, root: Path, answers: "multiprocessing.Queue[str]") -> None:
    """Load in a process of its own and tell what came."""
    (root / f"asked-{os.getpid()}").touch()
    answers.put(digest(load(wanted, root)))


def digits() -> Splits:
    return load(dataset("digits"), Path("/nonexistent"))


def test_digits_have_their_published_digest() -> None:
    assert digest(digits()) == DATASETS["digits"].digest


def test_digits_are_split_into_1442_to_train_and_355_to_test() -> None:
    splits = digits()
    assert (len(splits.train.labels), len(splits.test.labels)) == SIZES
    assert splits.train.images.shape == (SIZES[0], 16, 16, 3)
    assert splits.test.images.shape == (SIZES[1], 16, 16, 3)


def test_digits_are_bytes_with_whole_labels() -> None:
    for part in (digits().train, digits().test):
        assert part.images.dtype == np.uint8
        assert part.labels.dtype == np.int64


def test_every_digit_is_in_both_splits_four_to_one() -> None:
    splits = digits()
    train, test = np.bincount(splits.train.labels), np.bincount(splits.test.labels)
    assert len(train) == len(test) == 10
    assert (test == (train + test) // 5).all()


def test_digits_are_those_of_scikit_learn_enlarged_and_scaled() -> None:
    from sklearn.datasets import load_digits  # here, to spare the spawned processes its seconds

    published, splits = load_digits(), digits()
    at = {"train": 0, "test": 0}
    count = [0] * 10
    for small, label in zip(published.images, published.target, strict=True):
        name = "test" if count[label] % 5 == 4 else "train"
        part = getattr(splits, name)
        ours = part.images[at[name]]
        assert part.labels[at[name]] == label
        for channel in range(3):
            for corner in (ours[0::2, 0::2], ours[0::2, 1::2], ours[1::2, 0::2], ours[1::2, 1::2]):
                assert (corner[:, :, channel] == np.floor(small * 255 / 16)).all()
        at[name] += 1
        count[label] += 1


def test_digits_need_no_folder_and_write_none(tmp_path: Path) -> None:
    load(dataset("digits"), tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_unknown_dataset_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(SpecError, match="unknown dataset 'cifar'; did you mean 'cifar10'"):
        dataset("cifar")


def test_the_data_folder_is_the_given_one_then_the_environments_then_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OCLGRID_DATA", "/from/environment")
    assert data_root("/given") == Path("/given")
    assert data_root() == Path("/from/environment")
    monkeypatch.delenv("OCLGRID_DATA")
    assert data_root() == Path.home() / ".cache" / "oclgrid"


def test_loaded_images_are_those_that_were_read(tmp_path: Path) -> None:
    read, loaded = fake(tmp_path, False), load(info(tmp_path), tmp_path)
    for ours, theirs in ((loaded.train, read.train), (loaded.test, read.test)):
        np.testing.assert_array_equal(ours.images, theirs.images)
        np.testing.assert_array_equal(ours.labels, theirs.labels)


def test_loaded_images_are_a_map_of_the_file_and_cannot_be_written(tmp_path: Path) -> None:
    images = load(info(tmp_path), tmp_path).train.images
    assert not images.flags.owndata
    assert not images.flags.writeable


def test_published_files_are_decoded_once(tmp_path: Path) -> None:
    wanted = info(tmp_path)
    load(wanted, tmp_path)
    written = cache_path(wanted, tmp_path).stat()
    again = load(replace(wanted, read=broken), tmp_path)
    assert digest(again) == wanted.digest
    assert cache_path(wanted, tmp_path).stat().st_mtime_ns == written.st_mtime_ns


def test_a_file_is_compared_with_its_digest_once_per_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = info(tmp_path)
    load(wanted, tmp_path)
    os.utime(cache_path(wanted, tmp_path), (1e9, 1e9))
    compared = []
    monkeypatch.setattr(decoded, "digest", lambda parts: compared.append(1) or digest(parts))
    for _ in range(3):
        load(wanted, tmp_path)
    assert compared == [1]


@pytest.mark.parametrize("is_dated_back", [False, True])
def test_a_file_that_changed_after_it_was_compared_is_compared_again(
    tmp_path: Path, is_dated_back: bool
) -> None:
    wanted = info(tmp_path)
    load(wanted, tmp_path)
    cache = cache_path(wanted, tmp_path)
    os.utime(cache, (1e9, 1e9))
    image = load(wanted, tmp_path).train.images[0].tobytes()
    with cache.open("r+b") as file:
        content = file.read()
        file.seek(content.index(image))
        file.write(bytes(len(image)))
    if is_dated_back:
        os.utime(cache, (1e9, 1e9))
    with pytest.raises(SpecError, match="is not what was decoded"):
        load(wanted, tmp_path)


def test_a_fresh_file_is_compared_each_time_as_its_time_stamp_may_not_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = info(tmp_path)
    load(wanted, tmp_path)
    future = time.time() + 1000
    os.utime(cache_path(wanted, tmp_path), (future, future))
    compared = []
    monkeypatch.setattr(decoded, "digest", lambda parts: compared.append(1) or digest(parts))
    load(wanted, tmp_path)
    load(wanted, tmp_path)
    assert compared == [1, 1]


@pytest.mark.parametrize("length", [0, 1, 100, -1])
def test_a_truncated_cache_is_refused_with_a_remedy(tmp_path: Path, length: int) -> None:
    wanted = info(tmp_path)
    load(wanted, tmp_path)
    cache = cache_path(wanted, tmp_path)
    cache.write_bytes(cache.read_bytes()[:length])
    with pytest.raises(SpecError, match=r"damaged .*; delete it and try again"):
        load(wanted, tmp_path)


def test_a_cache_with_any_byte_changed_is_harmless_or_refused(tmp_path: Path) -> None:
    wanted = info(tmp_path)
    load(wanted, tmp_path)
    cache = cache_path(wanted, tmp_path)
    sound = cache.read_bytes()
    refused = 0
    for position in range(0, len(sound), 5):
        spoilt = bytearray(sound)
        spoilt[position] ^= 0xFF
        cache.unlink()  # a mapped file must not change under its readers
        cache.write_bytes(spoilt)
        try:
            assert digest(load(wanted, tmp_path)) == wanted.digest
        except SpecError:
            refused += 1
    assert refused > 100


def test_a_damaged_image_is_refused_with_a_remedy(tmp_path: Path) -> None:
    wanted = info(tmp_path)
    image = load(wanted, tmp_path).train.images[0].tobytes()
    cache = cache_path(wanted, tmp_path)
    content = cache.read_bytes()
    cache.unlink()
    cache.write_bytes(content.replace(image, bytes(len(image))))
    with pytest.raises(SpecError, match=r"is not what was decoded .* delete it and try again"):
        load(wanted, tmp_path)


def test_files_with_another_digest_are_refused_and_not_cached(tmp_path: Path) -> None:
    wanted = replace(info(tmp_path), digest="0" * 64)
    with pytest.raises(SpecError, match=r"'fake' .* is not the published one"):
        load(wanted, tmp_path)
    assert files(tmp_path) == []


def test_missing_files_are_refused_in_one_line_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        load(replace(info(tmp_path), read=absent), tmp_path)
    assert str(caught.value) == (
        f"dataset 'fake' is not complete below {tmp_path} (no files here); get it with "
        "`oclgrid data fake --download` or name another folder with --data"
    )


def test_a_reader_that_fails_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        load(replace(info(tmp_path), read=broken), tmp_path)
    assert files(tmp_path) == []


def test_a_write_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: object, target: object) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(SpecError, match=r"no space left.*--data"):
        load(info(tmp_path), tmp_path)
    assert files(tmp_path) == []


def test_what_a_killed_writer_left_is_removed_and_a_busy_one_left_alone(tmp_path: Path) -> None:
    cache = cache_path(info(tmp_path), tmp_path)
    cache.parent.mkdir()
    left, busy = (cache.parent / f"{cache.name}{mark}.part" for mark in ("left", "busy"))
    left.touch()
    busy.touch()
    os.utime(left, (1e9, 1e9))
    load(info(tmp_path), tmp_path)
    assert files(tmp_path) == [cache.name, busy.name]


def test_the_cache_can_be_read_by_whoever_can_read_new_files(tmp_path: Path) -> None:
    wanted = info(tmp_path)
    load(wanted, tmp_path)
    (tmp_path / "new").touch()
    assert cache_path(wanted, tmp_path).stat().st_mode == (tmp_path / "new").stat().st_mode


def test_processes_that_load_at_once_decode_once_and_leave_one_file(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[str] = spawn.Queue()
    wanted = replace(info(tmp_path), digest=UNDECODED)
    workers = [
        spawn.Process(target=load_elsewhere, args=(wanted, tmp_path, answers)) for _ in range(3)
    ]
    with _alone(tmp_path):  # until all of them ask
        for worker in workers:
            worker.start()
        await_marks(tmp_path, "asked-*", len(workers))
    found = {answers.get(timeout=120) for _ in workers}
    for worker in workers:
        worker.join(timeout=60)
    assert found == {info(tmp_path).digest}
    assert files(tmp_path) == [cache_path(wanted, tmp_path).name]
    assert len(list(tmp_path.glob("read-*"))) == 1


def test_a_process_that_dies_while_decoding_holds_up_nobody(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[str] = spawn.Queue()
    wanted = info(tmp_path)
    dying = replace(wanted, read=never)
    worker = spawn.Process(target=load_elsewhere, args=(dying, tmp_path, answers))
    worker.start()
    await_marks(tmp_path, "waiting-*", 1)
    worker.kill()
    worker.join(timeout=60)
    assert digest(load(wanted, tmp_path)) == wanted.digest
    assert files(tmp_path) == [cache_path(wanted, tmp_path).name]


def test_missing_cifar10_is_refused_with_the_folder_and_the_command(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        load(dataset("cifar10"), tmp_path)
    message = str(caught.value)
    assert str(tmp_path) in message
    assert "`oclgrid data cifar10 --download`" in message
    assert message.isprintable()


def test_corrupted_cifar10_is_refused_before_it_is_unpickled(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    marker = tmp_path / "unpickled"
    harmful = f"cos\nsystem\n(S'touch {marker}'\ntR.".encode()
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"]:
        (folder / name).write_bytes(harmful)
    with pytest.raises(SpecError, match="is not complete below"):
        load(dataset("cifar10"), tmp_path)
    assert not marker.exists()
    assert files(tmp_path) == []
