"""The privacy record in MLflow: what ran, what it cost, what it released."""
