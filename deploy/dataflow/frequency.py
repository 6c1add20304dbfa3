"""What the template's launcher runs."""

import sys

from beam_ldp.pipelines.template import main

if __name__ == "__main__":
    sys.exit(main())
