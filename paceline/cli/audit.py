"""`paceline audit`: is the output really the same?"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli import options as o
from paceline.cli.finite import finite
from paceline.cli.texts import read_file

if TYPE_CHECKING:
    from paceline.audit.audit import Audit
    from paceline.service.llm import LLM

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)

_EXAMPLES = """\
[bold]Examples[/bold]

  paceline audit --model qwen2.5-coder-1.5b --draft qwen2.5-coder-0.5b

  paceline audit --draft suffix --prompts ours.txt --max-tokens 200

  paceline audit --frequency-penalty 0.5 --bad-word sorry --temperature 1

  paceline audit --verify block --json > audit.json || echo "speculation changed something"
"""


@app.command(epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@o.takes(*o.LOADING, "prediction", *o.DRAWING, *o.ENDING, "threads", max_tokens=40, temperature=0.8, control="fixed")
def audit(
    given: o.Shared,
    prompts: Annotated[
        Path | None,
        typer.Option(
            help="Your prompts: one a line, or a JSON list. Twenty of ours if not given.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    distribution_seconds: Annotated[
        float,
        typer.Option(
            help="Seconds for the statistical check of the distribution; 0 leaves it out.",
            metavar="S",
            min=0,
            callback=finite,
        ),
    ] = 15.0,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object to stdout.")] = False,
) -> int:
    """Prove that speculation changes nothing on this machine, with this pair.

    Answers every prompt plainly and with speculation, greedily and at --temperature, and compares token by token;
    reads every speculated reply once more and checks that the target alone would have drawn each token; compares many
    short replies over a few tokens with the target's distribution. Every round drafts unless --control says otherwise.
    Exit code 1 if anything differs, and if nothing was drafted.
    """
    from paceline.audit.audit import Audit
    from paceline.audit.audit import audit as run
    from paceline.audit.prompts import OURS, read
    from paceline.cli.main import INTERRUPTED
    from paceline.cli.terminal import importing

    asked = list(OURS) if prompts is None else read(prompts)
    config, params = given.chosen()
    expected = None if given.prediction is None else read_file(given.prediction, "--prediction")
    with importing():
        from paceline.engine.progress import counting
        from paceline.service.llm import LLM

    llm = LLM(**asdict(config), progress=True)
    found, interrupted = Audit({}), False
    try:
        with counting("auditing", (2 if params.temperature else 1) * len(asked) + 1, True) as show:
            run(
                llm,
                asked,
                params,
                temperature=params.temperature,
                prediction=expected,
                distribution_seconds=distribution_seconds,
                found=found,
                progress=(lambda done, total: show(done)) if show else None,
            )
    except KeyboardInterrupt:
        interrupted = True
    if as_json:
        print(json.dumps(found.to_json()))
    else:
        show_audit(llm, found, params.temperature, interrupted=interrupted)
    return INTERRUPTED if interrupted else 0 if found.passed and found.drafted else 1


def show_audit(llm: LLM, found: Audit, temperature: float, *, interrupted: bool) -> None:
    """Print the result of an audit."""
    said = found.to_json()
    kinds = f"greedy and at temperature {temperature:g} by the seed {said['seed']}" if temperature else "greedy"
    print(f"{said['replies']} replies, {said['tokens']} tokens, {kinds}, {said['seconds']:.0f} s")
    drafters = ", ".join(said["drafters"]) or "no drafter"
    print(f"drafted {said['drafted']} tokens with {drafters}, {said['accepted']} accepted")
    if not said["lossless"]:
        print(f"`{said['verify']}` is a lossy mode: differences are what it is for")
    for one in found.compared:
        for kind, difference in (("plain reply", one.plain), ("second reading", one.forced)):
            if difference:
                wanted, got = (_text(llm, token) for token in (difference.wanted, difference.got))
                print(
                    f"{difference.verdict}: T={one.temperature:g}, token {difference.position}, {kind} says {wanted}, "
                    f"speculation said {got}, margin {difference.margin:.3g}: {one.prompt[:60]!r}"
                )
    if found.distribution:
        distribution = said["distribution"]
        verdict = "follows the distribution" if distribution["passed"] else "DOES NOT follow the distribution"
        print(
            f"{distribution['draws']} short replies, {distribution['drafted']} tokens drafted: {verdict} "
            f"(chi-square {distribution['chi_square']:.0f}, {distribution['freedom']} degrees, "
            f"limit {distribution['limit']:.0f}; "
            f"a total variation of {distribution['visible_total_variation']:.2f} would have shown)"
        )
        if not distribution["speculated"]:
            print("nothing was drafted in the short replies: they say nothing of speculation")
    if interrupted:
        print("interrupted: what is above is all that was checked", file=sys.stderr)
    print(_verdict(found))


def _verdict(found: Audit) -> str:
    if not found.passed:
        return "FAILED: speculation changed the output"
    if not found.drafted:
        return "PASSED, but nothing was drafted: this says nothing of speculation (see --draft and --control fixed)"
    return "PASSED: speculation changed nothing"


def _text(llm: LLM, token: int | None) -> str:
    return "the end" if token is None or token < 0 else f"{token} {llm.tokenizer.token_text(token)!r}"
