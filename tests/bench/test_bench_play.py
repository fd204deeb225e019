"""Ways take turns on the same prompt, differing replies are found, and what is counted adds up."""

import random
from dataclasses import replace

import pytest
from run_tools import TableRig, completion, prompt, prompts, reply, round_of, start

from paceline.bench.counts import added, counted
from paceline.bench.measure import play
from paceline.bench.peer import PeerError, Timings
from paceline.bench.show import notes
from paceline.bench.summary import summarise
from paceline.bench.ways import Played, Way, draft_model, ways_of
from paceline.bench.workloads import Ask
from paceline.core.round import Spent
from paceline.errors import UsageError

A, B = Way("ngram"), Way("small", draft_tokens=2)
ASKS = [(Ask("code", i, "Why?", 8), 0.0) for i in range(3)]
TABLE = {"plain": [1, 2, 3], A.name: [1, 2, 3], B.name: [1, 2, 3]}


class FakePeer:
    pid = 1

    def __init__(self, fails_at=99):
        self.asked, self.closed, self.fails_at = [], False, fails_at

    def complete(self, tokens, count, **options):
        self.asked.append((count, options))
        if len(self.asked) > self.fails_at:
            raise PeerError("gone")
        return Timings(3, 0.1, 3, 0.5, 4, 2)

    def close(self):
        self.closed = True


def played(rig, **options):
    return list(play(rig, ASKS, rng=random.Random(1), **options))


def test_every_way_plays_every_prompt_in_rotating_order():
    rig = TableRig([A, B], TABLE)
    records = played(rig)
    assert [list(record["replies"]) for record in records] == [["plain", A.name, B.name]] * 3
    turns = rig.played[3:]  # after the warm-up
    assert [turns[i : i + 3] for i in (0, 3, 6)] == [
        ["plain", A.name, B.name],
        [A.name, B.name, "plain"],
        [B.name, "plain", A.name],
    ]


def test_no_prompt_is_asked_twice_unless_wanted():
    rig = TableRig([A], TABLE)
    records = played(rig)
    assert len(set(rig.asked[1:])) == 3
    assert all(str(record["request"]) in text for record, text in zip(records, rig.asked[1:], strict=True))
    rig = TableRig([A], TABLE)
    assert [record["request"] for record in play(rig, ASKS, rng=None)] == [None] * 3
    assert rig.asked[1:] == ["Why?"] * 3


def test_a_reply_that_differs_is_found_with_its_place():
    (first, *_) = played(TableRig([A, B], {**TABLE, B.name: [1, 9, 3]}))
    assert first["replies"][A.name]["difference"] is None
    assert first["replies"][B.name]["difference"] == {"position": 1, "plain": [2], "speculated": [9]}
    found = summarise({"replay": False}, [start()], [{**first, "neighbour_cores": 0}])
    assert found["compared"] == 2
    (entry,) = found["mismatches"]
    assert (entry["way"], entry["workload"], entry["position"]) == (B.name, "code", 1)


def test_replies_that_may_differ_are_not_compared():
    (first, *_) = played(TableRig([A], {**TABLE, A.name: [9]}, comparable=False))
    assert "difference" not in first["replies"][A.name]
    assert summarise({}, [], [first])["compared"] == 0


def test_a_peer_continues_by_as_many_tokens_unless_lost():
    steady, frail = FakePeer(), FakePeer(fails_at=2)
    records = played(TableRig([A], TABLE), peers={"p plain": steady, "p draft": frail})
    assert [set(record["peers"]) for record in records] == [{"p plain", "p draft"}, {"p plain"}, {"p plain"}]
    assert records[1]["lost"] == {"p draft": "gone"}
    assert frail.closed
    assert records[0]["peers"]["p plain"] == {"tokens_per_second": 4.0, "tokens": 3, "drafted": 4, "accepted": 2}
    assert steady.asked[1] == (3, {"temperature": 0.0, "seed": 0, "ignore_eos": False})
    assert summarise({}, [], records)["lost_peers"] == ["p draft"]


def test_a_peer_failing_in_warm_up_is_left_out():
    records = played(TableRig([A], TABLE), peers={"p plain": FakePeer(fails_at=0)})
    assert [record["lost"] for record in records] == [{"p plain": "gone"}, {}, {}]
    assert all(record["peers"] == {} for record in records)


def test_only_uncut_depths_below_accepted_parents_count():
    rounds = [
        round_of([], [], committed=0, rows=40),
        round_of([], [], rows=3),  # the first token
        round_of([1, 1, 1], [1, 1, 0], rows=4, committed=3, by_source={"a": (3, 2)}, spent={"a": Spent(3, 0.5)}),
        round_of([2, 3], [0, 0], rows=6, by_source={"a": (4, 0), "b": (1, 0)}, spent={"a": Spent(2, 0.25, read=30)}),
        round_of([1, 1], [1, 0], rows=3, censored=True),
    ]
    found = counted(Played(completion([1, 2, 3]), rounds, "why"))
    assert found["by_depth"] == [[2, 1], [1, 1], [1, 0]]
    assert found["by_source"] == {"a": [7, 2, 3, 0.5, 0.25], "b": [1, 0, 0, 0.0, 0.0]}
    assert found["by_rows"] == {"3": [1, 0.25], "4": [1, 0.25], "6": [1, 0.25]}
    assert found["decode_rounds"] == 3
    assert found["reason"] == "why"


def test_what_drafters_read_before_the_first_token_is_their_time():
    """Two tokens in 0.2 s of decoding, which has all drafting after the first token, and 0.3 s of reading before."""
    drafting = [0.25, 0.05, 9.0]
    rounds = [round_of([], [], committed=count) for count in (0, 1, 2)]
    rounds = [replace(one, draft_seconds=seconds) for one, seconds in zip(rounds, drafting, strict=True)]
    rounds[0] = replace(rounds[0], spent={"a": Spent(0, 0.25, read=90)})
    found = counted(Played(completion([1, 2, 3]), rounds, ""))
    assert found["reading_seconds"] == pytest.approx(0.3)
    assert found["tokens_per_second"] == pytest.approx(2 / 0.5)
    assert found["by_source"]["a"] == [0, 0, 0, 0.0, 0.0], "seconds of decoding only"
    assert counted(Played(completion([1]), rounds, ""))["tokens_per_second"] == 0


def test_sums_of_replies_add_up_by_depth_and_source():
    one, two = reply(10.0, source="a", depths=[(20, 10), (10, 5)]), reply(10.0, source="b", depths=[(40, 30)])
    total = added([one, two, one])
    assert total["by_depth"] == [[80, 50], [20, 10]]
    assert total["by_source"]["a"][:2] == [60, 30]
    assert total["tokens"] == 300
    assert added([])["by_depth"] == []


def test_workloads_weigh_the_same_however_many_prompts_they_have():
    found = summarise({}, [start()], prompts())["temperatures"]["0"]
    ngram = found["all"]["ways"]["ngram fixed:4"]
    assert found["workloads"]["code"]["ways"]["ngram fixed:4"]["speedup_geometric_mean"] == pytest.approx(2.0)
    assert ngram["speedup_geometric_mean"] == pytest.approx(2**0.5, rel=1e-5)  # 2 on code, 1 on chat
    assert ngram["speedup"]["median"] == 2.0
    assert found["workloads"]["code"]["best"] == "ngram fixed:4"
    assert found["workloads"]["chat"]["best"] == "small fixed:2"
    assert ngram["by_depth"][0] == {"tested": 80, "accepted": 40, "rate": 0.5}
    assert ngram["by_source"]["ngram"]["rate"] == 0.5
    assert ngram["acceptance_length"] == pytest.approx(400 / 340, rel=1e-5)


def test_best_is_held_against_the_peers_best_per_workload():
    def peers(plain, mod):
        return {
            name: {"tokens_per_second": rate, "tokens": 9, "drafted": 0, "accepted": 0}
            for name, rate in (("p plain", plain), ("p mod", mod))
        }

    found = summarise(
        {},
        [start()],
        [
            prompt("code", 0, 10.0, 40.0, 15.0, peers=peers(5.0, 10.0)),
            prompt("chat", 0, 10.0, 9.0, 12.0, peers=peers(12.0, 3.0)),
        ],
    )["temperatures"]["0"]
    assert found["workloads"]["code"]["best_peer"] == "p mod"
    assert found["workloads"]["chat"]["best_peer"] == "p plain"
    assert found["workloads"]["code"]["ways"]["small fixed:2"]["vs_peer_geometric_mean"] == 1.5
    assert found["all"]["ways"]["ngram fixed:4"]["vs_peer_geometric_mean"] == pytest.approx(3**0.5, rel=1e-5)
    assert found["all"]["vs_peer_geometric_mean"] == pytest.approx(2.0)


def test_notes_say_what_spoils_numbers():
    busy = {**prompts()[0], "neighbour_cores": 1.5}
    starts = [{**start("a"), "too_long": ["rag 1"]}, {**start("b"), "missing_peers": {"p draft": "no file"}}]
    said = "\n".join(notes({**summarise({"replay": True}, starts, [busy]), "interrupted": True}))
    for word in ("a, b", "rag 1", "p draft: no file", "1.50 cores", "without a number", "interrupted"):
        assert word in said
    assert notes(summarise({"replay": False}, [start()], prompts())) == []


def test_every_combination_is_a_way_once():
    ways = ways_of(["ngram", "ngram", "small"], ["fixed", "fixed:2", "fixed:4"], ["coupled"], 4)
    assert [way.name for way in ways] == [
        "ngram fixed:4",
        "ngram fixed:2",
        "small fixed:4",
        "small fixed:2",
    ]


@pytest.mark.parametrize("control", ["fixed:", "fixed:0", "fixed:65", "fixed:x", "optimal:3"])
def test_a_length_that_is_none_is_a_wrong_call(control):
    with pytest.raises(UsageError, match=f"got `{control}`"):
        ways_of(["ngram"], [control], ["coupled"], 4)


def test_the_draft_model_is_the_name_that_no_drafter_has():
    assert draft_model(["ngram", "ngram,small.gguf"]) == "small.gguf"
    assert draft_model(["ngram", "auto"]) is None
