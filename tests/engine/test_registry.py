"""Names of one's own are used, listed, guessed at and refused like those that come along, and each name stands once."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import paceline
from paceline import LLM, register_controller, register_drafter, register_verifier
from paceline.choices import CONTROLLERS, DRAFTERS, VERIFIERS
from paceline.config import LLMConfig
from paceline.core.request import SamplingParams
from paceline.core.tree import Draft, TokenTree
from paceline.draft.base import Drafter
from paceline.errors import UsageError
from paceline.verify.coupled import CoupledVerifier

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "tools"))

from write_tables import PAGE, ROOT, written

PARAMS = SamplingParams(max_tokens=40, ignore_eos=True)
PROMPT = "the cat sat on the mat"
EXAMPLE = next(
    block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "register_" in block
)


class Again(Drafter):
    """Guesses that the last token comes once more, by no distribution, or by the distribution of a liar."""

    def __init__(self, distribution=None):
        self.distribution = distribution

    def propose(self, views, budgets):
        drafts = []
        for view, budget in zip(views, budgets, strict=True):
            count = min(budget.nodes, budget.depth)
            tree = TokenTree.chain([int(view.tokens[-1])] * (count + 1))
            draft = Draft(tree, np.full(count + 1, 0.5, np.float32), np.zeros(count + 1, np.int8))
            if self.distribution is not None and count:
                drawn = np.arange(count + 1) > 0
                draft = Draft(
                    tree, draft.acceptance_prob, draft.source, dict.fromkeys(range(count), self.distribution), drawn
                )
            drafts.append(draft)
        return drafts


class Pairs:
    """Two guesses a round."""

    reason = "two a round"

    def __init__(self, most):
        self.most = min(2, most)

    def budgets(self, views, load):
        return [paceline.core.round.Budget(self.most, self.most)] * len(views)

    def observe(self, sequence_id, round):
        pass


def test_the_tables_of_the_documentation_are_the_registries():
    assert written(PAGE.read_text()) == PAGE.read_text(), "run: python tools/write_tables.py"


@pytest.mark.parametrize("registry", [DRAFTERS, VERIFIERS, CONTROLLERS], ids=lambda registry: registry.option)
def test_names_of_choices_stand_only_in_the_expected_modules(registry):
    """Defaults, the source a drafter goes by and what a command does by one name are meant; lists of names are not."""
    lists = {}
    for path in (ROOT / "paceline").rglob("*.py"):
        found = {name for name in registry if f'"{name}"' in path.read_text()}
        if len(found) > 3 and path.name != "choices.py":
            lists[path.name] = found
    assert lists == {}


def test_every_choice_can_be_made_or_its_module_found():
    for registry in (DRAFTERS, VERIFIERS, CONTROLLERS):
        for choice in registry.values():
            assert callable(paceline.registry.imported(choice.factory)), choice.name


def test_a_registered_look_up_joins_a_model_where_distributions_count(talker, own_names, tmp_path):
    register_drafter("again", lambda setting, argument: Again())
    model = tmp_path / "copy.gguf"
    model.write_bytes(Path(talker).read_bytes())
    llm = LLM(talker, draft=f"again,{model}", verify="rejection", control="fixed", draft_tokens=4, context=256)
    reply = llm.generate(PROMPT, SamplingParams(0.8, max_tokens=40, ignore_eos=True))
    assert reply.setup.drafters == ("again", "copy")
    assert reply.metrics.by_source["again"]["drafted"] > 0
    assert reply.metrics.by_source["copy"]["accepted"] > 0


def test_only_one_drafter_draws_where_distributions_are_weighed(own_names):
    register_drafter("again", lambda setting, argument: Again(), draws=True)
    with pytest.raises(UsageError, match=r"got `again` and `model\.gguf`"):
        LLMConfig.of(draft="again,model.gguf", verify="rejection")
    LLMConfig.of(draft="again,ngram", verify="rejection")
    LLMConfig.of(draft="again,model.gguf")


@pytest.mark.parametrize("draws", [False, True])
def test_distributions_are_taken_only_from_drafters_registered_to_draw(talker, own_names, draws):
    vocab = LLM(talker, draft="off", context=64).target.model.spec.vocab
    register_drafter("liar", lambda setting, argument: Again(np.full(vocab, 1 / vocab)), draws=draws)
    llm = LLM(talker, draft="liar", verify="rejection", control="fixed", draft_tokens=2, context=256)
    if draws:
        assert len(llm.generate(PROMPT, PARAMS).token_ids) == 40
    else:
        with pytest.raises(UsageError, match="`liar` must be registered with draws=True"):
            llm.generate(PROMPT, PARAMS)


def test_a_registered_verifier_and_controller_are_used_by_name(talker, own_names):
    class Trusting(CoupledVerifier):
        lossless = reproducible = False

    register_verifier("trusting", Trusting, how="trusts")
    register_controller("pairs", Pairs, how="two a round")
    reply = LLM(talker, draft="ngram", verify="trusting", control="pairs", context=256).generate(PROMPT, PARAMS)
    assert (reply.setup.verify, reply.setup.control) == ("trusting", "pairs")
    assert not reply.setup.lossless
    assert not reply.setup.reproducible
    assert reply.control_reason == "two a round"
    rounds = reply.metrics
    assert 0 < rounds.drafted_tokens <= 2 * rounds.rounds


def test_registered_names_are_guessed_at_and_incomplete_ones_refused(own_names):
    register_verifier("trusting", lambda: object())
    register_controller("pairs", lambda most: object())
    for settings, near in (({"verify": "trustin"}, "trusting"), ({"control": "pair"}, "pairs")):
        with pytest.raises(UsageError) as caught:
            LLMConfig.of(**settings)
        assert caught.value.hint == f"did you mean `{near}`?"
    with pytest.raises(
        UsageError, match=r"verifier `trusting` must have .*lacks `verify, lossless, draws, reproducible`"
    ):
        LLMConfig.of(verify="trusting")


def test_an_incomplete_controller_is_refused_when_it_is_made(talker, own_names):
    register_controller("pairs", lambda most: object())
    with pytest.raises(UsageError, match=r"controller `pairs` must have .*lacks `budgets, observe, reason`"):
        LLM(talker, draft="ngram", control="pairs", context=64)


@pytest.mark.parametrize("register", [register_drafter, register_verifier, register_controller])
@pytest.mark.parametrize("name", ["", "a,b", "a/b", "a:b", "a+b"])
def test_a_name_that_reads_as_something_else_is_refused(own_names, register, name):
    with pytest.raises(UsageError, match="must have no comma"):
        register(name, lambda *arguments: None)


def test_the_documented_example_runs_and_its_names_reach_the_help(talker, tmp_path):
    """In a process of its own: help is made when a command is first called."""
    program = tmp_path / "program.py"
    calls = "import sys\nfrom paceline.cli.main import run\nsys.exit(run(['generate', '--help']))\n"
    program.write_text(EXAMPLE.replace("smollm2-135m", str(talker)) + calls)
    ran = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, env={"COLUMNS": "400", "PACELINE_MEMORY": "off"}
    )
    assert ran.returncode == 0, ran.stderr
    for said in ("again[:ARGUMENT] (the last token once more)", "careful (one guess a round at", "pairs (two a round)"):
        assert said in ran.stdout, ran.stdout
    assert "'again': {'drafted'" in ran.stdout
