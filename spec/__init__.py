"""What devices and collectors do, executable: slow, obvious, and of the standard library alone.

Read `names`, `frequency`, `means` (a function for each mechanism, called as its class, of fields of
its configuration), `wire`, `prf`. The product is tested against it; neither imports the other."""
