"""What `beam-ldp train` takes, and its help."""

from __future__ import annotations

from dataclasses import dataclass

from beam_ldp.settings.fields import COUNT, NUMBER, POSITIVE, SWITCH, WHOLE, setting
from beam_ldp.settings.sections import Charge, Mechanism, Noise, Output, Privacy
from beam_ldp.settings.usage import OUTPUT, RELEASE, Part, Usage

ALGORITHMS = CLDP_SGD, FEDAVG, ADAPED, LOCAL_CENTRAL = (
    "cldp-sgd", "fedavg", "adaped", "local-central",
)  # fmt: skip
PRIORS = DISTILLATION, _, _ = "distillation", "gaussian", "laplace"
ADAPTIVE = "adaptive"  # the clipping norm that follows a quantile
BASELINES = ("non-private", "local-only")
BUNDLED = ("digits", "mnist5k", "mnist", "emnist-synthetic")
MODELS = ("logistic", "mlp", "cnn-16", "cnn-32", "cnn-papernot")
SHUFFLED_EPOCHS = "shuffled-epochs"
SAMPLINGS = ("fixed", "full", "self", SHUFFLED_EPOCHS)
POINT = "example"  # the privacy unit where a client has several and one is protected


@dataclass(frozen=True, kw_only=True)
class ClientData:
    """Whose data a model is trained on."""

    data: str = setting(
        "",
        "digits, mnist5k, mnist, emnist-synthetic; or a folder of IDX files (images and labels, as "
        "MNIST is published); or of one Parquet or TFRecord file per client; or one Parquet or CSV "
        "file with {training.client_id}",
        flag="data", metavar="NAME|PATH", basic=True,
    )  # fmt: skip
    points_per_client: int = setting(
        1,
        "examples per client: bundled data and IDX files are dealt out accordingly, clients in "
        "other files need that many (default 1)",
        COUNT, flag="points-per-client", metavar="M",
    )  # fmt: skip
    shards_per_client: int | None = setting(
        None,
        "bundled data and IDX files: sort by label and cut into shards, S per client, so that each "
        "holds about S labels (default: dealt out at random)",
        COUNT, flag="shards-per-client", metavar="S",
    )  # fmt: skip
    features: tuple[str, ...] = setting(
        (), "files: columns, or globs, separated by commas; or one column of lists",
        flag="features", metavar="NAMES", many=True,
    )  # fmt: skip
    label: str | None = setting(
        None, "files: column of the label, 0 to {training.classes} - 1",
        flag="label", metavar="NAME",
    )  # fmt: skip
    client_id: str | None = setting(
        None, "one file: column with the client id", flag="client-id", metavar="NAME",
    )  # fmt: skip
    classes: int | None = setting(
        None, "files: how many labels there are (IDX files: default 10)", WHOLE,
        flag="classes", metavar="K",
    )  # fmt: skip
    shape: str | None = setting(
        None, "files: shape of an example (default: flat)", flag="shape", metavar="HxWxC",
    )  # fmt: skip
    scale: float = setting(
        1.0, "files: divide features by this public number (default 1)",
        POSITIVE, flag="scale", metavar="S",
    )  # fmt: skip
    test_data: str | None = setting(
        None, "files: public examples with the same columns, to measure accuracy on",
        flag="test-data", metavar="PATH",
    )  # fmt: skip
    bad_rows: str = setting(
        "raise", "files: stop at a row that cannot be used, or leave such rows out and count them",
        flag="bad-rows", choices=("raise", "drop"),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Learning:
    """How it is trained, and who takes part in a round."""

    algorithm: str = setting(
        "cldp-sgd",
        "cldp-sgd: each round, sampled clients report the gradient of a data point; fedavg: "
        "they train on all their data and report the update; adaped: every client keeps a model"
        " of its own and distils a shared one (a trusted server adds the noise); local-central:"
        " fedavg whose messages have a large local epsilon, and a server that adds noise "
        "(default cldp-sgd)",
        flag="algorithm", choices=ALGORITHMS, basic=True,
    )  # fmt: skip
    model: str = setting(
        "auto", "auto: cnn-16 for images of 16 x 16 and more, else logistic",
        flag="model", choices=("auto", *MODELS),
    )  # fmt: skip
    clients_per_round: int | None = setting(
        None, "clients drawn in each round; with {training.sampling} self, on average",
        COUNT, flag="clients-per-round", metavar="K", basic=True,
    )  # fmt: skip
    sampling: str = setting(
        "",
        "how clients are drawn. fixed: a random set of that size; full: everybody; self: each "
        "client decides with a coin of its own; shuffled-epochs: everybody once in every epoch, "
        "in random order (default fixed; local-central: self)",
        flag="sampling", choices=SAMPLINGS,
    )  # fmt: skip
    least_clients: int | None = setting(
        None,
        "of the clients drawn in a round, how many come at least: a round to which fewer come is "
        "charged and not released, and every round is priced as one of so few (default: all come)",
        COUNT, flag="least-clients", metavar="K",
    )  # fmt: skip
    dropout: float = setting(
        0.0,
        "simulate that a client that was drawn stays away with this probability, whatever its data "
        "(default 0); {training.least_clients} is then, by default, what a round falls short of "
        "with a chance of one in 1e9",
        NUMBER, flag="dropout", metavar="P",
    )  # fmt: skip
    drop_colluders: bool = setting(
        False,
        "cldp-sgd, fedavg: leave out reports that point one way together further than honest ones "
        "do: they are forged, and hide nobody ({training.least_clients} says how many are left at "
        "least)",
        SWITCH, flag="drop-colluders",
    )  # fmt: skip
    points_sampled: int = setting(
        1,
        "cldp-sgd: data points that a client draws in a round, each reported on its own "
        "(default 1)",
        COUNT, flag="points-sampled", metavar="S",
    )  # fmt: skip
    epochs: int = setting(
        0,
        "number of epochs, each of (clients / clients per round) rounds; accuracy is measured "
        "after each",
        COUNT, flag="epochs", metavar="E", basic=True,
    )  # fmt: skip
    learning_rate: str | None = setting(
        None,
        "learning rate of the server: a number, or steps such as 12:30,4:60,3.5 (12 up to epoch"
        " 30, 4 up to epoch 60, then 3.5); the default depends on the clipping",
        flag="learning-rate", metavar="RATES",
    )  # fmt: skip
    client_learning_rate: float = setting(
        0.1, "fedavg, local-central: learning rate of the clients' own steps (default 0.1)",
        POSITIVE, flag="client-learning-rate", metavar="RATE",
    )  # fmt: skip
    local_epochs: int = setting(
        1, "fedavg, local-central: passes over a client's data (default 1)",
        COUNT, flag="local-epochs", metavar="N",
    )  # fmt: skip
    batch_size: int = setting(
        20, "all but cldp-sgd: batch size of a client's steps (default 20)",
        COUNT, flag="batch-size", metavar="B",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Clipping:
    """What bounds the influence of one report."""

    norm: str = setting(
        "l2", "norm that gradients are clipped in, and that the mechanism is for (default l2)",
        flag="norm", choices=("l2", "linf", "l1"), basic=True,
    )  # fmt: skip
    clip: str | None = setting(
        None,
        "radius that gradients are clipped to; public (default: 0.005, linf 0.01, l1 0.1; "
        "fedavg ten times that; adaped 1, local-central 0.05). adaptive: follow the median of "
        "the norms from there on, for a tenth of {privacy.local_epsilon} (cldp-sgd, fedavg)",
        flag="clip", metavar="C|adaptive",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Personal:
    """Models of the clients' own, and the noise of whoever adds it."""

    preset: str = setting(
        "safe",
        "safe: the server adds noise once to the sum of changes; printed: clients add noise to "
        "every step, as in the thesis, at the privacy cost that can be proved for that, with a "
        "warning (default safe)",
        flag="preset", choices=("safe", "printed"),
    )  # fmt: skip
    prior: str = setting(
        DISTILLATION,
        "what ties personal models to the shared one: distillation of its predictions, or a "
        "gaussian or laplace prior of their weights around its own (default distillation)",
        flag="prior", choices=PRIORS,
    )  # fmt: skip
    noise_multiplier: float = setting(
        0.0,
        "standard deviation of the noise, as a multiple of {training.clip} (adaped) or "
        "{training.projection} (local-central)",
        POSITIVE, flag="noise-multiplier", metavar="Z",
    )  # fmt: skip
    psi_noise_multiplier: float = setting(
        0.0,
        "the same for the scale of the distillation or of the prior, psi (default: ten times "
        "{training.noise_multiplier})",
        POSITIVE, flag="psi-noise-multiplier", metavar="Z",
    )  # fmt: skip
    psi_clip: float = setting(
        1.0, "clipping bound of a client's change of psi (default 1)",
        POSITIVE, flag="psi-clip", metavar="C",
    )  # fmt: skip
    psi: float = setting(
        0.0, "psi at the start (default 5; with a prior 1)", POSITIVE, flag="psi", metavar="P",
    )  # fmt: skip
    psi_range: str = setting(
        "",
        "range that psi is kept in; public (default 2:50; gaussian 0.02:10, laplace 0.03:10)",
        flag="psi-range", metavar="LOW:HIGH",
    )  # fmt: skip
    local_steps: int = setting(
        10, "steps of a client in a round (default 10)", COUNT, flag="local-steps", metavar="N",
    )  # fmt: skip
    personal_learning_rate: float = setting(
        0.2, "learning rate of the personal models (default 0.2)",
        POSITIVE, flag="personal-learning-rate", metavar="RATE",
    )  # fmt: skip
    shared_learning_rate: float = setting(
        0.15, "learning rate of the shared model (default 0.15)",
        POSITIVE, flag="shared-learning-rate", metavar="RATE",
    )  # fmt: skip
    psi_learning_rate: float = setting(
        0.2, "learning rate of psi (default 0.2)",
        POSITIVE, flag="psi-learning-rate", metavar="RATE",
    )  # fmt: skip
    public_clients: bool = setting(
        False,
        "files: declares that these clients are made from public data, so that the accuracy of "
        "their personal models may be printed; otherwise it is not measured, since no budget "
        "covers it",
        SWITCH, flag="public-clients",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ServerNoise:
    """What a server adds to messages that clients have randomized."""

    projection: float = setting(
        0.0, "norm that the server clips every decoded message to",
        POSITIVE, flag="projection", metavar="RHO",
    )  # fmt: skip
    max_participations: int | None = setting(
        None, "largest number of messages that one client may send (default: no limit)",
        COUNT, flag="max-participations", metavar="N",
    )  # fmt: skip
    audit: str | None = setting(
        None,
        "targets of the reconstruction audit, separated by commas: diffuse:FEATURES:COSINE, "
        "sparse:ITEMS:DOMAIN:PRECISION:RECALL (default: the direction of the whole update and "
        "of one example, and 20 of 2000 words)",
        flag="audit", metavar="TARGETS",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class GoingOn:
    """Where a training goes on."""

    resume: str | None = setting(
        None,
        "go on with the training that was killed on its way to this output, as it was started; "
        "takes no other flags but those that name the ledger, MLflow's store and the format",
        flag="resume", metavar="DIR",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What else is trained on the same data."""

    baselines: tuple[str, ...] = setting(
        (),
        "baselines to train on the same data: non-private, local-only (separated by commas). They "
        "protect nobody, or learn nothing from each other",
        flag="baselines", metavar="NAMES", many=True,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TrainingQuestion(ClientData, Learning, Clipping, Personal, ServerNoise, Comparison, GoingOn):
    """What is trained, on whose data, and how.

    What only some algorithms have is told apart by whether it was given.
    """


_COST = "the privacy cost"
PARTS = (
    Part("training", ClientData, "the data"),
    Part("training", Learning, "the training"),
    Part("training", Clipping, _COST),
    Part(
        "privacy",
        Privacy,
        _COST,
        only=("local_epsilon", "max_local_epsilon", "trust_shuffler", "delta", "epsilon"),
        own={
            "local_epsilon": {
                "help": "local epsilon of one report, against everybody (not for adaped, "
                "whose server is trusted)"
            },
            "max_local_epsilon": {
                "help": "largest local epsilon of all that a client sends in one round (default: "
                "8, which is odds of 2,981 to 1; docs/choosing.md says why)"
            },
            "epsilon": {
                "help": "stop before the central epsilon of the whole training exceeds this"
            },
        },
    ),
    Part(
        "mechanism",
        Mechanism,
        _COST,
        only=("name", "messages"),
        own={
            "name": {
                "help": "auto: PrivUnit (l2), LInfMean (linf), L1Mean (l1); for l2 also "
                "PrivUnitGaussian, SeparatedMean, L2Mean (the fewest bits)"
            },
            "messages": {
                "help": "LInfMean, L1Mean, L2Mean: messages of one report, each with the same "
                "share of {privacy.local_epsilon} and shuffled on its own; one for every 2 of it "
                "errs least, more cost less after the shuffle (default: linf 1, else so many)"
            },
        },
    ),
    Part("training", Personal, "personal models (adaped)"),
    Part("training", ServerNoise, "noise on clients and on the server (local-central)"),
    Part("training", Comparison, "comparison"),
    Part("training", GoingOn, "going on"),
    Part(
        "release",
        Charge,
        RELEASE,
        only=("ledger", "no_ledger", "run_id", "quota", "privacy_unit"),
        own={
            "privacy_unit": {
                "help": "privacy unit: what this run protects; it must match the unit of "
                "the budget (default: user; example for cldp-sgd with several "
                "points per client)"
            }
        },
    ),
    Part("release", Noise, RELEASE, only=("dataset",)),
    Part("output", Output, OUTPUT, without=("top", "bad_rows_file", "job_timeout")),
)

EXAMPLES = """examples:
  privacy cost in advance (needs no TensorFlow; by the theorem of the thesis and by our accountant)
    beam-ldp train --data mnist --norm l2 --local-epsilon 2 --clients-per-round 2000 \\
        --epochs 200 --delta 1e-5 --dry-run
  a few minutes, on images that come with scikit-learn
    beam-ldp train --data digits --local-epsilon 4 --clients-per-round 100 --epochs 10 \\
        --delta 1e-5 --output out
  5,000 images of MNIST, stopped at a target, charged to the budget of `mnist`
    beam-ldp train --algorithm cldp-sgd --data mnist5k --norm l2 --local-epsilon 2 \\
        --clients-per-round 200 --epochs 30 --delta 1e-5 --dataset mnist --epsilon 3 \\
        --output out --ledger sqlite:///privacy.db
  for comparison: no privacy, every client alone
    beam-ldp train --data digits ... --baselines non-private,local-only
  personal models that distil a shared one; the server is trusted and adds noise once
    beam-ldp train --algorithm adaped --data digits --points-per-client 10 \\
        --shards-per-client 2 --clients-per-round 72 --epochs 10 --clip 0.2 \\
        --noise-multiplier 4 --delta 1e-5 --output out
  messages with a local epsilon of their own, a server that adds noise, and the reconstruction audit
    beam-ldp train --algorithm local-central --data mnist5k --model logistic \\
        --local-epsilon 60 --trust-shuffler --projection 0.47 --noise-multiplier 2 \\
        --clients-per-round 3600 --epochs 1 --max-participations 1 --learning-rate 300 \\
        --audit diffuse:784:0.5,diffuse:784:0.4 --delta 1e-5 --output out
  go on with one that was killed (or settle it: beam-ldp finalize out)
    beam-ldp train --resume out
  your own clients: one file with a column of client ids
    beam-ldp train --data rows.parquet --client-id uid --features 'f*' --label y --classes 2 \\
        --test-data public.parquet --algorithm fedavg --points-per-client 20 ...
"""

EXIT_CODES = """
exit codes: 0 done, also when the target ended it early; 1 the run failed; 2 a flag or an input is
            wrong, or TensorFlow Federated is not installed; 3 nothing was published (the target or
            the budget does not allow it, or the ledger could not be reached at the end:
            `beam-ldp finalize` then continues); 130 interrupted: the rounds that ran stay charged.
            After 1 and 130 the output is the model after the last round that ended, if there is one
"""

USAGE = Usage(
    name="train",
    module="beam_ldp.pipelines.train",
    summary=(
        "Train a model on clients' data, which never leaves them unprotected. In each round, "
        "sampled clients report a clipped and randomized update of the model; reports are "
        "shuffled and averaged. The privacy cost of each round is known before it runs, and "
        "training stops before the target is exceeded. Accuracy is measured on public data "
        "only: no loss, accuracy or number of examples leaves a client."
    ),
    synopsis=(
        "--data NAME|PATH --local-epsilon EPS0 --clients-per-round K --epochs E --delta D "
        "--output DIR [...]"
    ),
    examples=EXAMPLES,
    parts=PARTS,
    runs_on_beam=False,
    exit_codes=EXIT_CODES,
)
