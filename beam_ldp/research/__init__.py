"""What nobody needs to collect statistics: published formulas, attacks, who was asked what.

* `published`: every published bound by name, side by side with ours (`beam-ldp privacy`).
* `attacks`: what somebody rebuilds of a person's data who sees messages (`beam-ldp reconstruct`).
* `interactivity`: the audit of who was asked what (`beam-ldp audit-interactivity`), protocols that
  ask people again, and what it takes to ask everybody once.

A room of its own: it stands on all the others, and none of them knows it. Its commands hang on by
entry points.
"""
