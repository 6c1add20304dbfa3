"""What a release costs and says of itself: gates, price, charge, record, statement."""
