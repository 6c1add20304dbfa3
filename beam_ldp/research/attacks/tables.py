"""What people see of attacks: tables, files, and pictures of what was recovered."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.accounting.reconstruction_audit import at_least, at_most
from beam_ldp.questions.pictures import GREY, figure_with, png
from beam_ldp.release.outputs import as_json as encoded
from beam_ldp.research.attacks.trials import BLIND, LINEAR, MESSAGE, NEAREST, Trial, Trials
from beam_ldp.wording import number

if TYPE_CHECKING:
    from beam_ldp.research.attacks.images import Images

SCHEMA_VERSION = 1
SHOWN = 8  # images of a picture
_ROW = 0.95  # inches
_PICTURES = {MESSAGE: "message.png", LINEAR: "posterior_mean.png", NEAREST: "nearest.png"}
_TITLES = {
    MESSAGE: "The message itself, read as its collector reads it",
    LINEAR: "The posterior mean, by whoever knows how such images scatter",
    NEAREST: "The public image that the message points to most",
}


@dataclass(frozen=True, eq=False)
class Attacked:
    """A mechanism, what its attackers knew, and what they found.

    Attributes:
        mechanism: name of the class.
        size: numbers of a vector, or values of a list.
        prior: what was known beforehand, in words.
        found: the figures.
        images: that were attacked, if any.
    """

    mechanism: str
    size: int
    prior: str
    found: Trials
    images: Images | None = None

    @property
    def title(self) -> str:
        """What was attacked, in words."""
        return f"{self.mechanism}, {self.size:,} {'values' if self._listed else 'numbers'}"

    @property
    def _listed(self) -> bool:
        return "values" in self.prior


def show(attacked: Attacked, folder: str | None) -> None:
    """Both tables, for people."""
    console = Console()
    console.print(f"[bold]What one message tells[/bold]: {escape(attacked.title)}")
    console.print(f"before the message: {escape(attacked.prior)}\n", soft_wrap=True)
    console.print(_chances(attacked.found))
    console.print(_reached(attacked.found))
    if attacked.found.mean_cosine:
        console.print(_cosines(attacked.found))
    console.print(
        "\n[dim]at most: proved for every attack, given any message. exact: of the best attack, of "
        "images and PrivUnitGaussian of the message as it is. The columns behind it are "
        "simulations: they show what is possible and bound nothing. Budgets of a person's messages "
        "add.[/dim]",
        soft_wrap=True,
    )
    if folder is not None:
        console.print(f"[bold]Written to[/bold] {escape(folder)}", soft_wrap=True)
        if attacked.images is not None:
            console.print("[yellow]the pictures show the images that were attacked[/yellow]")


def _chances(found: Trials) -> Table:
    """A row for each question and budget; columns that would be empty are left out."""
    attacks = list(dict.fromkeys(n for trial in found.trials for n in trial.shares if n != BLIND))
    headings = ["local\nepsilon", "blind\nguess", "at\nmost", "exact"]
    headings += [name.replace(" ", "\n", 1) for name in attacks]
    rows = []
    for trial in sorted(found.trials, key=lambda t: _place(found, t)):
        shares = [trial.shares.get(name) for name in attacks]
        rows.append([
            number(trial.local_epsilon),
            _chance(_blind(trial)),
            "" if trial.bound is None else at_most(trial.bound),
            _chance(trial.exact),
            *("" if share is None else f"{share.value:.3f}" for share in shares),
        ])  # fmt: skip
    kept = [i for i in range(len(headings)) if any(row[i] for row in rows)]
    table = _plain()
    table.add_column("found if", no_wrap=True)
    for i in kept:
        table.add_column(headings[i], justify="right", no_wrap=True)
    last = ""
    for trial, row in zip(sorted(found.trials, key=lambda t: _place(found, t)), rows):
        text = trial.question.text
        table.add_row("" if text == last else text, *(row[i] for i in kept))
        last = text
    return table


def _blind(trial: Trial) -> float | None:
    """Known, or else how often one guess for all was right."""
    if trial.blind is not None or BLIND not in trial.shares:
        return trial.blind
    return trial.shares[BLIND].value


def _place(found: Trials, trial: Trial) -> int:
    """Questions one after the other, in the order in which they were asked."""
    return [reached.question for reached in found.reached].index(trial.question)


def _reached(found: Trials) -> Table:
    table = _plain("\nlocal epsilon from which the chance of success")
    table.add_column("found if", no_wrap=True)
    for heading in ("exceeds", "may (bound)", "does (exact)", "did (tried)"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in found.reached:
        table.add_row(
            one.question.text,
            f"{one.chance:.0%}",
            "-" if one.bound is None else at_least(one.bound),
            "-" if one.exact is None else number(one.exact),
            "-" if one.simulated is None else number(one.simulated),
        )
    return table


def _cosines(found: Trials) -> Table:
    table = _plain("\ncosine of guess and truth, on average")
    table.add_column("local\nepsilon", justify="right", no_wrap=True)
    for name in next(iter(found.mean_cosine.values())):
        table.add_column(name.replace(" ", "\n", 1), justify="right", no_wrap=True)
    for epsilon, told in found.mean_cosine.items():
        table.add_row(number(epsilon), *(f"{value:.3f}" for value in told.values()))
    return table


def _plain(title: str | None = None) -> Table:
    return Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))


def _chance(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"


# For programs -------------------------------------------------------------------------------------


def as_json(attacked: Attacked) -> dict[str, Any]:
    """Everything but what was recovered."""
    return {
        "schema_version": SCHEMA_VERSION,
        "mechanism": attacked.mechanism,
        "size": attacked.size,
        "prior": attacked.prior,
        "chances": [_row(trial) for trial in attacked.found.trials],
        "reached": [
            {
                "found": one.question.text,
                "chance": one.chance,
                "bound": one.bound,
                "exact": one.exact,
                "simulated": one.simulated,
            }
            for one in attacked.found.reached
        ],
        "mean_cosine": [
            {"local_epsilon": epsilon, **told}
            for epsilon, told in attacked.found.mean_cosine.items()
        ],
    }


def _row(trial: Trial) -> dict[str, Any]:
    attacks = {}
    for name, share in trial.shares.items():
        low, high = share.interval
        attacks[name] = {
            "share": share.value, "low": low, "high": high, "people": share.trials
        }  # fmt: skip
    return {
        "found": trial.question.text,
        "local_epsilon": trial.local_epsilon,
        "blind": trial.blind,
        "bound": trial.bound,
        "exact": trial.exact,
        "attacks": attacks,
    }


def files(attacked: Attacked) -> dict[str, bytes]:
    """Names and contents of an output."""
    made = {"attacks.json": encoded(as_json(attacked)), "attacks.csv": _csv(attacked)}
    if attacked.images is not None:
        for attack, name in _PICTURES.items():
            made[name] = picture(attacked, attack)
    return made


def _csv(attacked: Attacked) -> bytes:
    """One line for each question, budget and attack."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ("found", "local_epsilon", "blind", "bound", "exact")
    writer.writerow([*columns, "attack", "share", "low", "high", "people"])
    for trial in attacked.found.trials:
        row = _row(trial)
        for name, told in row["attacks"].items():
            writer.writerow([*(row[column] for column in columns), name, *told.values()])
    return text.getvalue().encode()


# Pictures -----------------------------------------------------------------------------------------


def picture(attacked: Attacked, attack: str) -> bytes:
    """Images as columns; below each what one attack found, a row for each local epsilon.

    Each is the public mean and the direction that was found, in its usual length, and drawn in the
    range of grey of the public images; of a message that is mostly noise it is noise.
    """
    images = attacked.images
    assert images is not None
    mean = images.public.mean(axis=0)
    length = np.linalg.norm(images.public - mean, axis=1).mean()
    low, high = np.percentile(images.public, (0.5, 99.5))
    rows = {"original": images.attacked[:SHOWN]}
    for epsilon, guesses in sorted(attacked.found.recovered.items(), reverse=True):
        guess = guesses[attack][:SHOWN]
        sizes = np.maximum(np.linalg.norm(guess, axis=1, keepdims=True), 1e-300)
        rows[f"epsilon {number(epsilon)}"] = mean + length * guess / sizes
    height = 1.1 + _ROW * len(rows)
    figure = figure_with(_TITLES[attack], f"{attacked.title}; {attacked.prior}", height)
    for i, (label, vectors) in enumerate(rows.items()):
        bottom = (_ROW * (len(rows) - 1 - i) + 0.1) / height
        figure.text(0.03, bottom + 0.45 * _ROW / height, label, fontsize=9, color=GREY)
        for j, vector in enumerate(vectors):
            place = (0.17 + 0.1 * j, bottom, 0.095, 0.92 * _ROW / height)
            axes = figure.add_axes(place)
            axes.imshow(vector.reshape(images.shape), cmap="gray", vmin=low, vmax=high)
            axes.set_axis_off()
    return png(figure)
