"""Suites with real server processes: interleaving, resuming, refusing, comparing."""

import os
import sys
from pathlib import Path

import msgspec
import pytest

from loadtest import servers
from loadtest.client import Live
from loadtest.compare import CellComparison, Comparison, Standing, compare_cell, standing
from loadtest.compare_report import draw_throughput, render, sheets
from loadtest.errors import BusyMachineError, ConfigError, ServerUnavailableError
from loadtest.figures import Spread
from loadtest.prompts import Workload
from loadtest.record import load_record
from loadtest.servers import ServerPlan, running, wait_until_quiet
from loadtest.suite import Suite, cells_of, claim_folder, collect, run_suite
from loadtest.suite_config import (
    Matrix,
    ServerEntry,
    SuiteFile,
    fill,
    make_variables,
    packaged_peers,
    pick_servers,
    read_suite,
)
from tests.loadtest.factories import CONTEXT, make_outcome, make_round, record_of

ROOT = Path(__file__).parents[2]
SCRIPTED = ("{python}", "-m", "tests.loadtest.scripted_main", "{port}")


def entry_of(name: str, *flags: str) -> ServerEntry:
    env = {"PYTHONPATH": str(ROOT)}
    return ServerEntry(name, (*SCRIPTED, *flags), ready="/ready", env=env, policy="scripted", threads="2")


def suite_of(folder: Path, *entries: ServerEntry, rounds: int = 2) -> Suite:
    file = SuiteFile(
        name="scripted",
        servers=tuple(entry.name for entry in entries),
        server=entries,
        matrix=Matrix(streams=(1, 2), max_tokens=3),
        rounds=rounds,
        max_busy=1.0,
        settle_s=0.0,
    )
    variables = make_variables(file, {})
    return Suite(file, tuple(ServerPlan.of(entry, variables) for entry in entries), folder, Live())


async def test_a_suite_runs_a_b_a_b_and_compares(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, entry_of("quick"), entry_of("slow", "--gap", "0.05", "--shift", "1"))
    await run_suite(suite)
    logs = sorted((tmp_path / "logs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    assert [log.stem for log in logs] == ["round-1-quick", "round-1-slow", "round-2-quick", "round-2-slow"]

    found = {(plan.entry.name, cell.num_streams): record for plan, cell, record in collect(suite, CONTEXT)}
    record = found["slow", 2]
    assert record == load_record(tmp_path / "records" / "slow" / "distinct-p50-s2.json")
    assert (len(record.rounds), record.server.name, record.server.threads) == (2, "slow", 2)
    assert record.parity[0].report.holds
    assert record.figure("rss_peak_mib") is not None
    assert str(ROOT) not in msgspec.json.encode(record).decode()

    by_server = {name: found[name, 2] for name in ("quick", "slow")}
    cell = compare_cell(suite.cells[1], by_server)
    duel = cell.entries[1].duel("total_tokens_per_s")
    assert duel is not None
    assert duel.standing is Standing.AHEAD
    assert duel.ratio.low > 1
    assert cell.entries[1].as_first == "0 of 2 (token ids)"


async def test_an_interrupted_suite_does_only_what_is_missing(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, entry_of("one"), rounds=2)
    await run_suite(suite)
    (plan,) = suite.plans
    kept = suite.part_path(0, plan, suite.cells[0])
    lost = suite.part_path(1, plan, suite.cells[1])
    before = kept.stat().st_mtime_ns
    lost.unlink()
    for log in (tmp_path / "logs").iterdir():
        log.unlink()
    await run_suite(suite)
    assert lost.exists()
    assert kept.stat().st_mtime_ns == before
    assert [log.stem for log in (tmp_path / "logs").iterdir()] == ["round-2-one"]


async def test_a_server_that_dies_at_start_is_named_with_its_last_words(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, entry_of("broken", "--die"))
    with pytest.raises(ServerUnavailableError, match=r"(?s)broken ended with code 1.*no such model"):
        await run_suite(suite)


async def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    plan = ServerPlan.of(ServerEntry("gone", ("/no/such/binary",)), {"port": "1"})
    with pytest.raises(ServerUnavailableError, match="gone does not start"):
        async with running(plan, tmp_path / "log", 1, Live()):
            pass


async def test_a_server_that_is_never_ready_is_stopped(tmp_path: Path) -> None:
    entry = ServerEntry("idle", (sys.executable, "-c", "import time; time.sleep(60)"), ready_timeout_s=0.2)
    plan = ServerPlan.of(entry, {"port": "9"})
    with pytest.raises(ServerUnavailableError, match="idle is not ready after 0 s"):
        async with running(plan, tmp_path / "log", 1, Live()):
            pass


async def test_a_server_that_ignores_the_signal_is_killed(tmp_path: Path) -> None:
    script = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    entry = ServerEntry("deaf", (sys.executable, "-c", script), ready_timeout_s=0.5, stop_timeout_s=0.2)
    with pytest.raises(ServerUnavailableError, match="deaf is not ready"):
        async with running(ServerPlan.of(entry, {"port": "9"}), tmp_path / "log", 1, Live()):
            pass


async def test_a_server_that_runs_already_is_used_and_left_alone(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, entry_of("mine", "--start", "0.3"))
    (plan,) = suite.plans
    async with running(plan, tmp_path / "log", 5, Live()) as server:
        found = ServerPlan.of(ServerEntry("url", url=plan.url, ready="/ready", pid=str(server.pid)), {})
        async with running(found, tmp_path / "other", 5, Live()) as again:
            assert again.pid == server.pid
        assert await server.client.get("/ready") == (200, b"ready")
        assert server.pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


async def test_a_busy_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = iter([0.9, 0.6, 0.1])

    async def scripted_share() -> float:
        return next(shares)

    monkeypatch.setattr(servers, "busy_share", scripted_share)
    assert await wait_until_quiet(0.2, wait_s=60) == 0.1
    shares = iter([0.9] * 9)
    with pytest.raises(BusyMachineError, match="90% of its CPU time is in use, 20% are allowed"):
        await wait_until_quiet(0.2, wait_s=0)


def test_a_folder_belongs_to_one_suite(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, entry_of("one"))
    variables = make_variables(suite.file, {})
    claim_folder(suite, variables, "abc")
    claim_folder(suite, variables | {"port": "1"}, "abc")
    with pytest.raises(ConfigError, match="another suite"):
        claim_folder(suite, variables, "def")
    with pytest.raises(ConfigError, match="another suite"):
        claim_folder(suite, variables | {"threads": "64"}, "abc")


def test_cells_cover_the_matrix_and_share_no_prompts() -> None:
    matrix = Matrix(streams=(1, 4), workloads=(Workload.IDENTICAL, Workload.DISTINCT), prompt_words=(50, 800))
    cells = cells_of(matrix)
    assert [cell.name for cell in cells[:3]] == ["identical-p50-s1", "identical-p50-s4", "identical-p800-s1"]
    bodies = [request.body for cell in cells for request in set(cell.shape(matrix, "m").requests(cell.num_streams))]
    assert len(set(bodies)) == len(bodies)


@pytest.mark.parametrize(
    ("metric", "low", "high", "expected"),
    [
        ("total_tokens_per_s", 1.01, 1.2, Standing.AHEAD),
        ("total_tokens_per_s", 0.99, 1.2, Standing.EVEN),
        ("total_tokens_per_s", 0.8, 0.99, Standing.BEHIND),
        ("ttft_p50_s", 1.01, 1.2, Standing.BEHIND),
        ("ttft_p50_s", 0.8, 0.99, Standing.AHEAD),
        ("rss_peak_mib", 0.8, 1.2, Standing.EVEN),
    ],
)
def test_ahead_only_when_every_round_says_so(metric: str, low: float, high: float, expected: Standing) -> None:
    assert standing(Spread(metric, (low + high) / 2, low, high)) is expected


def compared() -> Comparison:
    quick = record_of(*[make_round(make_outcome(), wall_s=wall) for wall in (1.0, 1.1)])
    slow = record_of(*[make_round(make_outcome(), wall_s=wall) for wall in (2.0, 2.1)])
    cells = cells_of(Matrix(streams=(1, 2)))
    found: tuple[CellComparison, ...] = tuple(compare_cell(c, {"quick": quick, "slow": slow}) for c in cells)
    return Comparison("two servers", ("quick", "slow"), found)


def test_a_comparison_in_words() -> None:
    text = render(compared(), CONTEXT, SuiteFile("two servers", ("quick", "slow"), Matrix()), ["a.png"])
    assert "| total (tok/s) against slow | 2 | 0 | 0 |" in text
    assert "| TTFT p50 (ms) against slow | 0 | 2 | 0 |" in text
    assert "| distinct | 50 | 2 | 2.9 (2.7 to 3.0) | 1.5 (1.4 to 1.5) | 1.95 (1.91 to 2.00) ahead |" in text
    assert "![a](a.png)" in text
    assert len(list(sheets(compared()))) == 1 + 6 + 1


def test_throughput_plots_are_the_same_every_time(tmp_path: Path) -> None:
    (first,) = draw_throughput(compared(), tmp_path)
    before = first.read_bytes()
    assert first.name == "throughput-distinct-p50.png"
    (again,) = draw_throughput(compared(), tmp_path)
    assert again.read_bytes() == before


def test_packaged_peers_can_all_be_filled_in() -> None:
    peers = packaged_peers()
    assert {"batchserve", "llama-server", "llama-server-best", "llama-cpp-python", "url"} <= set(peers)
    file = SuiteFile("s", tuple(peers), Matrix(streams=(1, 8)))
    variables = make_variables(file, {"model": "m.gguf", "url": "http://h:1", "pid": "7"})
    plans = {entry.name: ServerPlan.of(entry, variables) for entry in pick_servers(file)}
    assert plans["url"].pid == 7
    command = " ".join(plans["llama-server-best"].command)
    assert "--parallel 8 --ctx-size 16384" in command
    assert "--flash-attn off --no-kv-unified" in command


def test_the_suites_in_the_repository_can_be_read() -> None:
    for path in (ROOT / "loadtest" / "suites").glob("*.toml"):
        suite = read_suite(path)
        variables = make_variables(suite, {"model": "m.gguf"})
        assert all(ServerPlan.of(entry, variables).command for entry in pick_servers(suite))


def write_suite(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_suite_file(tmp_path: Path) -> None:
    text = """
        name = "mine"
        servers = ["batchserve", "other"]
        rounds = 5
        [variables]
        threads = 2
        [matrix]
        streams = [1, 4]
        workloads = ["identical", "mixed-length"]
        prompt_words = [50, 800]
        [[server]]
        name = "other"
        url = "http://127.0.0.1:9000"
    """
    suite = read_suite(write_suite(tmp_path / "suite.toml", text))
    assert suite.rounds == 5
    assert [entry.name for entry in pick_servers(suite)] == ["batchserve", "other"]
    assert make_variables(suite, {})["threads"] == "2"
    assert make_variables(suite, {"threads": "4"})["threads"] == "4"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = 'x'", "missing required field `servers`"),
        ("name = 'x'\nservers = ['a']\n[matrix]\nstream = [1]", "unknown field `stream`"),
        ("name = 'x'\nservers = ['a']\n[matrix]\nworkloads = ['odd']", "Invalid enum value 'odd'"),
        ("name = 'x'\nservers = []\n[matrix]", "at least one"),
        ("name = ", "suite.toml"),
    ],
)
def test_mistakes_in_a_suite_file_are_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_suite(write_suite(tmp_path / "suite.toml", text))


def test_mistakes_in_names_and_variables_are_named() -> None:
    file = SuiteFile("s", ("nobody",), Matrix())
    with pytest.raises(ConfigError, match="unknown server 'nobody'"):
        pick_servers(file)
    with pytest.raises(ConfigError, match="twice"):
        pick_servers(SuiteFile("s", ("url", "url"), Matrix()))
    with pytest.raises(ConfigError, match=r"no value for \{model\}"):
        fill("--model {model}", {})
    with pytest.raises(ConfigError, match="bad braces"):
        fill("{", {})
    with pytest.raises(ConfigError, match="not a whole number"):
        ServerPlan.of(replace_pid("many"), {"port": "1"})
    with pytest.raises(ConfigError, match="slots and ctx_per_stream"):
        make_variables(file, {"slots": "few"})


def replace_pid(pid: str) -> ServerEntry:
    return ServerEntry("url", pid=pid)
