"""What devices and collectors do, executable: slow, obvious, and of the standard library alone.

Nothing here imports the product, and nothing of the product imports this; `tests/spec` holds NumPy,
TensorFlow and JavaScript against it, and all published vectors come from it. In reading order:
`names` (values, people, releases), `laws` (how epsilon becomes whole numbers), `frequency`, `means`
(a function for each mechanism: randomize from given words, sum, estimate), `wire` (pack, envelope,
refuse), `prf` (memoized words). A mechanism's function has its class's name, and its arguments are
fields of its configuration."""
