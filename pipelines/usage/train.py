"""What `beam-ldp train` says of itself."""

from __future__ import annotations

from beam_ldp.pipelines.training.flags import FLAGS
from beam_ldp.pipelines.usage import Usage

EXAMPLES = """examples:
  privacy cost in advance (needs no TensorFlow; by the theorem of the thesis and by our accountant)
    beam-ldp train --data mnist --norm l2 --local-epsilon 2 --clients-per-round 2000 \\
        --epochs 200 --delta 1e-5 --dry-run
  a few minutes, on images that come with scikit-learn
    beam-ldp train --data digits --local-epsilon 4 --clients-per-round 100 --epochs 10 \\
        --delta 1e-5 --output out
  5,000 images of MNIST, stopped at a target, charged to the budget of `mnist`
    beam-ldp train --algorithm cldp-sgd --data mnist5k --norm l2 --local-epsilon 2 \\
        --clients-per-round 200 --epochs 30 --delta 1e-5 --dataset mnist --target-epsilon 3 \\
        --output out --ledger sqlite:///privacy.db
  for comparison: no privacy, a trusted server at the same epsilon, every client alone
    beam-ldp train --data digits ... --baselines non-private,central-dp,local-only
  personal models that distil a shared one; the server is trusted and adds noise once
    beam-ldp train --algorithm adaped --data digits --points-per-client 20 \\
        --shards-per-client 2 --clients-per-round 20 --epochs 5 --noise-multiplier 4 \\
        --delta 1e-5 --output out
  messages with a large local epsilon, a server that adds noise, and the reconstruction audit
    beam-ldp train --algorithm local-central --data digits --points-per-client 4 \\
        --local-epsilon 60 --projection 1 --noise-multiplier 1 --clients-per-round 50 \\
        --epochs 5 --max-participations 5 --delta 1e-5 --output out
  your own clients: one file with a column of client ids
    beam-ldp train --data rows.parquet --client-id uid --features 'f*' --label y --classes 2 \\
        --test-data public.parquet --algorithm fedavg --points-per-client 20 ...
"""

EXIT_CODES = """
exit codes: 0 done, also when the target ended it early; 1 the run failed; 2 a flag or an input is
            wrong, or TensorFlow Federated is not installed; 3 nothing was published (the target or
            the budget does not allow it, or the ledger could not be reached at the end:
            `beam-ldp finalize` then continues); 130 interrupted: the rounds that ran stay charged
"""

USAGE = Usage(
    name="train",
    summary=(
        "Train a model on clients' data, which never leaves them unprotected. In each round, "
        "sampled clients report a clipped and randomized update of the model; reports are shuffled "
        "and averaged. The privacy cost of each round is known before it runs, and training stops "
        "before the target is exceeded. Accuracy is measured on public data only: no loss, "
        "accuracy or number of examples leaves a client."
    ),
    synopsis=(
        "--data NAME|PATH --local-epsilon EPS0 --clients-per-round K --epochs E --delta D "
        "--output DIR [...]"
    ),
    examples=EXAMPLES,
    flags=FLAGS,
    exit_codes=EXIT_CODES,
)
