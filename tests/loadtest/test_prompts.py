"""Workloads and requests follow from the seed and nothing else."""

from pathlib import Path

import msgspec
import pytest

from loadtest.errors import ConfigError
from loadtest.prompts import Workload, make_budgets, make_prompts
from loadtest.requests import Endpoint, IdSource, Request, Sampling, Shape, digest, read_requests, repeat


def body(request: Request) -> dict[str, object]:
    return msgspec.json.decode(request.body, type=dict[str, object])


@pytest.mark.parametrize("workload", list(Workload))
def test_the_same_seed_gives_the_same_prompts(workload: Workload) -> None:
    assert make_prompts(workload, 4, 20, 1) == make_prompts(workload, 4, 20, 1)
    assert make_prompts(workload, 4, 20, 1) != make_prompts(workload, 4, 20, 2)


def test_prompts_never_change_between_versions() -> None:
    assert make_prompts(Workload.DISTINCT, 1, 5, 0) == ["teacher back father guy office"]


def test_how_prompts_relate() -> None:
    assert len(set(make_prompts(Workload.IDENTICAL, 4, 20, 0))) == 1
    assert len(set(make_prompts(Workload.DISTINCT, 4, 20, 0))) == 4
    shared = [prompt.split() for prompt in make_prompts(Workload.SHARED_PREFIX, 4, 80, 0)]
    assert all(len(words) == 80 and words[:70] == shared[0][:70] for words in shared)
    assert len({tuple(words[70:]) for words in shared}) == 4
    mixed = make_prompts(Workload.MIXED_LENGTH, 4, 80, 0)
    assert [len(prompt.split()) for prompt in mixed] == [20, 40, 60, 80]


def test_mixed_budgets_go_from_one_token_to_the_maximum() -> None:
    assert make_budgets(Workload.MIXED_LENGTH, 4, 64) == [64, 43, 22, 1]
    assert make_budgets(Workload.MIXED_LENGTH, 1, 64) == [64]
    assert make_budgets(Workload.DISTINCT, 3, 64) == [64] * 3


def test_a_greedy_chat_request() -> None:
    (request,) = Shape("m", max_tokens=5).requests(1)
    fields = body(request)
    assert request.path == "/v1/chat/completions"
    assert fields["temperature"] == 0
    assert "seed" not in fields
    assert fields["ignore_eos"] is True
    assert fields["return_token_ids"] is True
    assert fields["stream_options"] == {"include_usage": True}


def test_sampled_streams_have_seeds_of_their_own() -> None:
    shape = Shape("m", Endpoint.COMPLETIONS, sampling=Sampling(0.8, seed=5))
    assert [body(request)["seed"] for request in shape.requests(3)] == [5, 6, 7]


def test_ids_by_logprobs() -> None:
    fields = body(Shape("m", ids=IdSource.LOGPROBS).requests(1)[0])
    assert fields["logprobs"] is True
    assert "return_token_ids" not in fields
    assert body(Shape("m", Endpoint.COMPLETIONS, ids=IdSource.LOGPROBS).requests(1)[0])["logprobs"] == 1


def test_the_digest_knows_prompts_and_ignores_names() -> None:
    same = digest(Shape("a").requests(2))
    assert same == digest(Shape("b", ids=IdSource.LOGPROBS).requests(2))
    assert same != digest(Shape("a", seed=1).requests(2))
    assert same != digest(Shape("a", max_tokens=63).requests(2))


def test_prompts_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("first\n\nsecond\n", encoding="utf-8")
    requests = read_requests(path, Shape("m", Endpoint.COMPLETIONS))
    assert [body(request)["prompt"] for request in requests] == ["first", "second"]
    assert [body(request)["prompt"] for request in repeat(requests, 3)] == ["first", "second", "first"]


def test_whole_requests_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text('{"prompt": "p", "stop": ["x"], "stream": false}\n{"messages": []}\n', encoding="utf-8")
    first, second = read_requests(path, Shape("m"))
    assert (first.path, second.path) == ("/v1/completions", "/v1/chat/completions")
    assert body(first)["stop"] == ["x"]
    assert body(first)["stream"] is True
    assert "ignore_eos" not in body(first)


@pytest.mark.parametrize("text", ["", "\n\n", "[1]\n", "{\n"])
def test_bad_files_are_one_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"bad\.jsonl"):
        read_requests(path, Shape("m"))
    with pytest.raises(ConfigError, match="missing"):
        read_requests(tmp_path / "missing", Shape("m"))
