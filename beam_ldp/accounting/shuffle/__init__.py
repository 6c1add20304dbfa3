"""One shuffled release: its price, any unknown of it, and mechanisms that send several messages."""
