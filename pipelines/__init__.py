"""Runnable programs and the command line; installed as `beam_ldp.pipelines`."""
