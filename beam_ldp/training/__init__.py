"""Parts of `beam-ldp train`: its plan, its rounds, their prices, what is written of them."""
