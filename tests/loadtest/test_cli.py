"""The commands as a user gives them: exit codes, files, one-line errors."""

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from loadtest import cli, plots
from loadtest.client import Live
from loadtest.errors import LoadtestError
from loadtest.progress import describe, progress_line
from loadtest.record import load_record
from tests.loadtest.scripted import Call, Script, obedient, serving, tokens_of

SMALL = ("--max-tokens", "4", "--prompt-words", "5")


@contextmanager
def server(script: Callable[[Call], Script] = obedient) -> Iterator[str]:
    """A scripted server in a thread of its own: commands run an event loop themselves."""
    ready, over = threading.Event(), threading.Event()
    urls = []

    async def serve() -> None:
        async with serving(script) as running:
            urls.append(running.url)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(10)
        yield urls[0]
    finally:
        over.set()
        thread.join()


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(cli.app, arguments, env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit | LoadtestError):
        raise result.exception
    return result


def test_cohort_writes_a_record_a_report_and_plots(tmp_path: Path) -> None:
    with server() as url:
        result = run("cohort", "--url", url, "--streams", "3", "--rounds", "2", "--out", str(tmp_path), *SMALL)
    assert result.exit_code == 0
    assert "Parity against alone holds: 6 of 6 traces equal (compared: token ids)." in result.output
    assert {path.name for path in tmp_path.iterdir()} == {
        "record.json",
        "report.md",
        "ttft.png",
        "itl.png",
        "timeline.png",
    }
    record = load_record(tmp_path)
    assert (record.kind, len(record.rounds), record.load.num_streams) == ("cohort", 2, 3)
    assert record.environment.cpu
    assert record.rounds[0].outcomes[0].choices[0].token_ids
    again = run("show", str(tmp_path), "--out", str(tmp_path / "again"))
    assert again.exit_code == 0
    assert (tmp_path / "again" / "timeline.png").read_bytes() == (tmp_path / "timeline.png").read_bytes()
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "| TTFT p95 (ms) |" in report
    assert "![timeline](timeline.png)" in report


def test_cohort_fails_when_parity_does() -> None:
    def script(call: Call) -> Script:
        return Script((*tokens_of(call)[:-1], call.number))

    with server(script) as url:
        result = run("cohort", "--url", url, "--streams", "2", *SMALL)
    assert result.exit_code == 1
    assert "Parity against alone FAILS: 0 of 2 traces equal" in result.output


def test_cohort_fails_when_a_request_does_and_names_the_reason() -> None:
    with server(lambda call: Script(tokens_of(call), cut_after=2)) as url:
        result = run("cohort", "--url", url, "--streams", "2", "--no-parity", *SMALL)
    assert result.exit_code == 1
    assert "cut off" in result.output


def test_plots_are_deterministic_and_the_lack_of_matplotlib_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server() as url:
        run("cohort", "--url", url, "--out", str(tmp_path), *SMALL)
        record = load_record(tmp_path)
        before = {path: path.read_bytes() for path in plots.draw_record(record, tmp_path)}
        assert {path: path.read_bytes() for path in plots.draw_record(record, tmp_path)} == before
        monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
        result = run("cohort", "--url", url, "--out", str(tmp_path / "bare"), *SMALL)
    assert result.exit_code == 0
    assert "no plots without matplotlib" in result.output
    assert {path.name for path in (tmp_path / "bare").iterdir()} == {"record.json", "report.md"}


def test_arrivals_sweep(tmp_path: Path) -> None:
    with server() as url:
        arguments = ("--rates", "20,40", "--duration", "0.3", "--out", str(tmp_path), *SMALL)
        result = run("arrivals", "--url", url, *arguments)
    assert result.exit_code == 0
    assert "Knee: 40.00 requests per second" in result.output
    assert [point.rate_per_s for point in load_record(tmp_path).arrivals] == [20, 40]
    assert (tmp_path / "goodput.png").exists()


def test_arrivals_from_a_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    trace.write_text("0\n0.05\n0.1\n", encoding="utf-8")
    with server() as url:
        result = run("arrivals", "--url", url, "--trace", str(trace), *SMALL)
    assert result.exit_code == 0
    assert "30.00" in result.output


def test_interfere() -> None:
    with server(lambda call: Script(tokens_of(call), gap_s=0.02)) as url:
        arguments = ("--streams", "2", "--max-tokens", "15", "--long-words", "50", "--every", "0.05")
        result = run("interfere", "--url", url, *arguments)
    assert result.exit_code == 0
    assert "2 of 2 long prompts were answered" in result.output


def test_soak(tmp_path: Path) -> None:
    with server(lambda call: Script(tokens_of(call), ttft_s=0.02)) as url:
        arguments = ("--minutes", "0.003", "--out", str(tmp_path), *SMALL)
        result = run("soak", "--url", url, *arguments)
    assert result.exit_code == 0
    assert "passed: memory growth not known" in result.output
    assert (tmp_path / "memory.png").exists()


def test_parity_of_several_sizes_and_against_a_recorded_run(tmp_path: Path) -> None:
    sizes = ("--streams", "1,3", *SMALL)
    with server() as url:
        assert run("parity", "--url", url, "--out", str(tmp_path), *sizes).exit_code == 0
        again = run("parity", "--url", url, "--against", str(tmp_path), "--no-alone", *sizes)
        assert again.exit_code == 0
        assert "4 of 4 traces equal" in again.output
        other = run("parity", "--url", url, "--against", str(tmp_path), "--streams", "2", *SMALL)
        assert "the recorded run sent other requests" in str(other.exception)
    with server(lambda call: Script((*tokens_of(call)[:-1], 0))) as url:
        changed = run("parity", "--url", url, "--against", str(tmp_path), *sizes)
    assert changed.exit_code == 1
    assert "Parity against alone holds" in changed.output
    assert "FAILS: 0 of 4 traces equal" in changed.output


def test_parity_against_another_server() -> None:
    with server() as url, server() as other:
        result = run("parity", "--url", url, "--against-url", other, *SMALL)
    assert result.exit_code == 0
    assert f"Parity against {other} holds" in result.output


def test_prompts_from_a_file_set_the_number_of_streams(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a", "max_tokens": 2}\n' * 3, encoding="utf-8")
    with server() as url:
        result = run("cohort", "--url", url, "--prompts", str(path))
    assert "3 of 3 traces equal" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("cohort", "--url", "nowhere"), "not an http or https URL"),
        (("cohort", "--url", "http://127.0.0.1:9"), "no answer from 127.0.0.1:9"),
        (("cohort", "--url", "http://127.0.0.1:9", "--server-pid", "4194303"), "no process 4194303"),
        (("parity", "--url", "http://127.0.0.1:9", "--streams", "1,x"), "--streams"),
        (("parity", "--url", "http://127.0.0.1:9", "--no-alone"), "nothing to compare with"),
        (("parity", "--url", "http://127.0.0.1:9", "--against", "/no/record"), "cannot read"),
        (("arrivals", "--url", "http://127.0.0.1:9", "--model", "m", "--rates", "0"), "above zero"),
        (("cohort", "--url", "http://127.0.0.1:9", "--out", "/dev/null/x"), "cannot write to /dev/null/x"),
        (("suite", "/no/suite.toml", "--out", "x"), "cannot read"),
        (("accept", "/no/base", "/no/new", "--reason", "r"), "no records in"),
    ],
)
def test_what_a_user_can_mend_is_one_line(
    arguments: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["loadtest", *arguments])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert words in " ".join(lines)
    assert "Traceback" not in lines[0]


def test_a_server_that_lists_no_model(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with server() as url:
        monkeypatch.setattr("sys.argv", ["loadtest", "cohort", "--url", f"{url}/elsewhere"])
        with pytest.raises(SystemExit):
            cli.main()
    assert "name it with --model" in capsys.readouterr().err


def test_a_dead_server_with_a_named_model_is_counted() -> None:
    result = run("cohort", "--url", "http://127.0.0.1:9", "--model", "m", "--streams", "2")
    assert result.exit_code == 1
    assert "connection refused" in result.output


def test_suite_and_accept_end_to_end(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    text = f"""
        name = "two builds"
        servers = ["before", "after"]
        rounds = 2
        max_busy = 1.0
        settle_s = 0.0
        [matrix]
        streams = [2]
        max_tokens = 4
        [[server]]
        name = "before"
        command = ["{{python}}", "-m", "tests.loadtest.scripted_main", "{{port}}", "--gap", "0.05"]
        ready = "/ready"
        env = {{ PYTHONPATH = "{root}" }}
        [[server]]
        name = "after"
        command = ["{{python}}", "-m", "tests.loadtest.scripted_main", "{{port}}"]
        ready = "/ready"
        env = {{ PYTHONPATH = "{root}" }}
    """
    file, out, model = tmp_path / "suite.toml", tmp_path / "out", tmp_path / "model.gguf"
    file.write_text(text, encoding="utf-8")
    model.write_bytes(b"weights")
    done = run("suite", str(file), "--out", str(out), "--set", f"model={model}", "--host", "here")
    assert done.exit_code == 0, done.output
    assert "two builds" in (out / "comparison.md").read_text(encoding="utf-8")
    assert (out / "throughput-distinct-p50.png").exists()

    records, worklog = out / "records", tmp_path / "worklog.md"
    tolerant = (
        "--min-rounds",
        "2",
        "--max-memory-growth",
        "0.5",
        "--max-ttft-growth",
        "9",
        "--max-itl-growth",
        "9",
    )
    rule = ("--reason", "no pauses", "--worklog", str(worklog), *tolerant)
    kept = run("accept", str(records / "before"), str(records / "after"), *rule)
    assert kept.exit_code == 0, kept.output
    back = run("accept", str(records / "after"), str(records / "before"), *rule)
    assert back.exit_code == 1
    assert re.findall(r"KEEP|DISCARD", worklog.read_text(encoding="utf-8")) == ["KEEP", "DISCARD"]


def test_peers_are_listed() -> None:
    result = run("peers")
    assert "llama-server-best: separate KV buffers, flash attention off" in result.output


class Terminal:
    """A stream that says it is a terminal."""

    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


async def test_the_live_line() -> None:
    live = Live(label="round 1 of 2", num_finished=3)
    assert describe(live, 4.2) == "round 1 of 2: 0 running, 3 done, 0 packets, 4 s"
    terminal = Terminal()
    async with progress_line(live, terminal, period_s=0.01):  # type: ignore[arg-type]
        await asyncio.sleep(0.05)
    assert "round 1 of 2" in terminal.text
    assert terminal.text.endswith("\r\x1b[2K")


def test_every_option_in_the_documentation_exists() -> None:
    text = (Path(__file__).parents[2] / "docs" / "loadtest.md").read_text(encoding="utf-8")
    known = set()
    for command in ("cohort", "arrivals", "interfere", "soak", "parity", "suite", "accept", "show"):
        known |= set(re.findall(r"--[a-z][a-z-]+", run(command, "--help").output))
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", "").splitlines()]
    loadtest_lines = [line for line in lines if "loadtest" in line]
    used = {option for line in loadtest_lines for option in re.findall(r"(?<= )--[a-z][a-z-]+", line)}
    assert used
    assert used <= known
