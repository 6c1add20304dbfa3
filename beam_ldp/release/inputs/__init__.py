"""From files to blocks of rows, and the public lists that go with them."""
