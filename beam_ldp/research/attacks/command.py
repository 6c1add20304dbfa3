"""`beam-ldp reconstruct`: what somebody rebuilds of a person's data who sees one message of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from beam_ldp.pipelines.flags import format_option, whole

if TYPE_CHECKING:
    from beam_ldp.research.attacks.tables import Attacked

_MOST_EPSILONS = 12
_MOST_NUMBERS = 100_000_000  # of people's vectors or lists, at once
_SIZES = {"mean": ("dimension", "domain_size"), "frequency": ("domain_size", "dimension")}


@click.command(short_help="What an attacker rebuilds who sees one message: bounds and attacks.")
@click.option(
    "--mechanism",
    required=True,
    metavar="NAME",
    help="mechanism of the message, as PrivUnit or priv-unit",
)
@click.option("--dimension", type=whole, help="numbers of a vector, for a mechanism of means")
@click.option("--domain-size", type=whole, help="values of the list, for a frequency oracle")
@click.option("--local-epsilon", required=True, metavar="LIST",
              help="local epsilons to try, as in 500,100,20,4")  # fmt: skip
@click.option("--images", metavar="NAME|PATH",
              help="the attacker knows how images look: digits, mnist (from this machine), or a "
              ".npy file of shape (n, d)  [default: directions are uniform]")  # fmt: skip
@click.option("--words", type=whole, metavar="M",
              help="the attacker knows how common words are: each person has used M of a list of "
              "--dimension words, or more")  # fmt: skip
@click.option("--cosine", default="0.3,0.5,0.7", show_default=True, metavar="LIST",
              help="of the angles within which a direction counts as found")  # fmt: skip
@click.option("--precision", type=float, default=0.5, show_default=True,
              help="least share of the guessed words that were used")  # fmt: skip
@click.option("--recall", type=float, default=0.5, show_default=True,
              help="least share of the used words that are guessed")  # fmt: skip
@click.option("--candidates", type=whole, default=1000, show_default=True,
              help="directions on the list of whoever looks for the exact one")  # fmt: skip
@click.option("--people", type=whole, default=1000, show_default=True,
              help="people attacked in simulations; of images at most half")  # fmt: skip
@click.option("--output", metavar="DIR",
              help="new folder for attacks.json, attacks.csv and, of images, pictures")  # fmt: skip
@format_option
def reconstruct(
    mechanism: str, local_epsilon: str, cosine: str, output: str | None, form: str, **asked: Any
) -> None:
    """How often somebody who sees one message finds what it was made of.

    For each local epsilon: the chance of the best guess without a message, what no attack exceeds,
    the exact chance where it is known, and how often simulated attacks succeed. Then the local
    epsilons from which the chance exceeds 1 % and 10 %. Simulations start from a fixed seed and are
    the same each time. No budget is charged: nobody's data is published. But --images FILE.npy may
    be people's: the pictures in --output then show them as they are.

    \b
    examples:
      beam-ldp reconstruct --mechanism PrivUnit --dimension 784 --local-epsilon 500,100,20,4
      beam-ldp reconstruct --mechanism PrivUnit --local-epsilon 500,100,20,4 --images digits \\
          --output seen
      beam-ldp reconstruct --mechanism SubsetSelection --domain-size 1000 --local-epsilon 6,2
    \b
    exit codes: 0 done; 2 a flag does not fit
    """
    from beam_ldp.release.outputs import OutputError, OutputFolder
    from beam_ldp.research.attacks import tables as attacks

    try:
        folder = OutputFolder(output) if output is not None else None
        epsilons = _numbers("--local-epsilon", local_epsilon)
        found = _attacked(mechanism, epsilons, _numbers("--cosine", cosine), asked)
    except (ValueError, TypeError, OutputError) as error:
        raise click.UsageError(str(error)) from None
    if folder is not None:
        try:
            with folder.writing() as writer:
                for name, content in attacks.files(found).items():
                    writer.put(name, content)
        except (OutputError, OSError) as error:
            raise click.UsageError(str(error)) from None
    if form == "json":
        from beam_ldp.release.terminal import printed_json

        print(printed_json(attacks.as_json(found)))
    else:
        attacks.show(found, None if folder is None else folder.path)
    sys.stdout.flush()


def _attacked(
    name: str, epsilons: Sequence[float], cosines: Sequence[float], asked: dict[str, Any]
) -> Attacked:
    """Raises ValueError for what does not fit."""
    from beam_ldp.planning.mechanisms import mechanism_of

    kind = mechanism_of(_spelled(name))
    if len(epsilons) > _MOST_EPSILONS or not all(0 < e < 1e6 for e in epsilons):
        raise ValueError(
            f"--local-epsilon must be at most {_MOST_EPSILONS} numbers above 0 and below 1e6"
        )
    size, other = _SIZES[kind.task]
    if asked[other] is not None:
        raise ValueError(f"--mechanism {name} takes {_flag(size)}, not {_flag(other)}")
    if asked["images"] is not None and asked["words"] is not None:
        raise ValueError("--images and --words exclude each other: an attacker knows one of them")
    if kind.task == "frequency" and (asked["images"] is not None or asked["words"] is not None):
        raise ValueError(f"--mechanism {name} is for values: neither --images nor --words")
    if asked["images"] is not None:
        return _images(kind, epsilons, cosines, asked)
    if asked[size] is None:
        raise ValueError(f"--mechanism {name} needs {_flag(size)}")
    if asked["people"] * max(asked[size], asked["candidates"]) > _MOST_NUMBERS:
        raise ValueError(
            f"--people times {_flag(size)}, or --candidates, must be at most {_MOST_NUMBERS:g}"
        )
    if kind.task == "frequency":
        return _values(kind, epsilons, asked)
    if asked["words"] is not None:
        return _words(kind, epsilons, asked)
    return _directions(kind, epsilons, cosines, asked)


def _directions(
    kind: Any, epsilons: Sequence[float], cosines: Sequence[float], asked: dict[str, Any]
) -> Attacked:
    from beam_ldp.research.attacks.tables import Attacked
    from beam_ldp.research.attacks.trials import direction_trials

    found = direction_trials(
        kind, asked["dimension"], epsilons,
        cosines_asked=cosines, candidates=asked["candidates"], people=asked["people"],
    )  # fmt: skip
    return Attacked(kind.__name__, asked["dimension"], "directions are uniform", found)


def _images(
    kind: Any, epsilons: Sequence[float], cosines: Sequence[float], asked: dict[str, Any]
) -> Attacked:
    from beam_ldp.research.attacks.images import load_images
    from beam_ldp.research.attacks.tables import Attacked
    from beam_ldp.research.attacks.trials import image_trials

    images = load_images(asked["images"], asked["dimension"], asked["people"])
    found = image_trials(kind, images.attacked, images.public, epsilons, cosines_asked=cosines)
    prior = f"{len(images.public):,} other images are known"
    return Attacked(kind.__name__, images.attacked.shape[1], prior, found, images)


def _words(kind: Any, epsilons: Sequence[float], asked: dict[str, Any]) -> Attacked:
    from beam_ldp.accounting.reconstruction import SparseTarget
    from beam_ldp.research.attacks.tables import Attacked
    from beam_ldp.research.attacks.trials import word_trials

    target = SparseTarget(asked["words"], asked["dimension"], asked["precision"], asked["recall"])
    found = word_trials(kind, target, epsilons, people=asked["people"])
    return Attacked(kind.__name__, asked["dimension"], "how common words are is known", found)


def _values(kind: Any, epsilons: Sequence[float], asked: dict[str, Any]) -> Attacked:
    from beam_ldp.research.attacks.tables import Attacked
    from beam_ldp.research.attacks.trials import value_trials

    size = asked["domain_size"]
    found = value_trials(lambda epsilon: kind(size, epsilon), epsilons, people=asked["people"])
    return Attacked(kind.__name__, size, "all values are equally likely", found)


def _spelled(name: str) -> str:
    """PrivUnit for priv-unit; names that are unknown stay as they are."""
    from beam_ldp.planning.mechanisms import TASKS
    from beam_ldp.randomizers import registry

    kinds = {kind.__name__.lower(): kind.__name__ for t in TASKS for kind in registry.offered(t)}
    return kinds.get(name.replace("-", "").lower(), name)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _numbers(flag: str, text: str) -> tuple[float, ...]:
    """Numbers between commas, each once."""
    try:
        found = tuple(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        raise ValueError(f"{flag} must be numbers between commas, got {text}") from None
    return found
