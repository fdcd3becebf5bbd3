"""Batch arrays, error codes, vocabulary, model loading and thread counting."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import numpy as np
import pytest

from batchserve.llama import errors
from batchserve.llama.batch import RowBatch
from batchserve.llama.grouping import group_chunks
from batchserve.llama.hugepages import use_huge_pages
from batchserve.llama.kernels import KernelConfig
from batchserve.llama.model import LoadedModel, load
from batchserve.llama.threads import count_cores, cpu_quota, default_threads
from batchserve.llama.trial import choose_kernels
from scheduler import Chunk, StepFailed


def test_decode_rows_lie_where_llama_cpp_reads_them() -> None:
    batch = RowBatch(8)
    batch.fill_decode([5, 6], [10, 20], [0, 1])
    struct = batch.struct
    assert struct.n_tokens == 2
    assert [struct.token[row] for row in (0, 1)] == [5, 6]
    assert [struct.pos[row] for row in (0, 1)] == [10, 20]
    assert [(struct.n_seq_id[row], struct.seq_id[row][0]) for row in (0, 1)] == [(1, 0), (1, 1)]
    assert [struct.logits[row] for row in (0, 1)] == [1, 1]


@pytest.mark.parametrize("wants_logits", [True, False])
def test_prefill_rows_are_consecutive_and_only_the_last_gives_logits(wants_logits: bool) -> None:
    batch = RowBatch(8)
    batch.fill_decode([9] * 8, [9] * 8, [9] * 8)
    assert batch.fill_prefill([Chunk(0, 3, 100, (5, 6, 7), wants_logits)]) == [2]
    struct = batch.struct
    assert [struct.pos[row] for row in range(3)] == [100, 101, 102]
    assert [struct.seq_id[row][0] for row in range(3)] == [3, 3, 3]
    assert [struct.logits[row] for row in range(3)] == [0, 0, int(wants_logits)]


@pytest.mark.parametrize("count", [0, 9])
def test_a_batch_refuses_what_does_not_fit(count: int) -> None:
    with pytest.raises(ValueError, match=f"1 to 8 rows, not {count}"):
        RowBatch(8).fill_decode([1] * count, [0] * count, [0] * count)


def test_a_group_is_padded_to_its_longest_chunk() -> None:
    batch = RowBatch(8)
    rows = batch.fill_prefill([Chunk(0, 1, 10, (5, 6, 7), True), Chunk(1, 2, 0, (8, 9), True)])
    struct = batch.struct
    assert rows == [2, 4] and struct.n_tokens == 6
    assert [struct.token[row] for row in range(6)] == [5, 6, 7, 8, 9, 9]
    assert [struct.pos[row] for row in range(6)] == [10, 11, 12, 0, 1, 2]
    assert [struct.seq_id[row][0] for row in range(6)] == [1, 1, 1, 2, 2, 2]
    assert [struct.logits[row] for row in range(6)] == [0, 0, 1, 0, 1, 0]


def chunk(slot: int, rows: int, position: int = 0) -> Chunk:
    return Chunk(slot, slot, position, (1,) * rows, True)


def lengths(groups: list[list[Chunk]]) -> list[list[int]]:
    return [[len(chunk.tokens) for chunk in group] for group in groups]


def test_chunks_of_similar_length_share_a_call() -> None:
    chunks = [chunk(0, 60), chunk(1, 64), chunk(2, 30), chunk(3, 57), chunk(4, 28)]
    assert lengths(group_chunks(chunks, 256, 512)) == [[60, 64, 57], [30, 28]]


def test_a_group_fits_into_a_call_with_its_padding() -> None:
    assert lengths(group_chunks([chunk(slot, 100) for slot in range(5)], 256, 512)) == [[100] * 2, [100] * 2, [100]]


def test_a_lone_row_and_the_end_of_a_context_are_not_padded() -> None:
    assert lengths(group_chunks([chunk(0, 2), chunk(1, 1), chunk(2, 1)], 256, 512)) == [[2], [1], [1]]
    assert lengths(group_chunks([chunk(0, 64), chunk(1, 60, position=450)], 256, 512)) == [[64], [60]]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, errors.NoRoom),
        (2, errors.Aborted),
        (-1, errors.InvalidBatch),
        (-2, errors.DecodeFailed),
        (-3, errors.DecodeFailed),
    ],
)
def test_return_codes_become_typed_errors(code: int, kind: type[StepFailed]) -> None:
    error = errors.decode_error(code)
    assert type(error) is kind and isinstance(error, StepFailed)


@pytest.mark.model
def test_pieces_join_to_the_text(smollm2: LoadedModel) -> None:
    text = "Grüße, 世界! 😀 def f(x):\n\treturn x**2"
    tokens = smollm2.vocab.tokenize(text, add_special=False)
    assert b"".join(map(smollm2.vocab.piece, tokens)).decode() == text


@pytest.mark.model
def test_special_tokens_are_recognised_and_have_no_text(smollm2: LoadedModel) -> None:
    vocab = smollm2.vocab
    (token,) = vocab.tokenize("<|im_end|>", add_special=False)
    assert vocab.piece(token) == b"" and vocab.ends_generation(token)
    assert (vocab.bos_text, vocab.eos_text) == ("<|im_start|>", "<|im_end|>")


@pytest.mark.model
def test_facts_come_from_the_file(smollm2: LoadedModel) -> None:
    facts = smollm2.facts
    assert (facts.num_tokens, facts.ctx_train) == (49152, 8192)
    assert facts.num_parameters == 134_515_008 or facts.num_parameters == 162_826_560
    assert facts.chat_template is not None and "<|im_start|>" in facts.chat_template


def test_a_tiny_model_takes_its_training_context(tiny_llama_path: Path) -> None:
    with load(tiny_llama_path, KernelConfig(1), 2, None, 64) as loaded:
        assert loaded.ctx_per_stream == 256
        assert loaded.vocab.tokenize("ab", add_special=True)[0] == 1


def test_more_context_than_trained_is_refused(tiny_llama_path: Path) -> None:
    with (
        pytest.raises(errors.ModelError, match="--ctx-per-stream 512 is more than the 256"),
        load(tiny_llama_path, KernelConfig(1), 2, 512, 64),
    ):
        pass


def test_a_damaged_file_is_refused_with_the_reason(tiny_llama_path: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(tiny_llama_path.read_bytes()[:5000])
    with (
        pytest.raises(errors.ModelError, match=r"broken\.gguf: \S+"),
        load(broken, KernelConfig(1), 1, None, 64),
    ):
        pass


async def test_the_trial_keeps_extra_buffers_where_they_work(tiny_llama_path: Path) -> None:
    wanted = KernelConfig(1, extra_buffers=True)
    assert await choose_kernels(tiny_llama_path, wanted) == (wanted, None)


def fake_python(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


async def test_a_child_killed_with_extra_buffers_makes_the_server_go_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = 'case "$*" in *"--extra-buffers on"*) kill -ILL $$;; esac'
    monkeypatch.setattr("sys.executable", fake_python(tmp_path / "python", script))
    kernels, notice = await choose_kernels(Path("model.gguf"), KernelConfig(1))
    assert not kernels.extra_buffers
    assert notice is not None and "SIGILL" in notice


async def test_a_child_that_always_dies_ends_the_start_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", fake_python(tmp_path / "python", "kill -ABRT $$"))
    with pytest.raises(errors.ModelError, match=r"model\.gguf cannot be served: killed by SIGABRT"):
        await choose_kernels(Path("model.gguf"), KernelConfig(1))


async def test_a_file_that_is_no_model_ends_the_start_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "text.gguf"
    path.write_text("not a model")
    with pytest.raises(errors.ModelError, match="magic"):
        await choose_kernels(path, KernelConfig(1))


def test_large_memory_moves_to_huge_pages_and_keeps_its_bytes(tmp_path: Path) -> None:
    """A region of 8 MiB holds at least three aligned huge pages; whether the system grants them is its affair."""
    array = np.arange(1 << 20, dtype=np.uint64)
    made = use_huge_pages()
    assert made >= 0 and np.array_equal(array, np.arange(1 << 20, dtype=np.uint64))
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    release = tuple(map(int, platform.release().split(".")[:2]))
    if setting.exists() and "[never]" not in setting.read_text() and release >= (6, 1):
        assert made >= 3
    assert use_huge_pages(tmp_path / "no-maps") == 0


def sysfs(root: Path, siblings: dict[int, str]) -> Path:
    for cpu, text in siblings.items():
        folder = root / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(text + "\n")
    return root


def test_hyper_threads_count_as_one_core(tmp_path: Path) -> None:
    root = sysfs(tmp_path, {0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5"})
    assert count_cores({0, 1, 4, 5}, root) == 2
    assert count_cores({0, 4}, root) == 1
    assert count_cores({0, 1, 7}, root) == 3


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_version_2_quota_counts_with_its_parents(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    write(tmp_path / "self", "0::/app/web\n")
    write(root / "app/web/cpu.max", "max 100000\n")
    write(root / "app/cpu.max", "150000 100000\n")
    assert cpu_quota(root, tmp_path / "self") == 1.5


def test_a_version_1_quota_is_read(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    write(tmp_path / "self", "5:memory:/x\n4:cpu,cpuacct:/docker/abc\n")
    write(root / "cpu/docker/abc/cpu.cfs_quota_us", "300000\n")
    write(root / "cpu/docker/abc/cpu.cfs_period_us", "100000\n")
    write(root / "cpu/cpu.cfs_quota_us", "-1\n")
    assert cpu_quota(root, tmp_path / "self") == 3.0


def test_no_quota_is_none(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path / "nothing", tmp_path / "self") is None


def test_the_default_is_at_least_one_thread_and_no_more_than_the_cpus() -> None:
    assert 1 <= default_threads() <= (os.cpu_count() or 1)
