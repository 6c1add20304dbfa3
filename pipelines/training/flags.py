"""The flags of `beam-ldp train`, as data."""

from __future__ import annotations

from beam_ldp.pipelines.flags import (
    BUDGET,
    COMMON,
    OUTPUT,
    Flags,
    Groups,
    positive_number,
    whole_number,
)

DATA, TRAINING, PRICE, PERSONAL, CENTRAL, COMPARISON = (
    "the data", "the training", "the privacy cost", "personal models (adaped)",
    "noise on clients and on the server (local-central)", "comparison",
)  # fmt: skip
CLDP_SGD, FEDAVG, ADAPED, LOCAL_CENTRAL = "cldp-sgd", "fedavg", "adaped", "local-central"
ADAPTIVE = "adaptive"  # the clipping norm that follows a quantile
BASELINES = ("non-private", "central-dp", "local-only")
BUNDLED = ("digits", "mnist5k", "mnist", "emnist-synthetic")
MODELS = ("logistic", "mlp", "cnn-16", "cnn-32", "cnn-papernot")
SAMPLINGS = ("fixed", "full", "self")
POINT = "example"  # the privacy unit where a client has several and one is protected

_DATA: Flags = {
    "--data": {
        "metavar": "NAME|PATH",
        "help": f"{', '.join(BUNDLED)}; or a folder of one Parquet or TFRecord file per client; or "
        "one Parquet or CSV file with --client-id",
    },
    "--points-per-client": {
        "type": whole_number, "default": 1, "metavar": "M",
        "help": "examples per client: bundled data is dealt out accordingly, clients in files need "
        "that many (default 1)",
    },
    "--shards-per-client": {
        "type": whole_number, "metavar": "S",
        "help": "bundled data: sort it by label and cut it into shards, S per client, so that each "
        "holds about S labels (default: dealt out at random)",
    },
    "--features": {
        "action": "append", "metavar": "NAMES",
        "help": "files: columns, or globs, separated by commas; or one column of lists",
    },
    "--label": {"metavar": "NAME", "help": "files: column of the label, 0 to --classes - 1"},
    "--client-id": {"metavar": "NAME", "help": "one file: column with the client id"},
    "--classes": {"type": whole_number, "metavar": "K", "help": "files: how many labels there are"},
    "--shape": {"metavar": "HxWxC", "help": "files: shape of an example (default: flat)"},
    "--scale": {
        "type": positive_number, "default": 1.0, "metavar": "S",
        "help": "files: divide features by this public number (default 1)",
    },
    "--test-data": {
        "metavar": "PATH",
        "help": "files: public examples with the same columns, to measure accuracy on",
    },
    "--bad-rows": {
        "choices": ["raise", "drop"], "default": "raise",
        "help": "files: stop at a row that cannot be used, or leave such rows out and count them",
    },
}  # fmt: skip

_TRAINING: Flags = {
    "--algorithm": {
        "choices": [CLDP_SGD, FEDAVG, ADAPED, LOCAL_CENTRAL], "default": CLDP_SGD,
        "help": "cldp-sgd: each round, sampled clients report the gradient of a data point; "
        "fedavg: they train on all their data and report the update; adaped: every client keeps a "
        "model of its own and distils a shared one (a trusted server adds the noise); "
        "local-central: fedavg whose messages have a large local epsilon, and a server that adds "
        "noise (default cldp-sgd)",
    },
    "--model": {
        "choices": ["auto", *MODELS], "default": "auto",
        "help": "auto: cnn-16 for images of 16 x 16 and more, else logistic",
    },
    "--clients-per-round": {
        "type": whole_number, "metavar": "K", "help": "clients drawn in each round; with "
        "--sampling self, on average",
    },
    "--sampling": {
        "choices": list(SAMPLINGS),
        "help": "how clients are drawn. fixed: a random set of that size; full: everybody; self: "
        "each client decides with a coin of its own (default fixed; local-central: self)",
    },
    "--points-sampled": {
        "type": whole_number, "default": 1, "metavar": "S",
        "help": "cldp-sgd: data points that a client draws in a round, each reported on its own "
        "(default 1)",
    },
    "--epochs": {
        "type": whole_number, "metavar": "E",
        "help": "number of epochs, each of (clients / clients per round) rounds; accuracy is "
        "measured after each",
    },
    "--learning-rate": {
        "metavar": "RATES",
        "help": "learning rate of the server: a number, or steps such as 12:30,4:60,3.5 (12 up to "
        "epoch 30, 4 up to epoch 60, then 3.5); the default depends on the clipping",
    },
    "--client-learning-rate": {
        "type": positive_number, "default": 0.1, "metavar": "RATE",
        "help": "fedavg, local-central: learning rate of the clients' own steps (default 0.1)",
    },
    "--local-epochs": {
        "type": whole_number, "default": 1, "metavar": "N",
        "help": "fedavg, local-central: passes over a client's data (default 1)",
    },
    "--batch-size": {
        "type": whole_number, "default": 20, "metavar": "B",
        "help": "all but cldp-sgd: batch size of a client's steps (default 20)",
    },
}  # fmt: skip

_PRICE: Flags = {
    "--norm": {
        "choices": ["l2", "linf", "l1"], "default": "l2",
        "help": "norm that gradients are clipped in, and that the mechanism is for (default l2)",
    },
    "--clip": {
        "metavar": f"C|{ADAPTIVE}",
        "help": "radius that gradients are clipped to; public (default: 0.005, linf 0.01, l1 0.1; "
        "fedavg ten times that; adaped 1, local-central 0.05). adaptive: follow the median of the "
        "norms from there on, for a tenth of --local-epsilon (cldp-sgd, fedavg)",
    },
    "--local-epsilon": {
        "type": positive_number, "metavar": "EPS0",
        "help": "local epsilon of one report, against everybody (not for adaped, whose server is "
        "trusted)",
    },
    "--mechanism": {
        "default": "auto", "metavar": "NAME",
        "help": "auto: PrivUnit (l2), LInfMean (linf), L1Mean (l1); for l2 also PrivUnitGaussian, "
        "SeparatedMean, L2Mean (the fewest bits)",
    },
    "--delta": {"type": float, "metavar": "D", "help": "delta of the central epsilon, in (0, 1)"},
    "--target-epsilon": {
        "type": positive_number, "metavar": "EPS",
        "help": "stop before the central epsilon of the whole training exceeds this",
    },
}  # fmt: skip

_PERSONAL: Flags = {
    "--preset": {
        "choices": ["safe", "printed"],
        "help": "safe: the server adds noise once to the sum of changes; printed: clients add "
        "noise to every step, as in the thesis, at the privacy cost that can be proved for that, "
        "with a warning (default safe)",
    },
    "--noise-multiplier": {
        "type": positive_number, "metavar": "Z",
        "help": "standard deviation of the noise, as a multiple of --clip (adaped) or --projection "
        "(local-central)",
    },
    "--psi-noise-multiplier": {
        "type": positive_number, "metavar": "Z",
        "help": "the same for the scale of the distillation, psi (default: ten times "
        "--noise-multiplier)",
    },
    "--psi-clip": {
        "type": positive_number, "metavar": "C", "help": "clipping bound of a client's change of "
        "psi (default 1)",
    },
    "--psi": {"type": positive_number, "metavar": "P", "help": "psi at the start (default 5)"},
    "--psi-range": {
        "metavar": "LOW:HIGH", "help": "range that psi is kept in; public (default 2:50)",
    },
    "--local-steps": {
        "type": whole_number, "metavar": "N", "help": "steps of a client in a round (default 10)",
    },
    "--personal-learning-rate": {
        "type": positive_number, "metavar": "RATE", "help": "learning rate of the personal models "
        "(default 0.2)",
    },
    "--shared-learning-rate": {
        "type": positive_number, "metavar": "RATE", "help": "learning rate of the shared model "
        "(default 0.15)",
    },
    "--psi-learning-rate": {
        "type": positive_number, "metavar": "RATE", "help": "learning rate of psi (default 0.2)",
    },
    "--public-clients": {
        "action": "store_true", "default": None,
        "help": "files: declares that these clients are made from public data, so that the "
        "accuracy of their personal models may be printed; otherwise it is not measured, since no "
        "budget covers it",
    },
}  # fmt: skip

_CENTRAL: Flags = {
    "--projection": {
        "type": positive_number, "metavar": "RHO",
        "help": "norm that the server clips every decoded message to",
    },
    "--max-participations": {
        "type": whole_number, "metavar": "N",
        "help": "largest number of messages that one client may send (default: no limit)",
    },
    "--audit": {
        "metavar": "TARGETS",
        "help": "targets of the reconstruction audit, separated by commas: "
        "diffuse:FEATURES:COSINE, sparse:ITEMS:DOMAIN:PRECISION:RECALL (default: the direction of "
        "the whole update and of one example, and 20 of 2000 words)",
    },
}  # fmt: skip

_COMPARISON: Flags = {
    "--baselines": {
        "metavar": "NAMES",
        "help": f"baselines to train on the same data: {', '.join(BASELINES)} (separated by "
        "commas). They protect less, or nobody: central-dp trusts the server, at the same epsilon",
    },
}  # fmt: skip

_KEPT_BUDGET = ("--ledger", "--no-ledger", "--run-id", "--quota")
_KEPT_OUTPUT = (
    "--output", "--overwrite", "--dataset", "--format", "--dry-run", "--config", "--mlflow-uri",
    "--mlflow-experiment", "--no-mlflow",
)  # fmt: skip
FLAGS: Groups = {
    DATA: _DATA,
    TRAINING: _TRAINING,
    PRICE: _PRICE,
    PERSONAL: _PERSONAL,
    CENTRAL: _CENTRAL,
    COMPARISON: _COMPARISON,
    BUDGET: {
        **{name: COMMON[BUDGET][name] for name in _KEPT_BUDGET},
        "--privacy-unit": {
            "metavar": "NAME",
            "help": "privacy unit: what this run protects; it must match the unit of the budget "
            f"(default: user; {POINT} for cldp-sgd with several points per client)",
        },
    },
    OUTPUT: {name: COMMON[OUTPUT][name] for name in _KEPT_OUTPUT},
}
