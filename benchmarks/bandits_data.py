"""Bandits over real contexts: classes of packaged data are choices, and a right one is rewarded.

    python -m benchmarks.bandits_data [--output benchmarks/results]

Digits, wine and breast cancer of scikit-learn. Half of the rows is public; people are draws, with
replacement, of the other half. A person is told a policy, makes its choice in her own context, and
one bit of her reward is all that goes further. Policies are directions that the public half's
contexts tell apart, or models fitted to a few public rows. Beside them learners without privacy,
one whose reports hide contexts too, and the replay of choices that were logged. About five minutes.
Writes bandits_data.json, .md and .png.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from beam_ldp.decisions.bandits.contexts import ContextLaw, ContextualActions, choices
from beam_ldp.decisions.bandits.elimination import Batch, LinearBandit
from beam_ldp.questions.pictures import ESTIMATE, GREY, GRID, TRUTH, bare, figure_with, png
from benchmarks.contextual_baselines import (
    Ridge,
    accuracy_of,
    epsilon_greedy,
    lin_ucb,
    noisy_gram_accuracy,
)

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Row = dict[str, Any]

SETS = {"breast_cancer": 2, "wine": 2, "digits": 4}  # and how many directions are kept of each
PEOPLE, RUNS = 100_000, 10
EPSILONS = (0.2, 0.693, 2.0)
MODELS: dict[str, Row] = {
    "none": {"model": "none"},
    "central": {"model": "central"},
    "shuffled": {"model": "shuffled"},
    "local": {"model": "local"},
}
_CANDIDATES, _FITTED = 16, 30  # models, and public rows that each is fitted to


@dataclass(frozen=True, eq=False)
class Task:
    """A data set as a contextual bandit.

    Attributes:
        name: of the set.
        features: (C, A, d) of people's rows, of length 1 at most.
        labels: (C,) their right choices.
        public: (P, A, d) of the public rows.
        ceiling: accuracy of a logistic regression that sees all of people's labels.
        candidates: (K, C) choices of models that were fitted to a few public rows.
    """

    name: str
    features: Floats
    labels: Indices
    public: Floats
    ceiling: float
    candidates: Indices

    @property
    def num_choices(self) -> int:
        return self.features.shape[1]


def task(name: str, directions: int, seed: int = 0) -> Task:
    """One of scikit-learn's sets; everything that is fitted is fitted to its public half."""
    data = getattr(datasets, f"load_{name}")()
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(data.target))
    public, people = np.array_split(order, 2)
    scale = StandardScaler().fit(data.data[public])
    reduce = PCA(directions, whiten=True, random_state=seed).fit(scale.transform(data.data[public]))
    plain = clipped(reduce.transform(scale.transform(data.data)), radius=3.0)
    labels = np.asarray(data.target)
    features = embedded(plain, len(data.target_names))
    fitted = [_model(plain, labels, rng.permutation(public)) for _ in range(_CANDIDATES)]
    whole = LogisticRegression(max_iter=2000).fit(plain[people], labels[people])
    return Task(
        name, features[people], labels[people], features[public],
        float(whole.score(plain[people], labels[people])),
        np.array([model.predict(plain[people]) for model in fitted]),
    )  # fmt: skip


def _model(plain: Floats, labels: Indices, rows: Indices) -> LogisticRegression:
    """Of the first `_FITTED` rows, and so many more that all of two classes or more are there."""
    return LogisticRegression(max_iter=2000).fit(plain[rows[:_FITTED]], labels[rows[:_FITTED]])


def clipped(rows: Floats, radius: float) -> Floats:
    """(C, p + 1) with a constant, shortened to `radius`, then of length 1 at most."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    short = rows * np.minimum(1.0, radius / np.maximum(lengths, 1e-12))
    return np.column_stack([short, np.ones(len(rows))]) / np.hypot(radius, 1.0)


def embedded(rows: Floats, num_choices: int) -> Floats:
    """(C, A, (A - 1) p): each choice is a corner of a simplex, times the row.

    One dimension less than a block for each choice, since only differences of scores matter.
    """
    corners = np.eye(num_choices) - 1 / num_choices
    left, sizes, _ = np.linalg.svd(corners)
    found = (left * sizes)[:, : num_choices - 1]
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return np.einsum("ak,cp->cakp", found, rows).reshape(len(rows), num_choices, -1)


# Policies and their people ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Policies:
    """What a bandit chooses among.

    Attributes:
        rows: (K, d) its actions.
        picked: (K, C) the choice of each policy for each of people's rows.
    """

    rows: Floats
    picked: Indices

    def accuracies(self, labels: Indices) -> Floats:
        """(K,) of people, drawn uniformly."""
        return np.asarray((self.picked == labels).mean(axis=1))


def by_directions(one: Task, most: int = 300) -> Policies:
    """The reduction: directions that make different choices of public contexts.

    The public half stands for the law; people's contexts are another half, and right answers are
    not linear in features. So widths do not cover what rows are wrong by.
    """
    law = ContextLaw.finite(one.public, np.full(len(one.public), 1 / len(one.public)))
    found = ContextualActions.of_law(law, net_gap=0.01, most=most)
    return Policies(found.rows, choices(one.features, found.thetas))


def by_candidates(one: Task) -> Policies:
    """Models fitted to public rows, each an action of its own: nothing is assumed of contexts."""
    return Policies(np.eye(len(one.candidates)), one.candidates)


def collected(
    one: Task, policies: Policies, rng: np.random.Generator, logged: bool = False
) -> Callable[[Batch], Floats]:
    """Sums of a batch from people that are drawn for it, each of whom reports once.

    Args:
        one: whose rows people are.
        policies: what people may be told.
        rng: of people, of what was logged, and of the noise of this simulation.
        logged: whether people made uniform choices before, which are replayed.
    """

    def sums(batch: Batch) -> Floats:
        slots = np.repeat(np.arange(len(batch.counts)), batch.counts)
        people = rng.integers(len(one.labels), size=len(slots))
        chosen = policies.picked[batch.played[slots], people]
        if logged:
            made = rng.integers(one.num_choices, size=len(slots))
            rewards = replayed(np.where(made == one.labels[people], 1.0, -1.0), made, chosen)
        else:
            rewards = np.where(chosen == one.labels[people], 1.0, -1.0)
        return batch.noise.sums(batch.noise.reports(rewards, rng), slots, len(batch.counts), rng)

    return sums


def replayed(rewards: Floats, made: Indices, chosen: Indices) -> Floats:
    """Inverse-propensity rewards of a uniform log, divided by the number of choices A.

    A policy's mean reward is that of A * reward where its choice was made, and 0 elsewhere. That
    is in [-A, A], and privacy needs rewards of [-1, 1]: divided by A they are, and the mean of
    what is learned is the policy's divided by A. Variance of the mean reward from a bit of size B
    thus is A^2 B^2 of a person, less the square of the mean, against B^2 of who made the choice.
    """
    return np.where(made == chosen, rewards, 0.0)


def run(
    one: Task, policies: Policies, changes: Row, epsilon: float, seed: int, logged: bool = False
) -> Row:
    """One run: accuracy of all people, of the winner, and whether the best policy was dropped."""
    scale = one.num_choices if logged else 1
    bandit = LinearBandit(actions=policies.rows / scale, horizon=PEOPLE, epsilon=epsilon, **changes)
    found = bandit.run(collected(one, policies, np.random.default_rng([seed, scale]), logged))
    accuracy = policies.accuracies(one.labels)
    return {
        "people": float(found.plays @ accuracy / PEOPLE),
        "winner": float(accuracy[found.winner]),
    }


# What is computed ---------------------------------------------------------------------------------


def bandit_row(one: Task, policies: Policies, name: str, epsilon: float, logged: bool) -> Row:
    """Means and standard errors of runs."""
    runs = [run(one, policies, MODELS[name], epsilon, seed, logged) for seed in range(RUNS)]
    told: Row = {"model": name, "epsilon": None if name == "none" else epsilon, "replay": logged}
    for key in ("people", "winner"):
        values = np.array([found[key] for found in runs])
        told[key] = float(values.mean())
        told[f"{key}_error"] = float(values.std(ddof=1) / RUNS**0.5)
    return told


def of_policies(one: Task, policies: Policies) -> Row:
    """All models on one list of policies."""
    accuracy = policies.accuracies(one.labels)
    settings = [("none", EPSILONS[0]), *((m, e) for m in list(MODELS)[1:] for e in EPSILONS)]
    truth = 2 * accuracy - 1
    theta = np.linalg.lstsq(policies.rows, truth, rcond=None)[0]
    return {
        "policies": len(policies.rows),
        "dimension": policies.rows.shape[1],
        "best": float(accuracy.max()),
        "median": float(np.median(accuracy)),
        "farthest_from_linear": float(np.abs(policies.rows @ theta - truth).max()),
        "runs": [
            bandit_row(one, policies, name, epsilon, logged)
            for logged in (False, True) for name, epsilon in settings
        ],
    }  # fmt: skip


def baselines(one: Task) -> dict[str, float]:
    """Accuracy of all people of other learners."""
    rng = np.random.default_rng(7)
    people = rng.integers(len(one.labels), size=PEOPLE)
    learn = partial(accuracy_of, features=one.features, labels=one.labels, people=people)
    careful, greedy = Ridge(one.features.shape[2]), Ridge(one.features.shape[2])
    seen = {
        "LinUCB": learn(lin_ucb(careful), careful),
        "epsilon-greedy": learn(epsilon_greedy(greedy, rng), greedy),
    }
    for epsilon in EPSILONS:
        seen[f"noisy Gram matrices, epsilon {epsilon:g}"] = noisy_gram_accuracy(
            one.features, one.labels, people, epsilon, 1e-6, rng
        )
    return seen


def of_set(name: str) -> Row:
    """Everything about one data set."""
    one = task(name, SETS[name])
    counts = np.bincount(one.labels)
    return {
        "rows": len(one.labels), "choices": one.num_choices, "ceiling": one.ceiling,
        "uniform": 1 / one.num_choices, "best_fixed": float(counts.max() / counts.sum()),
        "row_error": ContextLaw.sampled(one.public).row_error(300, 1e-6),
        "baselines": baselines(one),
        "directions": of_policies(one, by_directions(one)),
        "candidates": of_policies(one, by_candidates(one)),
    }  # fmt: skip


def computed() -> dict[str, Any]:
    """All numbers of the page."""
    return {"schema_version": 1, "sets": {name: of_set(name) for name in SETS}}


# What is shown ------------------------------------------------------------------------------------

_WAYS = {"directions": "directions", "candidates": "fitted models"}
_SAID = {"breast_cancer": "breast cancer"}
_COLOURS = {"none": GREY, "central": "#2a7f62", "shuffled": ESTIMATE, "local": TRUTH}
_AT = 0.693  # log 2, at which Privacy-Preserving Bandits prints its losses
_PRINTED = {"MediaMill": 2.6, "TextMining": 3.6}


def page(found: dict[str, Any]) -> str:
    """Tables as a Markdown page."""
    lines = [
        "# Bandits over real contexts",
        "",
        "`python -m benchmarks.bandits_data` writes this page. Classes of packaged data are "
        f"choices: {PEOPLE:,} people, who are draws with replacement of half of the rows, get 1 "
        "for the right choice and -1 for others. The other half is public: features are scaled, "
        f"reduced and clipped by it alone. Means of {RUNS} runs, in percent, with their standard "
        "errors in brackets; other learners ran once.",
        "",
        "![accuracy](bandits_data.png)",
        "",
        "Two lists of policies. *Directions* are the reduction to a linear bandit: parameters that "
        "make different choices in the public rows. *Fitted models* are "
        f"{_CANDIDATES} logistic regressions of {_FITTED} labelled public rows each, every one an "
        "action of its own. `all` is the accuracy of everybody's choice, those while the bandit "
        "learns among them; `winner` is that of the policy that is left. Right answers are not "
        "linear in features, so that of directions the widths promise nothing; nor do they count "
        "that the public half is not people's half (`row_error`).",
    ]
    for name, one in found["sets"].items():
        lines += _set(_SAID.get(name, name), one)
    return "\n".join([*lines, *_against(found["sets"])]) + "\n"


def _set(name: str, one: Row) -> list[str]:
    learned = ", ".join(f"{of} {100 * value:.1f}" for of, value in one["baselines"].items())
    lines = [
        "", f"## {name.capitalize()}", "",
        f"{one['choices']} choices, {one['rows']} rows. Without learning: a random choice "
        f"{100 * one['uniform']:.1f}, the best same choice for all {100 * one['best_fixed']:.1f}. "
        f"A logistic regression that sees all labels: {100 * one['ceiling']:.1f}. As a sample of "
        f"the law the public rows would be off by {one['row_error']:.2f}. Learners that "
        f"see contexts, and one whose reports hide them too: {learned}.", "",
        "| policies | | best | median | farthest from linear |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for way, said in _WAYS.items():
        told = one[way]
        lines.append(
            f"| {said} | {told['policies']} of {told['dimension']} dimensions "
            f"| {100 * told['best']:.1f} | {100 * told['median']:.1f} "
            f"| {told['farthest_from_linear']:.2f} |"
        )
    heads = " | ".join(f"{said}: all | winner | replay: winner" for said in _WAYS.values())
    lines += ["", f"| model | epsilon | {heads} |", "|---|---|" + "---|" * 6]
    count = len(one["directions"]["runs"]) // 2
    for place in range(count):
        cells = []
        for way in _WAYS:
            now, replay = (one[way]["runs"][k] for k in (place, count + place))
            cells += [_percent(now, "people"), _percent(now, "winner"), _percent(replay, "winner")]
        first = one["directions"]["runs"][place]
        epsilon = "" if first["epsilon"] is None else f"{first['epsilon']:g}"
        lines.append(f"| {first['model']} | {epsilon} | {' | '.join(cells)} |")
    return lines


def _percent(told: Row, key: str) -> str:
    return f"{100 * told[key]:.1f} ({100 * told[f'{key}_error']:.1f})"


def loss(one: Row, model: str) -> float:
    """What privacy costs all people at epsilon 0.693, in points of accuracy."""
    live = [told for told in one["runs"] if not told["replay"]]
    plain = next(told["people"] for told in live if told["model"] == "none")
    private = (t["people"] for t in live if t["model"] == model and t["epsilon"] == _AT)
    return float(100 * (plain - next(private)))


def _against(sets: dict[str, Row]) -> list[str]:
    printed = ", ".join(f"{points} on {name}" for name, points in _PRINTED.items())
    lines = [
        "", "## Beside Privacy-Preserving Bandits", "",
        "Malekzadeh et al. (2020) print a loss of accuracy against the same learner without "
        f"privacy, at an epsilon of 0.693: in points, {printed}. Their sets are not packaged. "
        "There 275 and 425 people have up to 100 observations each and learn on their own devices "
        "besides; half of the people send one coded context with its choice and reward, a trusted "
        "shuffler drops codes that are rare, and the epsilon, with a delta, is that of being "
        "sampled into a crowd. Ours hides the reward, and sends no context and no choice. So the "
        "figures are not of the same promise; ours, of the sets above:", "",
        "| set | policies | central | shuffled | local |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for name, one in sets.items():
        for way, said in _WAYS.items():
            points = (loss(one[way], model) for model in ("central", "shuffled", "local"))
            cells = " | ".join(f"{point:.1f}".replace("-0.0", "0.0") for point in points)
            lines.append(f"| {_SAID.get(name, name)} | {said} | {cells} |")
    return lines


def picture(found: dict[str, Any]) -> bytes:
    """Accuracy of all people against epsilon, a panel for each set."""
    height = 4.8
    figure = figure_with(
        "Accuracy of everybody's choice, while the bandit learns",
        "solid: fitted models; dashed: directions; grey: no privacy; dotted: LinUCB, which sees "
        "contexts; crosses: contexts hidden too",
        height,
    )
    for place, (name, one) in enumerate(found["sets"].items()):
        axes = figure.add_axes((0.07 + 0.32 * place, 0.16, 0.26, 0.56))
        for way, style in (("candidates", "-"), ("directions", "--")):
            for model, colour in _COLOURS.items():
                told = [
                    t for t in one[way]["runs"] if t["model"] == model and not t["replay"]
                ]  # fmt: skip
                mean = np.array([100 * t["people"] for t in told])
                error = np.array([200 * t["people_error"] for t in told])
                if model == "none":
                    mean, error = mean.repeat(len(EPSILONS)), error.repeat(len(EPSILONS))
                label = model if style == "-" else None
                axes.plot(EPSILONS, mean, style, color=colour, linewidth=2, label=label)
                axes.fill_between(EPSILONS, mean - error, mean + error, color=colour, alpha=0.12)
        hidden = [
            100 * one["baselines"][f"noisy Gram matrices, epsilon {epsilon:g}"]
            for epsilon in EPSILONS
        ]
        axes.plot(EPSILONS, hidden, "x", color="black", markersize=6)
        axes.axhline(100 * one["baselines"]["LinUCB"], color=GREY, linestyle=":")
        axes.set_xscale("log")
        axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        axes.xaxis.set_minor_formatter(lambda value, _: "")
        axes.set_ylim(0, 100)
        axes.grid(color=GRID)
        axes.set_axisbelow(True)
        bare(axes, "top", "right")
        axes.set_xlabel(f"epsilon ({_SAID.get(name, name)})", color=GREY)
        if place == 0:
            axes.set_ylabel("percent right", color=GREY)
            axes.legend(frameon=False, fontsize=8, loc="lower right")
    return png(figure)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Compute, write everything, print the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    found = computed()
    (options.output / "bandits_data.json").write_text(json.dumps(found, indent=2) + "\n")
    (options.output / "bandits_data.md").write_text(page(found))
    (options.output / "bandits_data.png").write_bytes(picture(found))
    print(page(found))
    return found


if __name__ == "__main__":
    main()
