"""The promotion rule keeps a real improvement and rejects every fake one."""

from dataclasses import replace
from pathlib import Path

import pytest

from loadtest.accept import Pair, Rule, improvement, judge, load_pairs
from loadtest.errors import ConfigError
from loadtest.parity import Against, compare_all
from loadtest.record import Record, ServerNote, load_record, save
from loadtest.requests import Sampling
from loadtest.worklog import append, entry
from tests.loadtest.factories import failed_outcome, make_outcome, make_round, record_of, with_model

TOKENS = tuple(range(20))


def recorded(
    *walls_s: float,
    ttft_s: float = 0.1,
    gap_s: float = 0.01,
    rss_mib: float = 100,
    tokens: tuple[int, ...] = TOKENS,
) -> Record:
    """A run whose total rate is given by the wall times of its rounds."""
    streams = [make_outcome(tokens, ttft_s=ttft_s, gap_s=gap_s)] * 2
    return record_of(*(make_round(*streams, wall_s=wall_s, rss_mib=rss_mib) for wall_s in walls_s))


BASE = recorded(1.0, 1.02, 0.98)
FASTER = recorded(0.8, 0.81, 0.79)


def objections(new: Record, base: Record = BASE, rule: Rule | None = None) -> tuple[str, ...]:
    return judge([Pair("run", base, new)], rule or Rule()).objections


def test_a_real_improvement_is_kept() -> None:
    judgement = judge([Pair("run", BASE, FASTER)], Rule())
    assert judgement.kept
    assert judgement.gain == pytest.approx(1.25)
    assert str(judgement.traces) == "6 of 6 traces equal (compared: token ids)"


def test_no_improvement_is_discarded() -> None:
    assert "not better" in objections(BASE)[0]
    assert "lost" in objections(BASE, base=FASTER)[0]


def test_the_median_decides_not_the_best_round() -> None:
    assert "not better" in objections(recorded(0.5, 1.0, 1.01))[0]


def test_one_other_token_is_a_fake_improvement() -> None:
    odd = make_outcome((*TOKENS[:-1], 99))
    good = make_outcome(TOKENS)
    new = record_of(*(make_round(good, odd if i == 2 else good, wall_s=0.8) for i in range(3)))
    (found,) = objections(new)
    assert found.startswith("run: traces differ: 5 of 6 traces equal")
    assert "token 19: 99 against 19" in found


def test_fewer_tokens_are_a_fake_improvement() -> None:
    found = objections(recorded(0.4, 0.4, 0.4, tokens=TOKENS[:15]))
    assert any("token counts differ: [30, 40]" in text for text in found)


def test_failed_requests_are_a_fake_improvement() -> None:
    new = record_of(*[make_round(make_outcome(TOKENS), failed_outcome(), wall_s=0.3)] * 3)
    assert any("failed requests: cut off" in text for text in objections(new))


def test_text_alone_is_not_enough_unless_allowed() -> None:
    bare = make_outcome(TOKENS, with_ids=False)
    new = record_of(*[make_round(bare, bare, wall_s=0.8)] * 3)
    assert objections(new) == ("run: traces were compared as text only, not as token ids",)
    assert objections(new, rule=Rule(allow_text=True)) == ()


def test_a_run_that_lost_parity_alone_is_discarded() -> None:
    outcome = make_outcome(TOKENS)
    broken = Against("alone", compare_all([outcome], [make_outcome((1,))]))
    assert any("loses parity against alone" in t for t in objections(replace(FASTER, parity=(broken,))))


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (recorded(0.8, 0.8, 0.8, ttft_s=0.11), "TTFT p50 (ms) grew by 10.0%, 5.0% allowed"),
        (recorded(0.8, 0.8, 0.8, gap_s=0.011), "ITL p99 (ms) grew by 10.0%, 5.0% allowed"),
        (recorded(0.8, 0.8, 0.8, rss_mib=105), "RSS peak (MiB) grew by 5.0%, 2.0% allowed"),
    ],
)
def test_what_was_promised_may_not_get_worse(new: Record, words: str) -> None:
    assert any(words in text for text in objections(new))
    lenient = Rule(max_ttft_growth=0.2, max_itl_growth=0.2, max_memory_growth=0.2)
    assert objections(new, rule=lenient) == ()


def test_latencies_too_short_to_measure_are_no_division_by_zero() -> None:
    instant = recorded(1.0, 1.0, 1.0, gap_s=0.0)
    assert "ITL p50 (ms) grew by inf%" in " ".join(objections(BASE, base=instant))
    assert improvement(Pair("run", instant, BASE), "itl_p50_s") is None


def test_memory_must_be_measured() -> None:
    rounds = [replace(r, figures=replace(r.figures, rss_peak_mib=None)) for r in FASTER.rounds]
    assert objections(record_of(*rounds)) == ("run: RSS peak (MiB) was not measured",)


def test_different_loads_are_not_compared() -> None:
    note = ServerNote("server", 4, "other flags")
    shape = replace(FASTER.load.shape, sampling=Sampling(0.8))
    cases = {
        "different model": with_model(FASTER, "other"),
        "not known by its SHA-256": with_model(FASTER, None),
        "different requests": replace(FASTER, load=replace(FASTER.load, requests_sha256="other")),
        "different number of streams": replace(FASTER, load=replace(FASTER.load, num_streams=8)),
        "different sampling": replace(FASTER, load=replace(FASTER.load, shape=shape)),
        "different server policy": replace(FASTER, server=note),
        "different server threads": replace(FASTER, server=note),
        "different CPU": replace(FASTER, environment=replace(FASTER.environment, cpu="another")),
        "new has 2 rounds, 3 are wanted": recorded(0.8, 0.8),
    }
    for words, new in cases.items():
        assert any(words in text for text in objections(new)), words


def test_a_metric_where_less_is_better() -> None:
    quicker = recorded(1.0, 1.0, 1.0, ttft_s=0.08)
    assert improvement(Pair("run", BASE, quicker), "ttft_p50_s") == pytest.approx(1.25)
    assert objections(quicker, rule=Rule(metric="ttft_p50_s")) == ()


def test_a_gain_in_one_load_does_not_pay_for_a_loss_in_another() -> None:
    slower = recorded(1.1, 1.1, 1.1)
    judgement = judge([Pair("a", BASE, FASTER), Pair("b", BASE, slower)], Rule())
    assert judgement.gain is not None
    assert judgement.gain > 1.01
    assert judgement.objections == ("b: total (tok/s) lost 9.1%",)


def test_records_survive_a_file(tmp_path: Path) -> None:
    save(FASTER, tmp_path / "run" / "record.json")
    assert load_record(tmp_path / "run") == FASTER
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["record.json"]


def test_folders_of_records_are_paired_by_name(tmp_path: Path) -> None:
    for side, record in (("base", BASE), ("new", FASTER)):
        save(record, tmp_path / side / "distinct-p50-s4.json")
    (pair,) = load_pairs(tmp_path / "base", tmp_path / "new")
    assert (pair.name, pair.new) == ("distinct-p50-s4", FASTER)
    save(BASE, tmp_path / "new" / "more.json")
    with pytest.raises(ConfigError, match="more"):
        load_pairs(tmp_path / "base", tmp_path / "new")


@pytest.mark.parametrize("text", ["", "{}", '{"schema_version": 1}', "[1]"])
def test_what_is_no_record_is_one_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"record\.json"):
        load_record(path)
    with pytest.raises(ConfigError, match="no records"):
        load_pairs(tmp_path / "nowhere", path)


def test_a_record_of_another_schema_is_refused(tmp_path: Path) -> None:
    save(replace(BASE, schema_version=99), tmp_path / "record.json")
    with pytest.raises(ConfigError, match="schema 99"):
        load_record(tmp_path)


def test_the_worklog_grows_by_one_entry_each_time(tmp_path: Path) -> None:
    path = tmp_path / "docs" / "worklog.md"
    append(path, judge([Pair("run", BASE, FASTER)], Rule()), "larger chunks")
    append(path, judge([Pair("run", BASE, BASE)], Rule()), "no chunks")
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Worklog\n")
    assert text.index("KEEP: larger chunks") < text.index("DISCARD: no chunks")
    assert "| total (tok/s) | 40.0 (39.2 to 40.8) | 50.0 (49.4 to 50.6) | +25.0% |" in text
    assert "- objection: not better" in text


def test_an_entry_says_what_it_rests_on() -> None:
    text = entry(judge([Pair("run", BASE, FASTER)], Rule()), "why")
    assert "6 of 6 traces equal (compared: token ids)" in text
    assert "total (tok/s): +25.0% over 1 load(s)" in text
